"""Job process of what-if questions."""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from deferkit.errors import DeferkitError
from deferkit.serve.api.reports import ValueWithError, WhatIfRow
from deferkit.serve.audit.counterfactual.estimate import (
    NOTEWORTHY,
    DecisionLog,
    DoublyRobust,
    ModelVariance,
    OutcomeImputer,
    Value,
    feedback_of,
)
from deferkit.serve.audit.counterfactual.scenario import (
    Alternative,
    Scenario,
    ScenarioRun,
    TimedRecord,
    chunks,
    logged_budgets,
    scenario_of,
)
from deferkit.serve.audit.replay import logged_records, replay
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.policy import Policy
from deferkit.serve.storage.open_store import store_to_replay
from deferkit.serve.storage.store import Store
from deferkit.types import Amount

Floats = NDArray[np.float64]
FEW = 10  # explored tasks: fewer give no error to rely on


class Row(NamedTuple):
    """A budget with its results, logged or estimated."""

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
    routes: list[bytes]  # of each alternative, by task, as an index of the deciders

    @property
    def basis(self) -> str:
        """What the rewards rest on."""
        if self.floor > 0:
            return f"from logged propensities (explore floor {100 * self.floor:.3g} %)"
        return "model-based: nothing was explored on purpose, so trust it as far as the estimates"


def what_if(
    log: Iterable[TimedRecord],
    policy: Policy,
    decision_log: DecisionLog,
    scenarios: Sequence[Scenario],
    progress: Callable[[int], None] = lambda _: None,
) -> WhatIf:
    """Replay a log of records and times (in microseconds) with other budgets.

    `policy` is the state at its end, `decision_log` has all its records.
    """
    facts = decision_log.facts()
    coefficients = [policy.learner.coefficients()[name] for name in decision_log.deciders]
    known, link = DoublyRobust(facts, len(coefficients[0].theta)), policy.learner.link
    views = policy.learner.settings.views
    imputer, feedback = OutcomeImputer(policy, facts), feedback_of(decision_log, facts)
    max_logged_cost = dict(
        zip(decision_log.resources, np.nan_to_num(facts.costs).max(axis=0, initial=0.0).tolist(), strict=True)
    )
    log = iter(log)
    _, created = next(log)
    assert isinstance(created, records.CreatedRecord)
    runs = []
    for each in scenarios:
        learning = created.spec.learning_as(each.learning or policy.spec)
        spec = each.spec(learning, decisions=len(decision_log), max_logged_cost=max_logged_cost)
        model_variances = (ModelVariance(coefficients, link, views), ModelVariance(coefficients, link, views))
        runs.append(ScenarioRun(Alternative(spec, each, feedback), known, model_variances))
    model_variance = ModelVariance(coefficients, link, views)
    for chunk in chunks(log, imputer):
        known.impute(chunk.first, chunk.estimated)
        if not known.own_rewards_suffice:
            chunk.model_variance(model_variance, known, known.propensities[chunk.first : chunk.first + len(chunk.told)])
        for run in runs:
            run.replay(chunk)
        progress(len(chunk.log))
    rows = [as_it_was(policy, known, model_variance.variance(len(decision_log), known.noise))]
    remarks = [*renewing_remarks(policy), *remarks_of(known, decision_log)]
    for run in runs:
        row, said = row_of(run, rows[0], decision_log)
        rows.append(row)
        remarks += said
    return WhatIf(rows, len(decision_log), decision_log.floor, remarks, [bytes(run.other.routes) for run in runs])


def as_it_was(policy: Policy, known: DoublyRobust, model_variance: float) -> Row:
    """Return the row of the log itself."""
    value = (
        None
        if len(known.without_rewards(taken_routes(known))) or not len(known.routes)
        else known.logged_value(model_variance)
    )
    return Row(
        budget="as it was",
        totals={
            name: None if total is None else total / MICRO
            for name, total in logged_budgets(policy.spec, policy.accounts).items()
        },
        asked=policy.learner.figures().deferral_rate,
        spent=spending_by_resource(policy),
        price=policy.learner.figures().price,
        reward=value,
        difference=None if value is None else Value(0.0, 0.0),
        unsupported=0.0,
    )


def row_of(run: ScenarioRun, done: Row, decision_log: DecisionLog) -> tuple[Row, list[str]]:
    """Return the row of an alternative, and remarks on its reliability."""
    other, known = run.other, run.known
    of_difference, of_reward = (each.variance(len(decision_log), known.noise) for each in run.model_variances)
    estimate = known.estimate(run.propensities, decision_log.floor, (of_difference, of_reward))
    without_rewards = known.without_rewards(run.propensities - known.propensities)
    covered = done.reward is not None and not len(without_rewards)
    row = Row(
        budget=other.scenario.text,
        totals={name: None if total is None else total / MICRO for name, total in other.scenario.totals.items()},
        asked=other.policy.learner.figures().deferral_rate,
        spent=spending_by_resource(other.policy),
        price=other.policy.learner.figures().price,
        reward=estimate.reward if covered else None,
        difference=estimate.difference if covered else None,
        unsupported=estimate.unsupported,
    )
    said = []
    if done.reward is not None and not covered:
        said.append(f"{row.budget}: no reward of {names(decision_log, without_rewards)} is known.")
    if covered and decision_log.floor > 0 and estimate.unsupported > NOTEWORTHY:
        said.append(
            f"{row.budget}: {100 * estimate.unsupported:.0f} % of the choices rest on estimates alone, because nobody"
            " could have been asked when those tasks came."
        )
    if covered and decision_log.floor > 0 and estimate.explored is not None and estimate.explored < FEW:
        said.append(f"{row.budget}: {estimate.explored} explored tasks tell of it, which is few: its error is rough.")
    return row, said


