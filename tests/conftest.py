"""Streams and learners that many tests share."""

import dataclasses
import math
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, sync_playwright

from deferkit import Budget, Decided, Decision, Deferrer, Encoder, Event, Exploration, Observed, Pacing, Stopped
from deferkit.learn.embed.gradient import GradientEmbedding
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.trees import TreeEmbedding
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from tests.command_line import said
from tests.picture_files import people, pictures, trials, write

__all__ = ["said"]

Floats = NDArray[np.float64]

# Some examples train networks or start processes: how long one takes says nothing.
hypothesis.settings.register_profile("deferkit", deadline=None)
hypothesis.settings.load_profile("deferkit")

# A shell lets what it runs in the background ignore Ctrl-C, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def trial(
    world: Mapping[str, Any],
    budget: object,
    policies: Sequence[str],
    *,
    seed: int,
    feedback: str = "full",
    **given: Any,
) -> list[dict[str, Any]]:
    """Return what policies came to on the synthetic stream of a seed."""
    specs = [
        Spec.of("synthetic", world, policy=name, budget=str(budget), feedback=feedback, **given) for name in policies
    ]
    rows = run_together(specs, seed)
    assert not [row for row in rows if "failure" in row], rows
    return rows


class Tasks(NamedTuple):
    contexts: Floats
    rewards: Floats  # [n, deciders]
    costs: Floats  # [n, experts, resources]
    times: Floats | None = None  # [n] seconds, where a budget needs them

    def at(self, t: int) -> float | None:
        """Return the time of a task, if it has one."""
        return None if self.times is None else float(self.times[t])

    def when(self, first: int = 0, end: int | None = None) -> Floats | None:
        """Return the times of tasks, if they have any."""
        return None if self.times is None else self.times[first:end]


def draw_tasks(n: int, d: int, *, experts: int = 1, resources: int = 1, binary: bool = False, seed: int = 0) -> Tasks:
    """Return dense contexts of unit length with linear rewards and costs in [0, 1]."""
    rng = np.random.default_rng(seed)
    contexts = rng.random((n, d))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    thetas = rng.random((experts + 1, d)) / math.sqrt(d)
    weights = rng.random((experts, resources, d)) / math.sqrt(d)
    rewards = np.clip(contexts @ thetas.T + 0.05 * rng.standard_normal((n, experts + 1)), 0, 1)
    if binary:
        rewards = (rng.random(rewards.shape) < rewards).astype(float)
    costs = np.einsum("nd,krd->nkr", contexts, weights) + 0.05 * rng.standard_normal((n, experts, resources))
    return Tasks(contexts, rewards, np.clip(costs, 0, 1))


