"""Renewals of budgets: recorded before every command, at its time and in its transaction."""

import math

import msgspec

from deferkit.periods import SHORTEST
from deferkit.serve.domain.budget_period import due_renewals
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.reply import Reply
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.transaction import ReadSet

AT_ONCE = 1000  # renewals of one policy in a group: after many short periods without calls, other callers do not wait
MOST_DUE = 100  # due renewals from which on maintenance renews an idle policy: every read computes all that are due


class RenewIdle:
    """Record the renewals that are due, as before any command."""

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:  # noqa: ARG002
        """Do nothing: `renew` has run before."""
        return Reply(200, b"")


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
    is_first = begin and any(each.is_timed and name not in policy.periods for name, each in policy.spec.budget.items())
    if not is_first and now / MICRO < next_renewal(policy):
        return True
    decisions = policy.counts().decisions
    due = due_renewals(policy.spec, policy.books, now / MICRO, decisions=decisions, begin=begin, most=AT_ONCE)
    for record in due:
        work.record(owned, record, now)
    return len(due) < AT_ONCE


def next_renewal(policy: Policy) -> float:
    """Return the earliest end of a policy's renewing periods, in seconds since 1970; infinity if none renews."""
    renewing = (each for name, each in policy.periods.items() if policy.spec.budget[name].every is not msgspec.UNSET)
    return min((period.end for period in renewing), default=math.inf)


def has_many_due(owned: OwnedPolicy, now: int) -> bool:
    """Whether at least `MOST_DUE` renewals of a policy are due."""
    policy = owned.policy
    if not policy.is_timed or now / MICRO < next_renewal(policy) + MOST_DUE * SHORTEST:
        return False
    due = due_renewals(policy.spec, policy.books, now / MICRO, decisions=0, begin=False, most=MOST_DUE)
    return len(due) == MOST_DUE
