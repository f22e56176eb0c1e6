"""Webhooks and deliveries in the store. `Store.commit` adds deliveries together with their changes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.webhook import (
    DEAD,
    DELIVERED,
    UNDELIVERED,
    Attempt,
    DeliveryRow,
    WebhookRow,
)
from deferkit.serve.storage.database import Call, Connection, Row
from deferkit.serve.storage.store import Store

KEPT_S = {DELIVERED: 86_400, DEAD: 7 * 86_400}  # seconds that ended deliveries are kept, by state
EVENTS_KEPT_S = 11 * 86_400  # after that, events without deliveries are looked for
PRUNED_AT_ONCE = 1000
MOVED_AT_ONCE = 500  # of each state


class WebhookStore:
    """The tables of webhooks and their deliveries."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yield the connection of the writer thread in a transaction of its own."""
        writer = self.store.writer
        writer.begin()
        try:
            yield writer
            writer.commit()
        finally:
            writer.rollback()

    def webhooks(self) -> list[WebhookRow]:
        """Return all webhooks of all tenants."""
        return [WebhookRow(*row) for row in self.store.database.reader().run("webhooks")]

    def add(self, webhook: WebhookRow) -> None:
        """Write a new webhook."""
        self.store.in_own_transaction(lambda connection: connection.run("add_webhook", **webhook._asdict()))

    def delete(self, tenant: str, webhook: str) -> bool:
        """Delete a webhook of a tenant and its deliveries; False if there is none."""
        return bool(self._delete("release_events_of_webhook", "delete_webhook", id=webhook, tenant=tenant))

    def delete_of(self, tenant: str) -> None:
        """Delete all webhooks of a tenant and their deliveries."""
        self._delete("release_events_of_tenant", "delete_webhooks_of", tenant=tenant)

    def _delete(self, release: str, delete: str, **values: str) -> list[Row]:
        """Delete webhooks by a query, and the events that no other webhook needs."""

        def do(connection: Connection) -> list[Row]:
            connection.run(release, **values)
            deleted = connection.run(delete, **values)
            connection.run("drop_unused_events")
            return deleted

        return self.store.in_own_transaction(do)

    def deliveries(self, webhook: str, limit: int) -> list[DeliveryRow]:
        """Return the latest deliveries to a webhook."""
        rows = self.store.database.reader().run("list_deliveries", webhook=webhook, limit=limit)
        return [delivery_row(row) for row in rows]

    def due_deliveries(
        self, wanted: Mapping[str, int], policies: Mapping[str, Sequence[int]], now: int
    ) -> list[DeliveryRow]:
        """Return the deliveries that are due.

        Args:
            wanted: How many at most, by webhook.
            policies: The policies that this process owns, by webhook.
            now: The time in microseconds.
        """
        reader = self.store.database.reader()
        calls = [
            ("due_deliveries", {"webhook": each, "now": now, "policies": [*policies[each]], "limit": limit})
            for each, limit in wanted.items()
        ]
        return [delivery_row(row) for rows in reader.run_all(calls) for row in rows]

    def end_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Write the results of attempts, in the writer thread."""
        with self._transaction() as writer:
            writer.write_all({"end_attempt": attempts})

    def prune(self, now: int, policies: Iterable[int]) -> int:
        """Delete ended deliveries older than `KEPT_S`, in the writer thread; return their number.

        Args:
            now: The time in microseconds.
            policies: Those whose old events without deliveries are deleted too.
        """
        with self._transaction() as writer:
            calls = [
                ("prune_deliveries", {"state": state, "before": now - kept_s * MICRO, "limit": PRUNED_AT_ONCE})
                for state, kept_s in KEPT_S.items()
            ]
            found = [row for rows in writer.run_all(calls) for row in rows]
            release_events(writer, found)
            before = now - EVENTS_KEPT_S * MICRO
            for policy in policies:
                found += writer.run("prune_events", policy=policy, before=before, limit=PRUNED_AT_ONCE)
            return len(found)

    def count_waiting(self, webhooks: Iterable[str]) -> dict[str, int]:
        """Return the number of undelivered events by webhook; those without any are left out."""
        return dict(self.store.database.reader().run("count_waiting", keys=[*webhooks]))

    def drop_oldest(self, webhook: str, limit: int) -> Counter[int]:
        """Give up the oldest undelivered events of a webhook, in the writer thread; return their number by policy."""
        with self._transaction() as writer:
            found = writer.run("drop_oldest", webhook=webhook, limit=limit)
            release_events(writer, found)
            writer.run("count_dropped", id=webhook, dropped=len(found))
            return Counter(policy for _, policy in found)

    def has_old(self, policies: Sequence[int]) -> bool:
        """Whether a process of the version before has left deliveries of these policies."""
        return any(self.store.database.reader().run_all(old_deliveries(policies, 1)))

    def move_old(self, policies: Sequence[int]) -> None:
        """Move deliveries of the version before to the tables of this one, in the writer thread.

        Args:
            policies: Those of this process: the events of others are delivered by processes of the version before.
        """
        with self._transaction() as writer:
            rows = [
                delivery_row(row) for rows in writer.run_all(old_deliveries(policies, MOVED_AT_ONCE)) for row in rows
            ]
            events = {row.id: row for row in rows}
            kept = Counter(row.id for row in rows)
            writer.write_all(
                {
                    "add_event": [
                        (row.id, row.policy, row.event, row.body, row.created, kept[row.id]) for row in events.values()
                    ],
                    "add_delivery": [(row.webhook, row.created, row.id, row.policy, *row[6:]) for row in rows],
                    "drop_old_delivery": [row[:2] for row in rows],
                }
            )

    def oldest(self, policy: int) -> int | None:
        """Return the time of a policy's oldest undelivered event; None if there is none."""
        found: int | None = self.store.database.reader().run("oldest_delivery", policy=policy)[0][0]
        return found


def old_deliveries(policies: Sequence[int], limit: int) -> list[Call]:
    """Return the queries of deliveries of the version before, so many of each state, those that wait first."""
    states = (UNDELIVERED, DEAD, DELIVERED)
    return [("old_deliveries", {"policies": [*policies], "limit": limit, "state": state}) for state in states]


def release_events(writer: Connection, deliveries: Iterable[Row]) -> None:
    """Delete the events of deleted deliveries that no other delivery needs."""
    rows = Counter(event for event, _ in deliveries)
    writer.write_all({"release_event": [(n, event) for event, n in rows.items()]})
    writer.run("drop_unused_events")


def delivery_row(row: Row) -> DeliveryRow:
    """Return a row of deliveries."""
    each = DeliveryRow(*row)
    return each._replace(body=bytes(each.body))