# Every way to make a learner that differs in what its steps do, with parameters off their defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "resolve": {},  # rewards are not 0 or 1: the link switches at once
    "intervals": {"exploration": Exploration(rule="interval")},
    "intervals, logistic, two experts": {
        "exploration": Exploration(rule="interval"),
        "link": "logistic",
        "experts": ["ann", "bo"],
    },
    "resolve, small window": {"pacing": Pacing(kind="resolve", every=7, window=30), "ridge": 2.0},
    "adaptive": {"pacing": Pacing(kind="adaptive", step=0.05), "exploration": 1.5},
    "gradient": {"pacing": "gradient", "ridge": 0.01, "warm_up": 3},
    "paper pacing": {"pacing": "paper", "exploration": Exploration.printed(noise=0.2, delta=0.1, kappa=0.5)},
    "logistic": {"link": "logistic", "ridge": 0.5},
    "logistic, refitted always": {"link": "logistic", "refit": "always", "pacing": "adaptive"},
    "logistic, never refitted": {"link": "logistic", "refit": "never"},
    "logistic costs": {"cost_link": "logistic", "exploration": Exploration(scale=0.3, noise=0.1)},
    "both logistic": {"link": "logistic", "cost_link": "logistic", "pacing": "gradient"},
    "explore floor": {"explore_floor": 0.3, "seed": 7},
    "thompson": {"exploration": Exploration.thompson(scale=0.5), "seed": 11},
    "thompson, two resources and a floor": {
        "exploration": Exploration.thompson(),
        "resources": 2,
        "explore_floor": 0.1,
    },
    "no optimism": {"exploration": Exploration(scale=0.0, prior=0.0), "warm_up": 50},
    "short memory": {"memory": 40, "pacing": Pacing(window=20)},
    "three experts": {"experts": ["ann", "bo", "cy"]},
    "two resources": {"resources": 2},
    "experts and resources, adaptive": {"experts": ["ann", "bo"], "resources": 3, "pacing": "adaptive"},
    "experts and resources, gradient": {"experts": ["ann", "bo"], "resources": 2, "pacing": "gradient"},
    "two resources, logistic costs": {"resources": 2, "cost_link": "logistic", "explore_floor": 0.1},
    "no cap": {"capped": False},
    "neural": {"embedding": NeuralEmbedding(hidden=7, every=[(0, 10), (100, 40)], batch=60)},
    "neural, logistic": {"link": "logistic", "embedding": NeuralEmbedding(hidden=5, every=25), "seed": 3},
    "neural, two networks, no skip": {"embedding": NeuralEmbedding(hidden=6, networks=2, skip=False, every=30)},
    "neural, one network, bounded": {
        "embedding": NeuralEmbedding(hidden=5, networks=1, every=20, memory=90, discount=0.8),
        "pacing": "adaptive",
    },
    "neural, logistic, bounded": {
        "link": "logistic",
        "embedding": NeuralEmbedding(hidden=4, every=30, memory=50),
        "memory": 120,
        "pacing": Pacing(window=40),
    },
    "neural, bounded below the window": {
        "embedding": NeuralEmbedding(hidden=4, every=7, memory=20, learning_rate=0.02),
        "pacing": Pacing(window=60, every=5),
    },
    "neural, experts and resources": {
        "experts": ["ann", "bo"],
        "resources": 2,
        "embedding": NeuralEmbedding(hidden=4, every=40),
    },
    "neural, short memory": {"memory": 40, "pacing": Pacing(window=20), "embedding": NeuralEmbedding(hidden=4)},
    "neural, thompson": {"exploration": Exploration.thompson(), "embedding": NeuralEmbedding(hidden=4, every=25)},
    "neural ucb": {"embedding": GradientEmbedding(hidden=5, every=20)},
    "neural ts": {
        "exploration": Exploration.thompson(scale=0.5),
        "embedding": GradientEmbedding(hidden=5, every=50),
    },
    "trees": {"embedding": TreeEmbedding(least_in_leaf=5, first=40, trees=10)},
    "trees, logistic": {"link": "logistic", "embedding": TreeEmbedding(least_in_leaf=3, folds=2, trees=5)},
    "trees, bounded, two resources": {
        "resources": 2,
        "embedding": TreeEmbedding(least_in_leaf=3, trees=5, memory=80, first=30),
    },
    "never forgets": {"forget": "never"},
    "never forgets, logistic": {"forget": "never", "link": "logistic"},
    "never forgets, both logistic, two resources": {
        "forget": "never",
        "link": "logistic",
        "cost_link": "logistic",
        "resources": 2,
    },
    "drift": {"drifts": True},
    "drift, logistic, three experts": {"drifts": True, "link": "logistic", "experts": ["ann", "bo", "cy"]},
    "auto": {"representation": "auto"},
    "auto, logistic": {"representation": "auto", "link": "logistic"},
    "auto, experts and resources": {"representation": "auto", "experts": ["ann", "bo"], "resources": 2},
    "auto, never forgets": {"representation": "auto", "forget": "never", "seed": 5},
    "auto, drift, short memory": {
        "representation": "auto",
        "drifts": True,
        "memory": 40,
        "pacing": Pacing(window=20),
    },
    "auto, named features": {"encoded": True, "representation": "auto", "link": "logistic"},
    "named features": {"encoded": True, "representation": "linear"},
    "renewing": {"budget": Budget(6, every="1h", max_cost=1)},
    "renewing, carried over, no cap": {"budget": Budget(5, every="1h", carry=1.5), "ridge": 0.5},
    "renewing, nothing lapses, held less": {"budget": Budget(5, every="day", carry=math.inf, max_cost=1, hold="auto")},
    "renewing, starts later": {"budget": Budget(6, every="1h", start=5_000, max_cost=1)},
    "until": {"budget": Budget(40, until=90_000, max_cost=1), "explore_floor": 0.1},
    "renewing, short memory, logistic": {
        "budget": Budget(6, every="1h", carry=1, max_cost=1),
        "memory": 60,
        "pacing": Pacing(window=20),
        "link": "logistic",
    },
    "renewing, until and a horizon": {
        "budget": {
            "minutes": Budget(6, every="1h", carry=1, max_cost=1),
            "euros": Budget(45, until=60_000, max_cost=1),
            "asks": Budget(50, horizon=400, max_cost=1),
        },
        "experts": ["ann", "bo"],
    },
    "renewing, thompson": {"budget": Budget(6, every="90min", max_cost=1), "exploration": Exploration.thompson()},
    "renewing, auto": {"budget": Budget(6, every="1h", carry=1, max_cost=1), "representation": "auto"},
    "renewing, neural": {
        "budget": Budget(6, every="1h", max_cost=1),
        "embedding": NeuralEmbedding(hidden=4, every=25),
        "memory": 90,
        "pacing": Pacing(window=40),
    },
    "renewing, named features": {"budget": Budget(8, every="2h", max_cost=1), "encoded": True},
    "reviews, unreported": {"budget": Budget.reviews(40, horizon=400), "experts": ["ann", "bo"]},
    "costs above max_cost": {
        "budget": Budget(25, horizon=400, max_cost={"ann": 0.6, "bo": 0.2}),
        "experts": ["ann", "bo"],
    },
    "renewing, costs above max_cost": {"budget": Budget(4, every="1h", carry=1, max_cost=0.3)},
    "held less": {"budget": Budget(48, horizon=400, max_cost=1, hold=0.2)},
    "stopped at a limit": {"budget": Budget(48, horizon=400, max_cost=1, limit=0.3)},
    "ranks, right or wrong": {"binary": True},
    "ranks, link switches late": {"switches": True},
    "ranks, never forgets, link switches late": {"switches": True, "forget": "never"},
    "ranks, link switches late, short memory": {"switches": True, "memory": 40, "pacing": Pacing(window=20)},
    "ranks, experts and resources": {"experts": ["ann", "bo"], "resources": 2, "binary": True},
    "ranks, logistic, no cap": {"link": "logistic", "capped": False},
    "ranks, named features": {"encoded": True, "representation": "linear", "switches": True},
    "ranks, confidence": {"confidence": 2, "binary": True},
    "ranks, confidence, link switches late": {"confidence": 2, "switches": True},
    "ranks, confidence by name": {"confidence": "x1", "encoded": True, "representation": "linear"},
    "ranks, renewing, carried over": {"budget": Budget(5, every="1h", carry=1.5), "binary": True},
    "ranks, until": {"budget": Budget(40, until=90_000, max_cost=1), "switches": True},
    "ranks, auto": {"representation": "auto", "binary": True},
    "ranks, auto, link switches late": {"representation": "auto", "switches": True},
    "ranks, auto, named features, confidence": {
        "representation": "auto",
        "encoded": True,
        "confidence": "x1",
        "binary": True,
    },
    "infinite": {"budget": Budget.unlimited()},
    "nothing": {"budget": Budget(0, horizon=400, max_cost=1)},
}


