"""Learners that live through every kind of event, and a fingerprint of their state."""

import hashlib
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit import Budget, Deferrer, Encoder, Exploration, Pacing, Run
from tests.conftest import SETTINGS, Tasks, draw_tasks

INTERVALS = Exploration(rule="interval")  # what that version had
GROUPS = {
    "price": ["dual", "pacing_constant"],
    "budget": [
        *("total", "horizon", "max_cost", "spent", "reserved"),
        *("overrun", "largest_cost", "cost_sum", "cost_n", "owed"),
    ],
    "estimates": [
        *("view", "shares_design", "theta", "moment", "reward_power"),
        *("squared_error", "n_observed", "next_refit"),
    ],
    "precision": ["inverse", "precision", "rounding", "stash", "n_stashed", "drifted", "n_absorbed"],
    "decisions": ["context", "held", "reward", "cost", "route", "status", "n_routed"],
}


SINCE_VERSION_4 = ("n_open", "n_stopped", "n_backwards")  # counters
SINCE_VERSION_5 = ("link_state", "n_in_ranks", "spending_told", "n_unavailable")


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def fingerprint(deferrer: Deferrer) -> dict[str, str]:
    """Return a digest for each part of the state; what carries no meaning is left out."""
    ledger = deferrer._ledger
    state = {name: np.array(array) for name, array in ledger.state().items()}
    lower = np.tril(np.ones(state["precision"].shape[1:]))
    for name in ("precision", "rounding"):  # the upper half is not kept up to date
        state[name] = state[name] * lower
    waiting = np.arange(state["stash"].shape[1])[None, :, None] < state["n_stashed"][:, None, None]
    state["stash"] = np.where(waiting, state["stash"], 0.0)
    found = {
        group: digest(*(name.encode() + np.ascontiguousarray(state[name]).tobytes() for name in names))
        for group, names in GROUPS.items()
    }
    later = ("n_model_seen", "n_model_due", "heard_to", "n_heard", "delay_sum", *SINCE_VERSION_4, *SINCE_VERSION_5)
    counted = {name: count for name, count in ledger.counters().items() if name not in later}
    counters = json.dumps(counted, sort_keys=True).encode()
    samples: NDArray[Any] = state.get("samples", np.zeros(0))
    overflow = json.dumps(sorted(ledger.overflow.items())).encode()
    return found | {"counters": digest(counters, samples.tobytes(), overflow)}


def run_digest(run: Run) -> str:
    arrays = (run.routes, run.reasons, run.propensities, run.prices, run.rewards, run.costs)
    return digest(*(array.tobytes() for array in arrays))


def lives() -> Iterator[tuple[str, Deferrer]]:
    """Return learners without a past, by name."""
    for link in ("identity", "logistic"):
        for resources in (1, 2):
            budget = {f"r{i}": Budget(30 + i, horizon=400, max_cost=1.0) for i in range(resources)}
            yield (
                f"{link}, {resources} resources",
                Deferrer(
                    n_features=5,
                    budget=budget if resources > 1 else budget["r0"],
                    experts=["ann", "bo"],
                    link=link,
                    memory=60,
                    pacing=Pacing(window=40),
                    explore_floor=0.1,
                    exploration=INTERVALS,
                    seed=5,
                ),
            )
    encoder = Encoder(numbers=["amount", "age"], categories={"country": ["de", "fr"], "kind": 3})
    yield (
        "encoder",
        Deferrer(encoder=encoder, budget=Budget(30, horizon=400, max_cost=1.0), exploration=INTERVALS, seed=2),
    )
    trees = SETTINGS["trees"]["embedding"]
    budget_of_trees = Budget(30, horizon=400, max_cost=1.0)
    yield (
        "trees",
        Deferrer(n_features=5, budget=budget_of_trees, embedding=trees, exploration=INTERVALS, experts=["ann", "bo"]),
    )


def length_of(x: NDArray[np.float64]) -> float:
    """Return the length of a vector, its squares added one by one with fused multiply-adds.

    The dot products of BLAS add in another order on other processors, and the digests are of these contexts.
    """
    squares = 0.0
    for value in map(Fraction, x.tolist()):
        squares = float(Fraction(squares) + value * value)
    return math.sqrt(squares)


def context_of(deferrer: Deferrer, rng: np.random.Generator) -> Any:
    x = rng.random(5)
    if deferrer._contexts.encoder is None:
        return (x / length_of(x)).tolist()
    return {
        "amount": None if x[0] < 0.1 else float(100 * x[1]),
        "age": int(90 * x[2]),
        "country": ["de", "fr", "it", None][int(4 * x[3])],
        "kind": "abcdef"[int(6 * x[4])],
    }


def amount(deferrer: Deferrer, values: list[float]) -> Any:
    names = deferrer.settings.resources
    return values[0] if len(names) == 1 else dict(zip(names, values, strict=True))


