"""Bodies of webhook events, made from log records. They contain no features and no payload."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.log_records import DecidedRecord, ExpiredRecord
from deferkit.serve.domain.money import MICRO, all_in_reply, in_reply
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.rows import DecisionRow

LARGEST_BODY = 65_536  # bytes
USED_80, USED_100, SUSPENSE, FROZEN = "used_80_percent", "used_100_percent", "suspense", "frozen"


class EventBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver gets: what happened, when, to which policy."""

    id: str  # the same whenever the event is sent again
    event: str
    at: float  # seconds since 1970
    policy: str
    seq: int  # the record of the policy's log that tells of it: events may come in another order
    data: Any


def decided_data(record: DecidedRecord) -> dict[str, Any]:
    """Return the data of a `decided` event."""
    return {
        "task": record.task,
        "id": record.id,
        "route": record.route,
        "reason": record.reason,
        "price": record.price,
        "reserved": record.reserved,
        "expected_gain": record.expected_gain,
    }


def completed_data(row: DecisionRow) -> dict[str, Any]:
    """Return the data of a `completed` event. An unconfirmed cost is null."""
    return {
        "task": row.task,
        "id": row.id,
        "route": row.route,
        "final": row.final,
        "answer": None if row.answer is None else msgspec.Raw(row.answer.encode()),
        "rewards": row.rewards,
        "cost": None if row.cost is None else all_in_reply(row.cost),
    }


def expired_data(record: ExpiredRecord, final: str) -> dict[str, Any]:
    """Return the data of an `expired` event; `final` is whose answer is used."""
    return {"task": record.task, "id": record.id, "why": record.why, "final": final}


class BudgetAlarm(NamedTuple):
    """Something about a budget that somebody should look at; `resource` is None if it is about all of them."""

    kind: str
    resource: str | None


def alarms_of(
    accounts: Mapping[str, Account], spec: PolicySpec, before: frozenset[BudgetAlarm]
) -> frozenset[BudgetAlarm]:
    """Return the active alarms, with hysteresis.

    Parameters
    ----------
    accounts
        The accounts by resource.
    spec
        The policy: nothing is left of a budget when less is free than one task may cost.
    before
        The alarms that were active before. Those of a used share end only 5 per cent of the total below it, so that
        reservations that come and go do not raise them again and again.
    """
    found = set()
    for name, account in accounts.items():
        if account.suspense:
            found.add(BudgetAlarm(SUSPENSE, name))
        if account.total is None:
            continue
        used = account.posted + account.reserved
        whole = account.total - used < max(1, round((spec.budget[name].least_hold or 0) * MICRO))
        for kind, percent, passed in ((USED_80, 80, 100 * used >= 80 * account.total), (USED_100, 100, whole)):
            alarm = BudgetAlarm(kind, name)
            if passed or (alarm in before and 100 * used >= (percent - 5) * account.total):
                found.add(alarm)
    if any(account.suspense for account in accounts.values()):
        found.add(BudgetAlarm(FROZEN, None))
    return frozenset(found)


def budget_data(alarm: BudgetAlarm, accounts: Mapping[str, Account]) -> dict[str, Any]:
    """Return the data of a `budget` event: the alarm, and the accounts."""
    budget = {
        name: {
            "total": None if account.total is None else in_reply(account.total),
            "posted": in_reply(account.posted),
            "reserved": in_reply(account.reserved),
            "suspense": in_reply(account.suspense),
        }
        for name, account in accounts.items()
    }
    return {"alarm": alarm.kind, "resource": alarm.resource, "budget": budget}


def encoded(event: EventBody) -> bytes:
    """Return an event as bytes; without its answer if that makes it too large."""
    body = msgspec.json.encode(event)
    if len(body) > LARGEST_BODY and "answer" in event.data:
        data = event.data | {"answer": None, "answer_left_out": True}
        body = msgspec.json.encode(msgspec.structs.replace(event, data=data))
    return body