def differs_by_rule(given: Mapping[str, Any]) -> bool:
    """Return whether a learner of November 2026 with these settings differs from today's."""
    explored = given.get("exploration")
    old = isinstance(explored, Exploration) and explored.rule == "interval"
    return not old and not {"embedding", "confidence"} & set(given)


SETTINGS |= {
    f"{name}, 2026.11": given | {"defaults": "2026.11"} for name, given in SETTINGS.items() if differs_by_rule(given)
}


def november_deferrer(**given: Any) -> Deferrer:
    """Return a learner of the rule of November 2026, for tests that state what that rule does."""
    return Deferrer(defaults="2026.11", **given)


def named(tasks: Tasks) -> Tasks:
    """Return the same tasks with named features: numbers, and one category that was a number."""
    kinds = np.array(list("abc"))[np.digitize(tasks.contexts[:, 0], np.quantile(tasks.contexts[:, 0], [0.3, 0.6]))]
    rows = [
        {"kind": str(kind), **{f"x{i}": float(v) for i, v in enumerate(x[1:])}}
        for kind, x in zip(kinds, tasks.contexts, strict=True)
    ]
    return tasks._replace(contexts=np.array(rows))


def after_drift(tasks: Tasks) -> Tasks:
    """Return the same tasks with a model that is worth little from the middle of the stream on."""
    rewards = tasks.rewards.copy()
    late = np.arange(len(rewards) // 2, len(rewards))
    rewards[late, 0] = late % 10 == 0
    return tasks._replace(rewards=rewards)


def draw_times(n: int, seed: int = 0) -> Floats:
    """Return times of tasks in twelve hours: some together, one before an earlier one now and then, and a gap."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.random(n) ** 2 * 43_200)
    times[n // 2 :] += 12_000
    times[rng.random(n) < 0.03] -= 600
    return times


def make(
    name: str, *, d: int = 6, horizon: int = 400, rate: float = 0.12, rule: str | None = None
) -> tuple[Deferrer, Tasks]:
    """Return a learner of `SETTINGS`, with another rule of exploration if one is given, and tasks for it."""
    given = dict(SETTINGS[name])
    if rule is not None:
        asked = given.get("exploration", Exploration())
        asked = asked if isinstance(asked, Exploration) else Exploration(scale=asked)
        given["exploration"] = dataclasses.replace(asked, rule=rule)
    budgets = given.get("budget")
    resources = given.pop("resources", len(budgets) if isinstance(budgets, dict) else 1)
    capped, drifts, encoded = given.pop("capped", True), given.pop("drifts", False), given.pop("encoded", False)
    experts = len(given.get("experts", ["human"]))
    each = Budget(rate * horizon, horizon=horizon, max_cost=1.0 if capped else None)
    budget: Any = each if resources == 1 else {f"r{i}": each for i in range(resources)}
    given.setdefault("budget", budget)
    switches = given.pop("switches", False)
    binary = given.pop("binary", False) or given.get("link") == "logistic"
    tasks = draw_tasks(horizon, d, experts=experts, resources=resources, binary=binary, seed=3)
    tasks = after_drift(tasks) if drifts else tasks
    if switches:  # right or wrong at first, graded later
        tasks.rewards[: horizon // 2] = tasks.rewards[: horizon // 2].round()
    made = given["budget"]
    if any(each.is_timed for each in (made.values() if isinstance(made, dict) else [made])):
        tasks = tasks._replace(times=draw_times(horizon))
    if encoded:
        encoder = Encoder(numbers=[f"x{i}" for i in range(d - 1)], categories={"kind": 3})
        return Deferrer(encoder=encoder, **given), named(tasks)
    return Deferrer(n_features=d, **given), tasks


def outcome(deferrer: Deferrer, tasks: Tasks, t: int, decision: Decision, feedback: str = "full") -> Observed:
    """Return what is observed of a task, as `run` observes it."""
    deciders = deferrer.settings.deciders
    route = deciders.index(decision.route)
    seen = {decision.route: float(tasks.rewards[t, route])}
    if feedback != "bandit":
        seen["model"] = float(tasks.rewards[t, 0])
    if feedback == "reviewed" and route == 0:
        seen = {}
    if route == 0:
        return Observed(decision.id, seen, None)
    costs = tasks.costs[t, route - 1].tolist()
    resources = deferrer.settings.resources
    cost: float | Mapping[str, float] = costs[0] if len(costs) == 1 else dict(zip(resources, costs, strict=True))
    return Observed(decision.id, seen, cost)


def stopped(deferrer: Deferrer, tasks: Tasks, t: int, decision: Decision, feedback: str) -> Stopped | None:
    """Return how a review ends that may not go on, for one resource; None if it need not be stopped."""
    [budget, *more] = deferrer.settings.budget.values()
    route = deferrer.settings.deciders.index(decision.route)
    if more or not budget.can_be_stopped or route == 0:
        return None
    cost = float(tasks.costs[t, route - 1, 0])
    most = min(numbers(decision.reserved)[0] + numbers(deferrer.summary().left)[0], budget.limit or math.inf)
    known = {} if feedback == "reviewed" else {"model": float(tasks.rewards[t, 0])}
    return Stopped(decision.id, most / cost * cost, known) if cost > most else None


def step_through(deferrer: Deferrer, tasks: Tasks, feedback: str = "full", start: int = 0) -> list[Event]:
    """Decide and observe one task at a time; return the events."""
    events: list[Event] = []
    for t in range(start, len(tasks.contexts)):
        context, at = tasks.contexts[t], tasks.at(t)
        due = [] if at is None else deferrer.renewals(at)
        if due:
            event = Decided(deferrer.decide(context, at=at), context, at)
        else:
            event = deferrer.propose(context, at=at)
            assert deferrer.decide(context, at=at) == event.decision
        seen = outcome(deferrer, tasks, t, event.decision, feedback)
        ended = stopped(deferrer, tasks, t, event.decision, feedback)
        if ended is None:
            deferrer.observe(seen.id, seen.rewards, seen.cost)
        else:
            deferrer.stop(ended.id, ended.cost, ended.rewards)
        events += [*due, event, seen if ended is None else ended]
    return events


def rewards_of(deferrer: Deferrer, tasks: Tasks) -> dict[str, Floats]:
    return {name: tasks.rewards[:, i] for i, name in enumerate(deferrer.settings.deciders)}


def numbers(amount: float | Mapping[str, float]) -> Floats:
    """Return an amount as a number for each resource."""
    return np.array(list(amount.values()) if isinstance(amount, Mapping) else [amount])


@pytest.fixture
def picture_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with both data sets, re-shaped."""
    rng = np.random.default_rng(0)
    write(tmp_path / "imagenet16h" / "human_trials.csv.gz", people(rng))
    write(tmp_path / "imagenet16h" / "model_preds_epoch10.csv.gz", pictures(rng))
    write(tmp_path / "imagenet16h" / "model_preds_epoch00_noise80_125.csv.gz", pictures(rng, (80, 125)))
    write(tmp_path / "model_vs_human" / "trials.csv.gz", trials(rng))
    monkeypatch.setenv("DEFERKIT_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return Chromium; where it can be neither found nor installed, make leaves out the tests that are marked so.

    Not for the whole session: as long as it is there an event loop runs, and nobody else can run one.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path is not None, "chromium is not installed: make test installs it when run as root"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
