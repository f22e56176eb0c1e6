"""What somebody should look at: each alarm is a kind, for programs, and a sentence."""

from datetime import UTC, datetime
from typing import Literal

import msgspec

from deferkit.periods import show_time
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.forecast import Pace
from deferkit.serve.engine.history.log_figures import LogFigures
from deferkit.serve.engine.policy_summary import QueueState
from deferkit.types import MODEL, Drifted

SLOWEST_PACE, FASTEST_PACE = 0.9, 1.1  # paces between these are on plan
MIN_PLANNED_SHARE = 0.05  # of the planned tasks: before that the pace is too noisy for an alarm
RECENT_DRIFT = 1000  # decisions for which a drift raises an alarm
OLD_REVIEW_S = 3600.0  # seconds after which a waiting review raises an alarm, if there is no deadline


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


def alarms_of(
    owned: OwnedPolicy, past: LogFigures | None, queue: QueueState, pace: Pace | None, failing: str | None, now: int
) -> list[Alarm]:
    """Return the alarms of a policy at a time, in microseconds; the most urgent first."""
    found = []
    if failing is not None:
        found.append(
            Alarm(kind="failing", text="Nothing can be written at the moment; the log of the service says why.")
        )
    return [
        *(*found, *money_alarms(owned, now), *pace_alarms(owned, pace, now)),
        *(*review_alarms(owned, queue), *drift_alarms(owned, past)),
    ]


def money_alarms(owned: OwnedPolicy, now: int) -> list[Alarm]:
    """Return alarms of the accounts: suspense, exhausted budgets, unconfirmed costs."""
    policy, found = owned.policy, []
    accounts, periods = policy.books_at(now)
    for name, account in accounts.items():
        if account.suspense:
            text = f"{account.suspense / MICRO:,.6g} {name} stand in suspense, beyond the budget: nobody is asked."
            found.append(Alarm(kind="suspense", text=text))
    is_frozen = any(account.suspense for account in accounts.values())
    for name, account in accounts.items():
        budget = policy.spec.budget[name]
        cap = 1 / MICRO if budget.least_hold is None and budget.can_be_stopped else budget.least_hold
        if not is_frozen and account.free is not None and cap is not None and account.free < cap * MICRO:
            needs = f"needs {cap:g}" if budget.can_be_stopped else f"may cost {cap:g}"
            until = "" if budget.every is msgspec.UNSET else f" until {show_time(periods[name].end)}"
            left = f"{account.free / MICRO:,.6g} {name} are free, and a review {needs}"
            found.append(Alarm(kind="without_budget", text=f"{left}: nobody is asked{until}."))
    if policy.unconfirmed:
        count = len(policy.unconfirmed)
        text = f"{count:,} reported {'costs wait' if count > 1 else 'cost waits'} for somebody to confirm."
        found.append(Alarm(kind="unconfirmed", text=text))
    return found


def pace_alarms(owned: OwnedPolicy, pace: Pace | None, now: int) -> list[Alarm]:
    """Return alarms of budgets that have ended, or are spent faster or slower than planned."""
    policy = owned.policy
    horizon = min((each.horizon for each in policy.spec.budget.values() if each.horizon is not None), default=None)
    decisions = policy.counts().decisions
    if horizon is not None and decisions >= horizon:
        text = f"The budget was to last for {horizon:,} tasks, and there were {decisions:,}."
        return [Alarm(kind="horizon_over", text=text)]
    for name, budget in policy.spec.budget.items():
        if budget.until is not msgspec.UNSET and budget.until <= now / MICRO:
            text = f"The budget of {name} ended on {show_time(budget.until)}: what is left is spent at the last price."
            return [Alarm(kind="horizon_over", text=text)]
    if pace is None or pace.done < MIN_PLANNED_SHARE:
        return []
    if pace.value > FASTEST_PACE:
        return [Alarm(kind="overspending", text=f"Spending is {100 * (pace.value - 1):.0f} % ahead of plan.")]
    reserved = sum(account.reserved for account in policy.accounts.values())
    if pace.value < SLOWEST_PACE and not reserved:  # what is reserved may yet be spent
        return [Alarm(kind="underspending", text=f"Spending is {100 * (1 - pace.value):.0f} % behind plan.")]
    return []


def review_alarms(owned: OwnedPolicy, queue: QueueState) -> list[Alarm]:
    """Return alarms of tasks that have waited too long for a review."""
    deadline = owned.policy.spec.deadline_s
    limit = OLD_REVIEW_S if deadline is None else deadline / 2
    if queue.oldest_s is None or queue.oldest_s <= limit:
        return []
    until = "" if deadline is None else f", of the {duration(deadline)} that it may wait"
    return [Alarm(kind="queue_age", text=f"The oldest task has waited for {duration(queue.oldest_s)}{until}.")]


def drift_alarms(owned: OwnedPolicy, past: LogFigures | None) -> list[Alarm]:
    """Return alarms of recent drifts of rewards and costs."""
    decisions = owned.policy.learner.figures().decisions
    return [
        Alarm(kind="drift", text=drift_text(owned, drift, past))
        for drift in owned.policy.learner.drifts()
        if drift.decision > decisions - RECENT_DRIFT
    ]


def drift_text(owned: OwnedPolicy, drift: Drifted, past: LogFigures | None) -> str:
    """Return a sentence on a drift: what has changed, and, where the learner knows it, from what to what and when."""
    first, target = owned.policy.relearned.decisions, drift.target
    is_cost = target.startswith("cost")
    if drift.since is None or drift.before is None or drift.after is None:
        what = f"The {'' if is_cost else 'reward of '}{target}"
        return f"{what} has changed, about at task {drift.decision + first:,}."
    at = None if past is None else past.time_of(drift.since + first)
    since = f"task {drift.since + first:,}" if at is None else date_text(at)
    error = "" if drift.error is None else f" (standard error of the difference: {drift.error:.2g})"
    if owned.policy.learner.link == "logistic" and not is_cost:  # its rewards are right or wrong
        who = "The model" if target == MODEL else target
        return f"{who} is right in {drift.after:.0%} since about {since}, before in {drift.before:.0%}{error}."
    what = f"The {'' if is_cost else 'reward of '}{target}"
    return f"{what} is {drift.after:.3g} since about {since}, before {drift.before:.3g}{error}."


def date_text(seconds: float) -> str:
    """Return the day of a time, in UTC.

    >>> date_text(1_777_800_000.0)
    '3 May 2026'
    """
    day = datetime.fromtimestamp(seconds, UTC)
    return f"{day.day} {day:%B %Y}"


def duration(seconds: float) -> str:
    """Return a duration as text.

    >>> duration(40), duration(150), duration(9000), duration(200_000)
    ('40 s', '2 min', '2.5 h', '2.3 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
