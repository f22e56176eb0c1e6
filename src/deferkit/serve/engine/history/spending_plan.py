"""The planned spending of a budget over time: even spending over its tasks."""

from typing import NamedTuple

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.budget_period import BudgetPeriod
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.policy_spec import BudgetSpec


class PeriodTasks:
    """A counter of a period's tasks that all its `Figures` share, so that earlier ones get the final count too."""

    __slots__ = ("decisions",)

    def __init__(self, decisions: int) -> None:
        self.decisions = decisions  # of the policy, up to the last one of the period


class PlanPoint(NamedTuple):
    """The inputs of the plan of a budget at a time."""

    decisions: int
    account: Account
    period: BudgetPeriod | None  # None: it has a horizon, or no task has come
    tasks: PeriodTasks | None


def planned_spending(budget: BudgetSpec, point: PlanPoint, left: float) -> float:
    """Return what even spending over the horizon, or over the tasks of the period, would have spent by a time.

    Args:
        budget: The budget, which has a limit.
        point: Where it stood at that time.
        left: Tasks that are still expected in the period; 0 for one that has ended, whose tasks are known.

    >>> period = BudgetPeriod(number=2, start=0, end=9, granted=8 * MICRO, carried=0, held=0, posted_before=5 * MICRO,
    ...     decisions_before=100)
    >>> point = PlanPoint(110, Account(13 * MICRO, posted=6 * MICRO), period, PeriodTasks(120))
    >>> planned_spending(BudgetSpec(total=8, every="7d", max_cost=1), point, left=20.0)  # 10 of 40 tasks
    7.0
    """
    decisions, account, period, tasks = point
    total = account.total or 0
    if budget.horizon is not None:
        return total / MICRO * min(1.0, decisions / budget.horizon)
    if period is None or tasks is None:
        return account.posted / MICRO
    expected = tasks.decisions - period.decisions_before + left
    share = min(1.0, (decisions - period.decisions_before) / expected) if expected > 0 else 0.0
    return (period.posted_before + share * (total - period.posted_before)) / MICRO
