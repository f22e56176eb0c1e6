"""Renewals of budgets, by the time of the command that they come before, and in its transaction."""

import math

import msgspec

from deferkit.serve.domain.budget_period import due_renewals
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.unit_of_work import UnitOfWork

AT_ONCE = 1000  # renewals of one group: after a gap of many short periods others are not to wait for all of them


def renew(owned: OwnedPolicy, work: UnitOfWork, now: int, *, begin: bool = False) -> bool:
    """Record the renewals that are due; return False if there are more of them.

    Parameters
    ----------
    owned
        The policy.
    work
        Where they are recorded.
    now
        The time of the policy, in microseconds.
    begin
        Whether a task has come, which begins the first period. False unless given.
    """
    policy = owned.policy
    if not policy.is_timed:
        return True
    ends = [
        period.end for name, period in policy.periods.items() if policy.spec.budget[name].every is not msgspec.UNSET
    ]
    is_first = begin and any(each.is_timed and name not in policy.periods for name, each in policy.spec.budget.items())
    if not is_first and now / MICRO < min(ends, default=math.inf):
        return True
    decisions = policy.counts().decisions
    due = due_renewals(policy.spec, policy.books, now / MICRO, decisions=decisions, begin=begin, most=AT_ONCE)
    for record in due:
        work.record(owned, record, now)
    return len(due) < AT_ONCE
