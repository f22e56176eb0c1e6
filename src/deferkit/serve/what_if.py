"""What would another budget have done? The log is gone through again by a fresh policy with that budget."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve import records
from deferkit.serve.alternative import Alternative, Belief, Feedback
from deferkit.serve.estimate import Doubt, Known, Value
from deferkit.serve.money import MICRO, Micros
from deferkit.serve.past import Facts, Past
from deferkit.serve.policy import Policy
from deferkit.serve.scenario import Scenario
from deferkit.types import Amount

Floats = NDArray[np.float64]
PAGE = 1000  # decisions that are gone through at once
USUALLY = 0.5  # a reward is expected to be reported if it was more often than not
FEW = 10  # explored tasks: fewer give no error to rely on
NOTEWORTHY = 0.01  # a share that has to be mentioned


class Row(NamedTuple):
    """A budget, and what came or would have come of it."""

    budget: str  # as it was asked for; "as it was" for the log itself
    totals: dict[str, float | None]  # by resource; None has no end
    asked: float  # the share of tasks that went to an expert
    spent: dict[str, float]
    price: Amount  # the last one
    reward: Value | None  # of a task; None if no rewards are known
    difference: Value | None  # from what was done
    unsupported: float  # the share of choices that rest on the estimates alone


class WhatIf(NamedTuple):
    """The log and its alternatives."""

    rows: list[Row]  # the first is what was done
    decisions: int
    floor: float
    remarks: list[str]

    @property
    def basis(self) -> str:
        """What the rewards rest on."""
        if self.floor > 0:
            return f"from logged propensities (explore floor {100 * self.floor:.3g} %)"
        return "model-based: nothing was explored on purpose, so trust it as far as the estimates"


class Beliefs:
    """What the policy believes of tasks at the end of its log; what is known of them goes before."""

    def __init__(self, policy: Policy, facts: Facts) -> None:
        self.learner = policy.learner
        self.deciders, self.resources = policy.spec.deciders, policy.spec.resources
        self.facts = facts
        self.bounds = self.learner.settings.reward_bounds
        self.caps = [high for _, high in self.learner.settings.cost_bounds]

    def of(self, page: Sequence[records.Decided]) -> tuple[Floats, list[Belief]]:
        """Return the estimated rewards [n, K] of a page of tasks, and what to tell of each of them."""
        scores = self.learner.score([each.context for each in page])
        estimated = np.column_stack([scores.estimates[name] for name in self.deciders]).clip(*self.bounds)
        first = page[0].id
        known = self.facts.rewards[first : first + len(page)]
        rewards = np.where(np.isnan(known), estimated, known)
        costs = {name: np.clip(scores.costs[name], 0.0, self.caps) for name in self.deciders[1:]}
        beliefs = []
        for i, each in enumerate(page):
            paid = {name: self._micros(each, name, costs[name][i].tolist()) for name in self.deciders[1:]}
            beliefs.append(Belief(dict(zip(self.deciders, rewards[i].tolist(), strict=True)), paid))
        return estimated, beliefs

    def _micros(self, task: records.Decided, expert: str, costs: list[float]) -> Micros:
        if task.announced is not None:
            told = task.costs[expert]
            costs = [told] if isinstance(told, float) else list(told.values())
        return {name: round(cost * MICRO) for name, cost in zip(self.resources, costs, strict=True)}


def feedback_of(past: Past, facts: Facts) -> Feedback:
    """Return what is usually heard of decisions."""
    shares, taken = facts.reported(), np.bincount(facts.routes, minlength=len(past.deciders))
    always = (~np.isnan(facts.rewards)).mean(axis=0) if len(past) else np.zeros(len(past.deciders))
    reported = {}
    for route, name in enumerate(past.deciders):
        share = shares[route] if taken[route] else always
        heard = [each for k, each in enumerate(past.deciders) if share[k] >= USUALLY]
        reported[name] = tuple(heard if taken[route] or name in heard else [*heard, name])
    by_name = zip(past.deciders, facts.delays, strict=True)
    return Feedback(dict(by_name), reported, dict(zip(past.deciders, facts.expiry().tolist(), strict=True)))


def pages(log: Iterable[records.AnyRecord]) -> Iterator[tuple[list[records.AnyRecord], list[records.Decided]]]:
    """Yield a log in pieces, each with the decisions in it."""
    piece: list[records.AnyRecord] = []
    decided: list[records.Decided] = []
    for record in log:
        piece.append(record)
        if isinstance(record, records.Decided):
            decided.append(record)
        if len(decided) == PAGE:
            yield piece, decided
            piece, decided = [], []
    yield piece, decided


class Course:
    """One alternative on its way through the log."""

    def __init__(self, other: Alternative, known: Known, doubt: Doubt) -> None:
        self.other = other
        self.known = known
        self.doubt = doubt
        self.chances = np.zeros_like(known.chances)

    def go(self, piece: list[records.AnyRecord], told: list[Belief], estimated: Floats, vectors: Floats) -> None:
        """Go through a piece of the log; estimates and contexts are those of the decisions in it."""
        tasks = iter(told)
        chosen: list[list[float]] = []
        first = 0
        for record in piece:
            if isinstance(record, records.Decided):
                first = first if chosen else record.id
                chosen.append(self.other.decide(record, next(tasks)))
            else:
                self.other.see(record)
        if chosen:
            self.chances[first : first + len(chosen)] = chosen
            self.doubt.add(self.known.unsupported(first, np.array(chosen)), vectors, estimated)


def what_if(
    log: Iterable[records.AnyRecord],
    policy: Policy,
    past: Past,
    scenarios: Sequence[Scenario],
    progress: Callable[[int], None] = lambda _: None,
) -> WhatIf:
    """Go through a log with other budgets; `policy` is where the log ends, `past` has seen all of it."""
    facts = past.facts()
    known, beliefs, feedback = Known(facts), Beliefs(policy, facts), feedback_of(past, facts)
    dearest = dict(zip(past.resources, np.nan_to_num(facts.costs).max(axis=0, initial=0.0).tolist(), strict=True))
    coefficients = [policy.learner.coefficients()[name] for name in past.deciders]
    log = iter(log)
    created = next(log)
    assert isinstance(created, records.Created)
    courses = []
    for each in scenarios:
        spec = each.spec(created.spec, decisions=len(past), dearest=dearest)
        courses.append(Course(Alternative(spec, each, feedback), known, Doubt(coefficients, spec.link)))
    for piece, decided in pages(log):
        if decided:
            estimated, told = beliefs.of(decided)
            known.believe(decided[0].id, estimated)
            vectors = policy.learner.vectors([each.context for each in decided])
        else:
            estimated, told, vectors = np.zeros((0, len(past.deciders))), [], np.zeros((0, 0))
        for course in courses:
            course.go(piece, told, estimated, vectors)
        progress(len(piece))
    rows = [as_it_was(policy, known)]
    remarks = remarks_of(known)
    for course in courses:
        row, said = row_of(course, rows[0], past)
        rows.append(row)
        remarks += said
    return WhatIf(rows, len(past), past.floor, remarks)


def as_it_was(policy: Policy, known: Known) -> Row:
    """Return the row of what was done."""
    value = known.done() if len(known.routes) and known.covers(known.chances) else None
    return Row(
        budget="as it was",
        totals={name: None if each.total is None else each.total / MICRO for name, each in policy.accounts.items()},
        asked=policy.learner.summary().deferral_rate,
        spent=spent(policy),
        price=policy.learner.summary().price,
        reward=value,
        difference=None if value is None else Value(0.0, 0.0),
        unsupported=0.0,
    )


def row_of(course: Course, done: Row, past: Past) -> tuple[Row, list[str]]:
    """Return the row of an alternative, and what has to be said of it."""
    other, known = course.other, course.known
    outlook = known.outlook(course.chances, past.floor, course.doubt.variance(len(past), known.noise))
    covered = done.reward is not None and known.covers(course.chances)
    row = Row(
        budget=other.scenario.text,
        totals={name: None if total is None else total / MICRO for name, total in other.scenario.totals.items()},
        asked=other.policy.learner.summary().deferral_rate,
        spent=spent(other.policy),
        price=other.policy.learner.summary().price,
        reward=outlook.reward if covered else None,
        difference=outlook.difference if covered else None,
        unsupported=outlook.unsupported,
    )
    said = []
    if past.floor > 0 and outlook.unsupported > NOTEWORTHY:
        said.append(
            f"{row.budget}: {100 * outlook.unsupported:.0f} % of the choices rest on estimates alone, because nobody"
            " could have been asked when those tasks came."
        )
    if past.floor > 0 and outlook.informing < FEW and outlook.difference.se > 0:
        said.append(f"{row.budget}: {outlook.informing} explored tasks tell of it, which is few: its error is rough.")
    return row, said


def remarks_of(known: Known) -> list[str]:
    """Say what is missing in the log."""
    if not len(known.routes):
        return ["The log has no decisions."]
    if not known.covers(known.chances):
        return ["Rewards are not known of everyone who decided, so that nothing can be said of rewards."]
    share = float(known.known[np.arange(len(known.routes)), known.routes].mean())
    if share < 1 - NOTEWORTHY:
        return [f"The reward of {100 * share:.0f} % of the decisions is known; the others are taken to be like them."]
    return []


def spent(policy: Policy) -> dict[str, float]:
    """Return what was paid, by resource."""
    return {name: (each.posted + each.suspense) / MICRO for name, each in policy.accounts.items()}
