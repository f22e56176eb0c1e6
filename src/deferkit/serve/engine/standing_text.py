"""Where a policy stands, in one sentence."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from deferkit.periods import show_time
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.policy_spec import BudgetSpec
from deferkit.serve.engine.alarms import FASTEST_PACE, SLOWEST_PACE
from deferkit.serve.engine.budget_state import PeriodState

if TYPE_CHECKING:
    from deferkit.serve.engine.standing import Standing

HEAVY = 10.0  # means that the largest cost must be above for a smaller hold to be proposed
MIN_REVIEWED = 10


def state_text(standing: "Standing") -> str:
    """Return where a policy stands in one plain sentence."""
    kinds = {alarm.kind: alarm.text for alarm in standing.alarms}
    for urgent in ("failing", "suspense", "without_budget"):
        if urgent in kinds:
            return kinds[urgent]
    if not standing.decisions:
        return "No task has come yet."
    budget = standing.budget[standing.unit]
    if budget.period is not None:
        return period_text(standing, budget.period)
    tasks = f"{standing.decisions:,} tasks, {100 * standing.deferral_rate:.1f} % of them to experts"
    if budget.total is None or standing.horizon is None or standing.pace is None:
        return f"No limit: {amount(budget.posted)} {standing.unit} spent on {tasks}."
    share = min(1.0, standing.decisions / standing.horizon)
    spent = f"{amount(budget.posted)} of {amount(budget.total)} {standing.unit} spent"
    if "horizon_over" in kinds:
        return f"The planned {standing.horizon:,} tasks are over: {spent}{because(standing.remark)}."
    plan = plan_text(standing.pace)
    end = because(standing.remark)
    if not end and standing.runs_out_task is not None:
        lasts = standing.runs_out_task >= standing.horizon
        end = "; it lasts for all planned tasks" if lasts else f"; it lasts until about task {standing.runs_out_task:,}"
    return f"Spending is {plan}: {spent} for {100 * share:.0f} % of the planned tasks{end}."


def plan_text(pace: float) -> str:
    """Return whether a pace is on, ahead of or behind plan.

    >>> plan_text(1.05), plan_text(1.3), plan_text(0.5)
    ('on plan', 'ahead of plan', 'behind plan')
    """
    return (
        "on plan" if SLOWEST_PACE <= pace <= FASTEST_PACE else "ahead of plan" if pace > FASTEST_PACE else "behind plan"
    )


def period_text(standing: "Standing", period: PeriodState) -> str:
    """Return where the current period of a budget stands, or one with an end."""
    of, expected, end = (" of this period", " in it", "is renewed") if period.renews else ("", "", "ends")
    spent = f"{amount(period.posted)} of {amount(period.total)} {standing.unit}{of} spent"
    if period.over:
        return f"The budget ended on {show_time(period.end)}: {spent}."
    when = f"{end} on {show_time(period.end)}"
    if standing.pace is None or standing.planned is None:
        return f"No task has come yet: {spent}; it {when}."
    lasts = "lasts until it"
    if standing.runs_out_at is not None and standing.runs_out_at < period.end:
        lasts = f"lasts until about {show_time(standing.runs_out_at)}, and"
    share = f"for {100 * standing.planned:.0f} % of the tasks expected{expected}"
    why = because(standing.remark) or f"; it {lasts} {when}"
    return f"Spending is {plan_text(standing.pace)}: {spent} {share}{why}."


def because(remark: str) -> str:
    """Return the reason in a learner's remark as the end of a sentence; empty without a remark.

    >>> because("asked 6 of 1,647; 97 % of the budget unspent: no cost is known yet. Report the `cost` of a review.")
    ', because no cost is known yet'
    """
    reason = remark.partition(": ")[2].partition(". ")[0].rstrip(".")
    return f", because {reason}" if reason else ""


def held_text(pending: int, accounts: Mapping[str, Account]) -> str:
    """Return what pending reviews hold of a budget, in a sentence; empty if nothing is held.

    >>> held_text(3, {"minutes": Account(100, reserved=12)})
    '3 pending reviews hold 12 % of the minutes.'
    """
    shares = {name: each.reserved / each.total for name, each in accounts.items() if each.total and each.reserved}
    if not shares:
        return ""
    name = max(shares, key=lambda each: shares[each])
    who = "1 pending review holds" if pending == 1 else f"{pending:,} pending reviews hold"
    return f"{who} {100 * shares[name]:.0f} % of the {name}."


def hold_proposal(reviewed: int, accounts: Mapping[str, Account], budgets: Mapping[str, BudgetSpec]) -> str:
    """Return a proposal where reviews cost far less than is held for each and cannot be stopped; else nothing.

    Args:
        reviewed: Reviews whose costs are booked.
        accounts: Of the resources since the policy was made.
        budgets: Of the same resources.

    >>> budget = BudgetSpec(total=900, max_cost=60)
    >>> hold_proposal(50, {"minutes": Account(None, posted=100 * MICRO)}, {"minutes": budget})
    'A review costs 2 minutes on average, and 60 are held for it. If reviews can be stopped, hold "auto" holds less.'
    """
    for name, budget in budgets.items():
        mean = accounts[name].posted / MICRO / max(reviewed, 1)
        heavy = budget.max_cost is not None and reviewed >= MIN_REVIEWED and HEAVY * mean < budget.max_cost
        if heavy and not budget.can_be_stopped and accounts[name].posted:
            return (
                f"A review costs {mean:,.3g} {name} on average, and {budget.max_cost:,.6g} are held for it. If reviews"
                ' can be stopped, hold "auto" holds less.'
            )
    return ""


def amount(given: float) -> str:
    """Return an amount of a reply, which may be a JSON number that no double is.

    >>> amount(1234.5), amount(msgspec.Raw(b"9007199254.740993"))
    ('1,234.5', '9.0072e+09')
    """
    number = float(bytes(given)) if isinstance(given, msgspec.Raw) else given
    return f"{number:,.6g}"
