"""The queue as one reviewer sees it: how many seats wait, and why there is nothing to claim."""

import datetime
from typing import Literal

import msgspec

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO, in_reply
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.storage.review_queue import ReviewerQueue, costs_since, count_answers, queue_of_reviewer
from deferkit.serve.storage.store import Store

WhyEmpty = Literal["declined", "all_claimed", "answered", "frozen", "budget_exhausted", "nothing_deferred"]
TEXTS: dict[WhyEmpty, str] = {
    "all_claimed": "Others hold all tasks. The first of their leases ends at {:%H:%M} UTC.",
    "declined": "You have declined all tasks that wait.",
    "answered": "You have answered, or hold, all tasks that wait; colleagues are to answer them too.",
    "frozen": "Costs went beyond the budget, so nobody is asked until it is topped up.",
    "budget_exhausted": "The budget is exhausted, so nobody is asked until it is topped up.",
    "nothing_deferred": "Nothing waits for a review: the model decides the rest, and all else is answered.",
}
DAY = 86_400 * MICRO


class StatusReply(msgspec.Struct, frozen=True, kw_only=True):
    """The queue as one reviewer sees it. Days begin at midnight UTC; an answer is of the day of its claim."""

    waiting: int  # seats that the reviewer could claim
    claimed: int  # seats that others hold, and that the reviewer could claim else
    next_free_at: float | None  # when the first of their leases ends
    declined: int  # seats that wait or are held, at tasks that the reviewer has declined
    budget_left: dict[str, float | None]  # null: without end
    why_empty: WhyEmpty | None  # null: something waits
    text: str
    done: int  # answers of the reviewer
    done_today: int
    cost_today: dict[str, float]


def status_of(store: Store, policy: int, spec: PolicySpec, reviewer: str, now: int) -> StatusReply:
    """Return the queue of a policy as one reviewer sees it.

    Parameters
    ----------
    store
        Where it is read.
    policy
        Number of the policy.
    spec
        Its settings.
    reviewer
        Who wants to know.
    now
        The time, in microseconds.
    """
    database, accounts = store.database, store.budgets(policy)
    queue = queue_of_reviewer(database, policy, reviewer, now, late=spec.after_deadline == "wait")
    costs = costs_since(database, policy, reviewer, now - now % DAY)
    why = why_empty(queue, accounts, spec)
    return StatusReply(
        waiting=queue.waiting,
        claimed=queue.claimed,
        next_free_at=None if queue.next_free_at is None else queue.next_free_at / MICRO,
        declined=queue.declined,
        budget_left={name: None if each.free is None else in_reply(each.free) for name, each in accounts.items()},
        why_empty=why,
        text=sentence(queue, why),
        done=count_answers(database, policy, reviewer),
        done_today=len(costs),
        cost_today={name: in_reply(sum(cost.get(name, 0) for cost in costs)) for name in accounts},
    )


def why_empty(queue: ReviewerQueue, accounts: dict[str, Account], spec: PolicySpec) -> WhyEmpty | None:
    """Return why a reviewer gets nothing; None if something waits."""
    needed = {name: max(1, round((each.least_hold or 0) * MICRO)) for name, each in spec.budget.items()}
    reasons: list[tuple[object, WhyEmpty | None]] = [
        (queue.waiting, None),
        (queue.claimed, "all_claimed"),
        (queue.declined, "declined"),
        (queue.answered, "answered"),
        (any(each.suspense for each in accounts.values()), "frozen"),
        (any(each.free is not None and each.free < needed[n] for n, each in accounts.items()), "budget_exhausted"),
    ]
    return next((why for holds, why in reasons if holds), "nothing_deferred")


def sentence(queue: ReviewerQueue, why: WhyEmpty | None) -> str:
    """Return the status text for a reviewer.

    >>> sentence(ReviewerQueue(0, 2, 50_700_000_000, 0, 0), "all_claimed")
    'Others hold all tasks. The first of their leases ends at 14:05 UTC.'
    """
    if why is None:
        return f"{queue.waiting:,} {'waits' if queue.waiting == 1 else 'wait'} for a review."
    return TEXTS[why].format(datetime.datetime.fromtimestamp((queue.next_free_at or 0) / MICRO, datetime.UTC))
