"""Webhooks and deliveries in the store. `Store.commit` adds deliveries together with their changes."""

from collections.abc import Iterable, Mapping, Sequence

from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.webhook import DEAD, DELIVERED, Attempt, DeliveryRow, WebhookRow
from deferkit.serve.storage.database import Row
from deferkit.serve.storage.store import Store

KEPT_S = {DELIVERED: 86_400, DEAD: 7 * 86_400}  # seconds that ended deliveries are kept, by state
PRUNED_AT_ONCE = 1000


class WebhookStore:
    """The tables of webhooks and their deliveries."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def webhooks(self) -> list[WebhookRow]:
        """Return all webhooks of all tenants."""
        return [WebhookRow(*row) for row in self.store.database.reader().run("webhooks")]

    def add(self, webhook: WebhookRow) -> None:
        """Write a new webhook."""
        self.store.in_own_transaction(lambda connection: connection.run("add_webhook", **webhook._asdict()))

    def delete(self, tenant: str, webhook: str) -> bool:
        """Delete a webhook of a tenant and its deliveries; False if there is none."""
        return bool(
            self.store.in_own_transaction(
                lambda connection: connection.run("delete_webhook", id=webhook, tenant=tenant)
            )
        )

    def delete_of(self, tenant: str) -> None:
        """Delete all webhooks of a tenant and their deliveries."""
        self.store.in_own_transaction(lambda connection: connection.run("delete_webhooks_of", tenant=tenant))

    def deliveries(self, webhook: str, limit: int) -> list[DeliveryRow]:
        """Return the latest deliveries to a webhook."""
        rows = self.store.database.reader().run("deliveries", webhook=webhook, limit=limit)
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

    def end_attempts(self, attempts: Iterable[Attempt]) -> None:
        """Write the results of attempts, in the writer thread."""
        writer = self.store.writer
        writer.begin()
        try:
            writer.write_all({"end_attempt": [*attempts]})
            writer.commit()
        finally:
            writer.rollback()

    def prune(self, now: int) -> int:
        """Delete ended deliveries older than `KEPT_S`, in the writer thread; return their number."""
        writer = self.store.writer
        writer.begin()
        try:
            calls = [
                ("prune_deliveries", {"state": state, "before": now - kept_s * MICRO, "limit": PRUNED_AT_ONCE})
                for state, kept_s in KEPT_S.items()
            ]
            found = writer.run_all(calls)
            writer.commit()
            return sum(map(len, found))
        finally:
            writer.rollback()

    def oldest(self, policy: int) -> int | None:
        """Return the time of a policy's oldest undelivered event; None if there is none."""
        found: int | None = self.store.database.reader().run("oldest_delivery", policy=policy)[0][0]
        return found


def delivery_row(row: Row) -> DeliveryRow:
    """Return a row of deliveries."""
    each = DeliveryRow(*row)
    return each._replace(body=bytes(each.body))
