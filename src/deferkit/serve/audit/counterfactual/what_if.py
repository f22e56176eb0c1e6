"""What would another budget have done? The log is gone through again by a fresh policy with that budget."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve.audit.counterfactual.alternative import Alternative
from deferkit.serve.audit.counterfactual.estimate import NOTEWORTHY, Doubt, Known, Value
from deferkit.serve.audit.counterfactual.imputation import Beliefs, feedback_of
from deferkit.serve.audit.counterfactual.logged_decisions import Past
from deferkit.serve.audit.counterfactual.progress import Course, pieces
from deferkit.serve.audit.counterfactual.scenario import Scenario
from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.policy import Policy
from deferkit.types import Amount

Floats = NDArray[np.float64]
FEW = 10  # explored tasks: fewer give no error to rely on


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


def what_if(
    log: Iterable[log_records.AnyRecord],
    policy: Policy,
    past: Past,
    scenarios: Sequence[Scenario],
    progress: Callable[[int], None] = lambda _: None,
) -> WhatIf:
    """Go through a log with other budgets; `policy` is where the log ends, `past` has seen all of it."""
    facts = past.facts()
    coefficients = [policy.learner.coefficients()[name] for name in past.deciders]
    known = Known(facts, len(coefficients[0].theta))
    beliefs, feedback = Beliefs(policy, facts), feedback_of(past, facts)
    dearest = dict(zip(past.resources, np.nan_to_num(facts.costs).max(axis=0, initial=0.0).tolist(), strict=True))
    log = iter(log)
    created = next(log)
    assert isinstance(created, log_records.Created)
    courses = []
    for each in scenarios:
        spec = each.spec(created.spec, decisions=len(past), dearest=dearest)
        doubts = (Doubt(coefficients, spec.link), Doubt(coefficients, spec.link))
        courses.append(Course(Alternative(spec, each, feedback), known, doubts))
    doubt = Doubt(coefficients, created.spec.link)
    for piece in pieces(log, beliefs):
        known.believe(piece.first, piece.estimated)
        if not known.at_first_hand:
            piece.doubt(doubt, known, known.chances[piece.first : piece.first + len(piece.told)])
        for course in courses:
            course.go(piece)
        progress(len(piece.log))
    rows = [as_it_was(policy, known, doubt.variance(len(past), known.noise))]
    remarks = remarks_of(known, past)
    for course in courses:
        row, said = row_of(course, rows[0], past)
        rows.append(row)
        remarks += said
    return WhatIf(rows, len(past), past.floor, remarks)


def as_it_was(policy: Policy, known: Known, doubt: float) -> Row:
    """Return the row of what was done."""
    value = None if len(known.strangers(taken(known))) or not len(known.routes) else known.done(doubt)
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
    of_difference, of_reward = (each.variance(len(past), known.noise) for each in course.doubts)
    outlook = known.outlook(course.chances, past.floor, (of_difference, of_reward))
    strangers = known.strangers(course.chances - known.chances)
    covered = done.reward is not None and not len(strangers)
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
    if done.reward is not None and not covered:
        said.append(f"{row.budget}: no reward of {names(past, strangers)} is known.")
    if covered and past.floor > 0 and outlook.unsupported > NOTEWORTHY:
        said.append(
            f"{row.budget}: {100 * outlook.unsupported:.0f} % of the choices rest on estimates alone, because nobody"
            " could have been asked when those tasks came."
        )
    if covered and past.floor > 0 and outlook.explored is not None and outlook.explored < FEW:
        said.append(f"{row.budget}: {outlook.explored} explored tasks tell of it, which is few: its error is rough.")
    return row, said


def remarks_of(known: Known, past: Past) -> list[str]:
    """Say what is missing in the log."""
    if not len(past):
        return ["The log has no decisions."]
    if len(strangers := known.strangers(taken(known))):
        return [f"No reward of {names(past, strangers)} is known, so that nothing can be said of rewards."]
    share = float(known.known[np.arange(len(known.routes)), known.routes].mean())
    if share < 1 - NOTEWORTHY:
        return [f"The reward of {100 * share:.0f} % of the decisions is known; the others are taken to be like them."]
    return []


def taken(known: Known) -> Floats:
    """Return who decided [n, K]: 1 for the route that was taken."""
    return np.eye(known.chances.shape[1])[known.routes]


def names(past: Past, places: Iterable[int]) -> str:
    """Return the names of some deciders."""
    return " and ".join(past.deciders[place] for place in places)


def spent(policy: Policy) -> dict[str, float]:
    """Return what was paid, by resource."""
    return {name: (each.posted + each.suspense) / MICRO for name, each in policy.accounts.items()}
