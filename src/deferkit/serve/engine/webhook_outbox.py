"""Transactional outbox of webhooks: deliveries are written in the transaction of the log records of their events."""

from collections.abc import Mapping, Sequence
from typing import Any

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.log_records import AnyRecord, DecidedRecord, ExpiredRecord
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.rows import MODEL, VOID, DecisionRow, LogRow
from deferkit.serve.domain.webhook import BUDGET, COMPLETED, DECIDED, EXPIRED, DeliveryRow, WebhookRow, new_id
from deferkit.serve.domain.webhook_events import (
    EventBody,
    alarms_of,
    budget_data,
    completed_data,
    decided_data,
    encoded,
    expired_data,
)

WebhooksByTenant = Mapping[str, Sequence[WebhookRow]]


def events_of_record(
    owned: OwnedPolicy,
    webhooks: Sequence[WebhookRow],
    record: AnyRecord,
    line: LogRow,
    *,
    accounts: Mapping[str, Account],
    row: DecisionRow | None,
) -> list[DeliveryRow]:
    """Return the deliveries for the events of a record: a decision, an expiry, alarms of the budget.

    Parameters
    ----------
    owned
        The policy, after the record.
    webhooks
        Those of its tenant.
    record, line
        The record, and its row in the log.
    accounts
        The accounts before the record: of budgets that renew, the part of the current period.
    row
        The decision that it is about, before the record; None if there is none.
    """
    found: list[DeliveryRow] = []
    if isinstance(record, DecidedRecord):
        notified = [each for each in webhooks if record.route != MODEL or each.models]
        found += deliveries(owned, notified, DECIDED, line, decided_data(record))
    elif isinstance(record, ExpiredRecord):
        final = MODEL if row is None or row.final is None else row.final
        found += deliveries(owned, webhooks, EXPIRED, line, expired_data(record, final))
    return found + alarms(owned, webhooks, line, accounts)


def events_of_decision(
    owned: OwnedPolicy, webhooks: Sequence[WebhookRow], line: LogRow, *, before: DecisionRow, row: DecisionRow
) -> list[DeliveryRow]:
    """Return the deliveries for a task that was completed: an expert's answer, reward or cost has made it final."""
    if before.final is not None or row.final is None or row.state == VOID:
        return []
    return deliveries(owned, webhooks, COMPLETED, line, completed_data(row))


def alarms(
    owned: OwnedPolicy, webhooks: Sequence[WebhookRow], line: LogRow, accounts: Mapping[str, Account]
) -> list[DeliveryRow]:
    """Return the deliveries for alarms that a record has raised."""
    policy = owned.policy
    before = alarms_of(accounts, policy.spec, frozenset()) if owned.alarms is None else owned.alarms
    current = policy.books.current()
    owned.alarms = alarms_of(current, policy.spec, before)
    found = []
    for alarm in sorted(owned.alarms - before, key=str):
        found += deliveries(owned, webhooks, BUDGET, line, budget_data(alarm, current))
    return found


def deliveries(
    owned: OwnedPolicy, webhooks: Sequence[WebhookRow], event: str, line: LogRow, data: dict[str, Any]
) -> list[DeliveryRow]:
    """Return one delivery of an event for each webhook that subscribes to it."""
    name = owned.policy.spec.name
    subscribed = [each for each in webhooks if each.wants(event, name)]
    if not subscribed:
        return []
    number, at = new_id(), line.at
    body = encoded(EventBody(id=number, event=event, at=at / MICRO, policy=name, seq=line.seq, data=data))
    return [DeliveryRow(each.id, number, owned.id, event, body, at, at) for each in subscribed]