def live(deferrer: Deferrer, rng: np.random.Generator, n: int, *, binary: bool = False) -> list[Any]:
    """Take a learner through decisions of every sort and outcomes in any order; return what it decided.

    Rewards are right or wrong with the logistic link, or if `binary`; else graded.
    """
    log: list[Any] = []
    pending: list[Any] = []
    settings = deferrer.settings
    experts, n_resources, logistic = settings.experts, len(settings.resources), binary or settings.link == "logistic"
    for t in range(n):
        x = context_of(deferrer, rng)
        what = rng.random(4)
        given: dict[str, Any] = {}
        if what[0] < 0.1:
            given["available"] = [experts[int(len(experts) * what[1])]]
        elif what[0] < 0.2:
            given["cost"] = {experts[0]: amount(deferrer, [round(float(what[1]), 3)] * n_resources)}
        elif what[0] < 0.25:
            left = deferrer.summary().left
            least = min(left.values()) if isinstance(left, dict) else left
            given["force"] = experts[-1] if least > 1 else "model"  # type: ignore[operator]
        decision = deferrer.decide(x, **given)
        price = decision.price if n_resources == 1 else list(decision.price.values())  # type: ignore[union-attr]
        log.append((decision.route, decision.reason, decision.propensity, price))
        pending.append(decision)
        while pending and rng.random() < 0.6:
            old = pending.pop(int(rng.integers(len(pending))))
            y = rng.random(3)
            rewards = {}
            if y[0] < 0.8:
                rewards[old.route] = float(y[1] < 0.7) if logistic else round(float(y[1]), 4)
            if y[0] < 0.3:
                rewards["model"] = rewards.get("model", float(y[2] < 0.5))
            known = None
            if old.route != "model" and y[0] > 0.1:
                known = [round(0.9 * float(v), 4) for v in rng.random(n_resources)]
            if not deferrer.remembers(old.id):
                continue
            if y[0] < 0.1 and old.route != "model":
                deferrer.expire(old.id)
                continue
            deferrer.observe(old.id, rewards, None if known is None else amount(deferrer, known))
            if y[2] < 0.1 and rewards:
                name = next(iter(rewards))
                deferrer.correct(old.id, {name: 1.0 - rewards[name] if logistic else rewards[name] / 2})
            if y[2] > 0.9 and known is not None and deferrer.remembers(old.id):
                deferrer.correct(old.id, cost=amount(deferrer, [v / 2 for v in known]))
        if t == n // 2:
            total = deferrer.summary().total
            more = {k: v + 5 for k, v in total.items()} if isinstance(total, dict) else total + 5  # type: ignore[operator]
            deferrer.change_budget(more)
            if deferrer._contexts.encoder is None and settings.embedding is None:
                warm_start(deferrer, rng)
    return log


def warm_start(deferrer: Deferrer, rng: np.random.Generator) -> None:
    settings = deferrer.settings
    contexts = np.array([context_of(deferrer, rng) for _ in range(30)])
    rewards = {name: (rng.random(30) < 0.5).astype(float) for name in settings.deciders}
    single = len(settings.resources) == 1
    cost: Any = rng.random(30) if single else {name: rng.random(30) for name in settings.resources}
    deferrer.warm_start(contexts, rewards, expert=settings.experts[0], cost=cost)


LONG: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (7, 5000, {}),
    (52, 3000, {"pacing": "gradient"}),
    (6, 3000, {"link": "logistic"}),
    (3, 2500, {"link": "logistic", "cost_link": "logistic", "pacing": "adaptive"}),
)


def long_runs() -> Iterator[tuple[str, Deferrer, Tasks]]:
    """Return streams that are long enough for stashes to be checked, refactored and refitted."""
    for d, n, given in LONG:
        tasks = draw_tasks(n, d, binary=given.get("link") == "logistic", seed=d)
        budget = Budget(0.1 * n, horizon=n, max_cost=1)
        yield (
            f"{d} features, {n} tasks, {given}",
            Deferrer(n_features=d, budget=budget, seed=d, exploration=INTERVALS, **given),
            tasks,
        )
    tasks = draw_tasks(1500, 4, seed=1)
    tasks.contexts[700:] *= 1e7
    small = Budget(150, horizon=1500, max_cost=1)
    yield "contexts that grow by 1e7", Deferrer(n_features=4, budget=small, exploration=INTERVALS), tasks
    yield "paper", Deferrer.paper(n_features=4, budget=small), draw_tasks(1500, 4, seed=2)
    budget = Budget(40, horizon=300, max_cost=1)
    logistic = Deferrer.paper(n_features=3, link="logistic", warm_up=30, budget=budget)
    yield "paper, logistic", logistic, draw_tasks(300, 3, binary=True, seed=4)