def renewing_remarks(policy: Policy) -> list[str]:
    """Return remarks on budgets that renew: their totals are allowances."""
    return [
        f"The budget of {name} renews (every {each.every}): it is what each period gets; spent is that of all periods."
        for name, each in policy.spec.budget.items()
        if each.every is not msgspec.UNSET
    ]


def remarks_of(known: DoublyRobust, decision_log: DecisionLog) -> list[str]:
    """Return remarks on rewards that are missing in the log."""
    if not len(decision_log):
        return ["The log has no decisions."]
    if len(without_rewards := known.without_rewards(taken_routes(known))):
        return [f"No reward of {names(decision_log, without_rewards)} is known, so rewards cannot be estimated."]
    share = float(known.known[np.arange(len(known.routes)), known.routes].mean())
    if share < 1 - NOTEWORTHY:
        return [f"The reward of {100 * share:.0f} % of the decisions is known; the others are assumed to be similar."]
    return []


def taken_routes(known: DoublyRobust) -> Floats:
    """Return the indicators [n, K] of the routes that were taken."""
    return np.eye(known.propensities.shape[1])[known.routes]


def names(decision_log: DecisionLog, places: Iterable[int]) -> str:
    """Return the names of some deciders."""
    return " and ".join(decision_log.deciders[place] for place in places)


def spending_by_resource(policy: Policy) -> dict[str, float]:
    """Return the cost so far by resource, in units."""
    return {name: (each.posted + each.suspense) / MICRO for name, each in policy.accounts.items()}


NICE = 10
STEP = 0.01  # of the progress that is told


class WhatIfOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which log to replay, with which budgets."""

    store: str
    tenant: str
    policy: str
    budgets: list[str]


class WhatIfNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress and result of the job process."""

    progress: float = 0.0
    rows: list[WhatIfRow] | None = None
    basis: str | None = None
    remarks: list[str] = []
    error: str | None = None


def reply_row(row: Row) -> WhatIfRow:
    """Return a row for a reply."""
    fields = row._asdict() | {"reward": value_of(row.reward), "difference": value_of(row.difference)}
    return WhatIfRow(**fields)


def value_of(value: Value | None) -> ValueWithError | None:
    """Return a mean with its error for a reply."""
    return None if value is None else ValueWithError(value=value.mean, error=value.se)


class Progress:
    """Reports the progress of the two passes through the log."""

    def __init__(self) -> None:
        self._rows = 1
        self._done = 0
        self._reported = 0.0

    def begin(self, rows: int) -> None:
        """Set the number of rows of the log."""
        self._rows = max(1, rows)

    def advance(self, rows: int) -> None:
        """Add rows that were read; write a message after each per cent."""
        self._done += rows
        share = min(1.0, self._done / (2 * self._rows))
        if share >= self._reported + STEP:
            self._reported = share
            write_message(WhatIfNews(progress=share))


def write_message(news: WhatIfNews) -> None:
    """Write a line of JSON to stdout."""
    sys.stdout.buffer.write(msgspec.json.encode(news) + b"\n")
    sys.stdout.buffer.flush()


def compute(store: Store, order: WhatIfOrder, progress: Progress) -> WhatIf:
    """Rebuild a policy from its log, then replay the log with other budgets."""
    decisions = DecisionLog()
    report = replay(
        store,
        order.tenant,
        order.policy,
        started=progress.begin,
        progress=progress.advance,
        watch=decisions.see,
    )
    if report.policy is None or report.faults:
        raise DeferkitError(f"The log of the policy is not what was written: {' '.join(report.faults)}")
    logged = logged_budgets(report.policy.spec, report.policy.accounts)
    scenarios = [scenario_of(text, logged) for text in dict.fromkeys(order.budgets)]
    log = logged_records(store, report.row)
    return what_if(log, report.policy, decisions, scenarios, progress=progress.advance)


def end_with_input() -> None:
    """Exit when stdin is closed: the service has stopped, or has cancelled the job."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Read an order, and carry it out."""
    os.nice(NICE)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=WhatIfOrder)
    threading.Thread(target=end_with_input, daemon=True).start()
    try:
        with store_to_replay(order.store) as store:
            found = compute(store, order, Progress())
        write_message(
            WhatIfNews(
                progress=1.0, rows=[reply_row(row) for row in found.rows], basis=found.basis, remarks=found.remarks
            )
        )
    except DeferkitError as error:
        write_message(WhatIfNews(error=str(error)))


if __name__ == "__main__":
    main()
