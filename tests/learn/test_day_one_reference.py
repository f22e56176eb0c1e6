"""The compiled learner with the rule of December 2026 takes the decisions of the plain transcription, task by task."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from deferkit import Budget, Deferrer
from tests.conftest import Floats, Tasks
from tests.reference import BOOSTS, DayOne, Limit, run

RULE = "2026.12"
N, D = 400, 3


class Case(NamedTuple):
    """A stream and the settings of the learner."""

    rewards: str = "0/1"  # "0/1", "graded", or "late": graded from two thirds of the stream on
    contexts: str = "plain"
    link: str = "auto"
    confidence: int | None = None
    share: float = 0.15  # of the tasks that the budget is for
    costs: str = "equal"
    expert: float = 0.9  # its mean reward
    others: tuple[float, ...] = ()  # mean rewards of further experts
    n: int = N


CASES = {
    "0/1 rewards": Case(),
    "0/1 rewards, costs": Case(costs="vary"),
    "0/1 rewards, long": Case(n=600, share=0.05),
    "0/1 rewards, fixed link": Case(link="logistic"),
    "graded rewards": Case("graded", costs="vary"),
    "graded rewards, fixed link": Case("graded", link="identity"),
    "late switch of the link": Case("late", costs="vary"),
    "confidence": Case(confidence=1, costs="vary"),
    "confidence, graded": Case("graded", confidence=1),
    "confidence, identity": Case("graded", link="identity", confidence=0),
    "confidence, late switch": Case("late", confidence=1),
    "outliers among the first": Case(contexts="first outliers"),
    "outliers among the first, graded": Case("graded", "first outliers"),
    "outliers later": Case(contexts="later outliers"),
    "absurd values, graded": Case("graded", "absurd", costs="vary"),
    "absurd values, confidence": Case(contexts="absurd", confidence=1),
    "ties": Case(contexts="ties"),
    "ties, graded": Case("graded", "ties"),
    "ties, confidence, small budget": Case(contexts="ties", confidence=1, share=0.05),
    "a constant": Case(contexts="alike"),
    "a bad expert": Case(expert=0.3, share=0.5),
    "a bad expert, graded": Case("graded", expert=0.3, share=0.5, n=600),
    "a large budget": Case(share=0.9),
    "three experts": Case(others=(0.6, 0.8), costs="vary"),
    "three experts, small budget": Case(others=(0.6, 0.8), share=0.05),
    "three experts, graded": Case("graded", others=(0.6, 0.95)),
    "three experts, late switch": Case("late", others=(0.85, 0.3), share=0.5),
    "five experts": Case(expert=0.4, others=(0.9, 0.4, 0.6, 0.8), share=0.1),
    "three bad experts": Case(expert=0.2, others=(0.3, 0.1), share=0.6),
}


def draw_contexts(kind: str, n: int, rng: np.random.Generator) -> Floats:
    """Return contexts: a constant, a score and a number of any sign."""
    contexts = np.column_stack([np.ones(n), rng.random(n) ** 0.5, rng.standard_normal(n)])
    if kind == "first outliers":
        contexts[[0, 4, 12, 40], 2] = [60.0, -200.0, 40.0, -25.0]
        contexts[2, 1] = 30.0
    elif kind == "later outliers":
        contexts[rng.random(n) < 0.04, 2] *= 30
        contexts[150:200:10, 1] = 7.0
    elif kind == "absurd":
        contexts[15::20, 2] = 1e50
        contexts[33::25, 1] = -1e6
    elif kind == "ties":
        contexts = np.column_stack([np.ones(n), rng.choice([0.5, 0.8, 1.0], n), np.ones(n)])
    elif kind == "alike":
        contexts = np.tile([1.0, 0.7, -0.2], (n, 1))
    return contexts


def draw(case: Case, seed: int) -> tuple[Floats, Floats, Floats]:
    """Return contexts, rewards [n, deciders] and costs [n]."""
    rng = np.random.default_rng(seed)
    contexts = draw_contexts(case.contexts, case.n, rng)
    chance = np.clip(0.3 + 0.6 * contexts[:, 1], 0.05, 0.95)
    means = np.column_stack([chance, *(np.full(case.n, mean) for mean in (case.expert, *case.others))])
    rewards = (rng.random(means.shape) < means).astype(float)
    graded = np.clip(means + 0.1 * rng.standard_normal(means.shape), 0, 1)
    first = {"0/1": case.n, "graded": 0, "late": 2 * case.n // 3}[case.rewards]
    rewards[first:] = graded[first:]
    costs = np.ones(case.n) if case.costs == "equal" else rng.uniform(0.2, 1.0, case.n) * (1 + contexts[:, 1] > 1.5)
    return contexts, rewards, costs


def make(case: Case, seed: int) -> tuple[Deferrer, DayOne]:
    total, experts = case.share * case.n, 1 + len(case.others)
    given: dict[str, Any] = {} if case.link == "auto" else {"link": case.link}
    if experts > 1:
        given["experts"] = [f"expert {k}" for k in range(1, 1 + experts)]
    deferrer = Deferrer(
        n_features=D,
        budget=Budget(total, horizon=case.n, max_cost=2),
        confidence=case.confidence,
        defaults=RULE,
        seed=seed,
        **given,
    )
    return deferrer, DayOne(D, Limit(total, case.n, 2.0), case.link, seed, case.confidence, experts)


class Scored(NamedTuple):
    """What the two learners say of a task."""

    route: int
    reason: str
    price: float
    numbers: list[float]  # estimates and widths of all rewards, and estimated costs


def decide_both(deferrer: Deferrer, learner: DayOne, x: Floats) -> tuple[Scored, Scored]:
    decision = deferrer.decide(x)
    names = deferrer.settings.deciders
    numbers = [decision.estimates[name] for name in names] + [decision.widths[name] for name in names]
    numbers += [decision.costs[name] for name in names[1:]]  # type: ignore[misc]
    made = Scored(names.index(decision.route), decision.reason, decision.price, numbers)  # type: ignore[arg-type]
    choice = learner.decide(x)
    return made, Scored(choice.route, choice.reason, choice.prices[0], learner.scores)


def revealed(feedback: str, route: int) -> set[int]:
    """Return the deciders whose rewards become known."""
    return {"full": {0, route}, "bandit": {route}, "reviewed": {0, route} if route > 0 else set()}[feedback]


def assert_same(made: list[Scored], expected: list[Scored]) -> None:
    assert [each[:2] for each in made] == [each[:2] for each in expected]
    np.testing.assert_allclose([each.price for each in made], [each.price for each in expected], rtol=1e-6)
    np.testing.assert_allclose(
        [each.numbers for each in made], [each.numbers for each in expected], rtol=1e-6, atol=1e-9
    )


def play(case: Case, feedback: str, seed: int) -> tuple[list[Scored], list[Scored], Deferrer, DayOne]:
    """Let both learners decide a stream, where each outcome is known before the next task."""
    deferrer, learner = make(case, seed)
    contexts, rewards, costs = draw(case, seed)
    made, expected = [], []
    for t, x in enumerate(contexts):
        ours, theirs = decide_both(deferrer, learner, x)
        made.append(ours)
        expected.append(theirs)
        if ours.route != theirs.route:
            break
        known = {k: float(rewards[t, k]) for k in revealed(feedback, ours.route)}
        cost = float(costs[t]) if ours.route > 0 else None
        if known or cost is not None:
            deferrer.observe(t, {deferrer.settings.deciders[k]: y for k, y in known.items()}, cost)
            learner.observe(t, known, None if cost is None else np.array([cost]))
    return made, expected, deferrer, learner


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("feedback", ["full", "bandit", "reviewed"])
@pytest.mark.parametrize("name", CASES)
def test_a_stream_is_decided_as_the_reference_decides_it(name: str, feedback: str, seed: int) -> None:
    made, expected, deferrer, learner = play(CASES[name], feedback, seed)
    assert_same(made, expected)
    assert deferrer.summary().spent == pytest.approx(learner.spent[0])


def play_late(case: Case, seed: int) -> tuple[list[Scored], list[Scored]]:
    """Let both learners decide while rewards and costs arrive late, in parts and in any order."""
    rng = np.random.default_rng(seed)
    deferrer, learner = make(case, seed)
    contexts, rewards, costs = draw(case, seed)
    made, expected = [], []
    arrivals: list[tuple[int, int, int | None]] = []  # when it comes, the task, and the decider of a reward
    for t, x in enumerate(contexts):
        ours, theirs = decide_both(deferrer, learner, x)
        made.append(ours)
        expected.append(theirs)
        if ours.route != theirs.route:
            break
        parts = [*revealed("full", ours.route), *([None] if ours.route > 0 else [])]
        arrivals += [(t + int(rng.integers(25)), t, part) for part in parts]
        for due, task, part in arrivals:
            if due == t and part is None:
                deferrer.observe(task, cost=float(costs[task]))
                learner.observe(task, {}, costs[[task]])
            elif due == t and part is not None:
                deferrer.observe(task, {deferrer.settings.deciders[part]: float(rewards[task, part])})
                learner.observe(task, {part: float(rewards[task, part])}, None)
    return made, expected


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_late_outcomes_are_taken_in_as_the_reference_takes_them_in(name: str, seed: int) -> None:
    assert_same(*play_late(CASES[name], seed))


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
def test_the_streams_meet_every_part_of_the_rule() -> None:
    """Else an agreement would say nothing of a part."""
    met: dict[str, int] = dict.fromkeys(
        ["boost", "full boost", "capped boost", "lowered price", "noise at 1", "wait", "team"], 0
    )

    class Watched(DayOne):
        def move_prices(self) -> None:
            super().move_prices()
            n = sum(len(self.rewards[k].responses) for k in self.costs)
            met["team"] += self.link == "identity" and len(self.observed()) > 1
            met["boost"] += 1 < self.boost < BOOSTS[-1]
            met["full boost"] += self.boost == BOOSTS[-1]
            met["capped boost"] += self.boost > 1 and BOOSTS[-1] * (5 * self.d / max(n, 1)) ** 0.75 < self.boost
            met["lowered price"] += bool(self.prices[0] < self.solved[0])
            met["noise at 1"] += self.link == "logistic" and self.rewards[0].scaled_error > len(
                self.rewards[0].responses
            )

        def waits(self, x: Floats, available: Sequence[int]) -> bool:
            waits = super().waits(x, available)
            met["wait"] += waits
            return waits

    streams = [(name, 0) for name in ("0/1 rewards", "ties", "a bad expert, graded", "three experts, graded")]
    for name, seed in (*streams, ("five experts", 2)):
        case = CASES[name]
        contexts, rewards, costs = draw(case, seed)
        experts = rewards.shape[1] - 1
        learner = Watched(D, Limit(case.share * case.n, case.n, 2.0), case.link, seed, case.confidence, experts)
        run(learner, Tasks(contexts, rewards, np.tile(costs[:, None, None], (1, experts, 1))), "full")
    assert all(met.values()), met
