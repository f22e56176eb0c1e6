"""What somebody should look at: each alarm is a kind, for programs, and a sentence."""

from typing import Literal

import msgspec

from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.policy_summary import QueueState

SLOW, FAST = 0.9, 1.1  # paces that are on plan
TELLING = 0.05  # the share of the horizon before which a pace tells little
RECENT_DRIFT = 1000  # decisions for which a drift is news
OLD_S = 3600.0  # a review that waits for so long, where there is no deadline


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at."""

    kind: Literal[
        "suspense",
        "frozen",
        "horizon_over",
        "failing",
        "drift",
        "queue_age",
        "unconfirmed",
        "underspending",
        "overspending",
        "without_budget",
    ]
    text: str


def alarms_of(owned: OwnedPolicy, queue: QueueState, pace: float | None, failing: str | None) -> list[Alarm]:
    """Return the alarms of a policy, the most urgent first."""
    found = []
    if failing is not None:
        found.append(
            Alarm(kind="failing", text="Nothing can be written at the moment; the log of the service says why.")
        )
    return [*found, *money_alarms(owned), *pace_alarms(owned, pace), *review_alarms(owned, queue), *drift_alarms(owned)]


def money_alarms(owned: OwnedPolicy) -> list[Alarm]:
    """Return alarms of what can be spent."""
    policy, found = owned.policy, []
    for name, account in policy.accounts.items():
        if account.suspense:
            text = f"{account.suspense / MICRO:,.6g} {name} stand in suspense, beyond the budget: nobody is asked."
            found.append(Alarm(kind="suspense", text=text))
    for name, account in policy.accounts.items():
        cap = policy.spec.budget[name].max_cost
        if not policy.frozen and account.free is not None and cap is not None and account.free < cap * MICRO:
            left = f"{account.free / MICRO:,.6g} {name} are free, and a review may cost {cap:g}"
            found.append(Alarm(kind="without_budget", text=f"{left}: nobody is asked."))
    if policy.unconfirmed:
        count = len(policy.unconfirmed)
        text = f"{count:,} reported {'costs wait' if count > 1 else 'cost waits'} for somebody to confirm."
        found.append(Alarm(kind="unconfirmed", text=text))
    return found


def pace_alarms(owned: OwnedPolicy, pace: float | None) -> list[Alarm]:
    """Return alarms of a budget that is spent too fast or too slowly for its horizon."""
    policy = owned.policy
    horizon = min((each.horizon for each in policy.spec.budget.values() if each.horizon is not None), default=None)
    if horizon is None:
        return []
    decisions = policy.counts().decisions
    if decisions >= horizon:
        text = f"The budget was to last for {horizon:,} tasks, and there were {decisions:,}."
        return [Alarm(kind="horizon_over", text=text)]
    if pace is None or decisions < TELLING * horizon:
        return []
    if pace > FAST:
        return [Alarm(kind="overspending", text=f"Spending is {100 * (pace - 1):.0f} % ahead of plan.")]
    reserved = sum(account.reserved for account in policy.accounts.values())
    if pace < SLOW and not reserved:  # what is reserved may yet be spent
        return [Alarm(kind="underspending", text=f"Spending is {100 * (1 - pace):.0f} % behind plan.")]
    return []


def review_alarms(owned: OwnedPolicy, queue: QueueState) -> list[Alarm]:
    """Return alarms of tasks that wait for too long."""
    deadline = owned.policy.spec.deadline_s
    limit = OLD_S if deadline is None else deadline / 2
    if queue.oldest_s is None or queue.oldest_s <= limit:
        return []
    until = "" if deadline is None else f", of the {duration(deadline)} that it may wait"
    return [Alarm(kind="queue_age", text=f"The oldest task has waited for {duration(queue.oldest_s)}{until}.")]


def drift_alarms(owned: OwnedPolicy) -> list[Alarm]:
    """Return alarms of rewards and costs that have changed of late."""
    decisions = owned.policy.learner.summary().decisions
    return [
        Alarm(
            kind="drift",
            text=f"The {'' if drift.target.startswith('cost') else 'reward of '}{drift.target} has changed, about at"
            f" task {drift.decision + owned.policy.relearned.decisions:,}.",
        )
        for drift in owned.policy.learner.drifts()
        if drift.decision > decisions - RECENT_DRIFT
    ]


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(40), duration(150), duration(9000), duration(200_000)
    ('40 s', '2 min', '2.5 h', '2.3 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
