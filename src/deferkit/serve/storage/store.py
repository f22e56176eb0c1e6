"""A store: the transaction of a group of commands, and what is read of policies, decisions and reviews."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.problems import Fenced
from deferkit.serve.domain.rows import (
    ClaimRow,
    DecisionRow,
    ParkedRow,
    PolicyRow,
    RequestRow,
    SeatRow,
)
from deferkit.serve.storage.database import Row
from deferkit.serve.storage.key_store import KeyStore
from deferkit.serve.storage.policy_leases import PolicyLeases, advance_values
from deferkit.serve.storage.policy_log import PolicyLog
from deferkit.serve.storage.row_codec import (
    claim_row,
    decision_row,
    decision_values,
    oldest_parked_row,
    seat_row,
    seat_values,
    to_json_column,
)
from deferkit.serve.storage.transaction import ReadSet, Transaction

Unit = TypeVar("Unit", bound=Transaction)
# row decoders by query: with one row for each key, and with several
ONE_OF: dict[str, Callable[[Row], Any]] = {
    "decisions": decision_row,
    "parked": ParkedRow._make,
    "requests": RequestRow._make,
}
SEVERAL_OF: dict[str, Callable[[Row], Any]] = {
    "seats": seat_row,
    "claims": claim_row,
    "oldest_parked": oldest_parked_row,
    "histories": lambda row: bytes(row[2]),
}


class Store(PolicyLeases, PolicyLog, KeyStore):
    """The store of a service: leases, logs, keys, and the transactions and reads of groups of commands."""

    # --- a group of commands, one transaction -------------------------------------------------------------------

    def begin(self, needs: Iterable[ReadSet], work: Unit) -> Unit:
        """Begin a transaction, and read into `work` the rows that the commands of a group need."""
        wanted: dict[tuple[str, int], dict[str, None]] = {}
        for need in needs:
            for name, keys in need.reads():
                wanted.setdefault((name, need.policy), {}).update(dict.fromkeys(keys))
        self.writer.begin()
        found = self.writer.run_all(
            [(name, {"policy": policy, "keys": [*keys]}) for (name, policy), keys in wanted.items()]
        )
        for ((name, policy), asked), rows in zip(wanted.items(), found, strict=True):
            into = getattr(work, name)
            if name in ONE_OF:
                into.update(dict.fromkeys((policy, key) for key in asked))
                into.update({row[:2]: ONE_OF[name](row) for row in rows})
            else:
                into.update({(policy, key): [] for key in asked})
                for row in rows:
                    into[row[:2]].append(SEVERAL_OF[name](row))
        return work

    def commit(self, work: Transaction, owner: str, expires: int) -> None:
        """Write what the commands of a group have changed, run their queries of the queue, and commit."""
        writer = self.writer
        changed = work.changed.values()
        calls = [
            ("advance", advance_values(owned.policy, owned.id, owned.epoch, owner, expires, owned.parked))
            for owned in changed
        ]
        for owned, found in zip(changed, writer.run_all(calls), strict=True):
            if not found:
                raise Fenced(owned.id)
        decisions = [work.decisions[key] for key in work.changed_decisions]
        writer.write_all(
            {
                "set_budget": [(*a, owned.id, name) for owned in changed for name, a in owned.policy.accounts.items()],
                "add_log": work.log,
                "put_decision": [decision_values(row) for row in decisions if row is not None],
                "put_seat": [seat_values(work.seats[p, t][seat]) for p, t, seat in work.changed_seats],
                "put_parked": list(work.new_parked.values()),
                "drop_parked": list(work.dropped_parked),
                "add_request": work.new_requests,
                "set_effort": [
                    (to_json_column(each["effort"]), each["policy"], each["task"], each["seat"], each["epoch"])
                    for each in work.efforts
                ],
            }
        )
        if work.deliveries:
            writer.write_all({"add_delivery": work.deliveries})
        for query in work.queue_queries:
            query.run(writer)
        writer.commit()

    def rollback(self) -> None:
        """Roll back the transaction of a group."""
        if self._writer is not None:
            self._writer.rollback()

    # --- reading, from any thread ---------------------------------------------------------------------------------

    def policies(self) -> list[PolicyRow]:
        """Return all policies of all tenants."""
        return [PolicyRow(*row) for row in self.database.reader().run("policies")]

    def policies_of(self, tenant: str, after: str, limit: int) -> list[PolicyRow]:
        """Return a page of a tenant's policies."""
        rows = self.database.reader().run("policies_of", tenant=tenant, after=after, limit=limit)
        return [PolicyRow(*row) for row in rows]

    def count_policies(self, tenant: str) -> int:
        """Return how many policies a tenant has."""
        return int(self.database.reader().run("count_policies", tenant=tenant)[0][0])

    def policy(self, tenant: str, name: str) -> PolicyRow | None:
        """Return a tenant's policy of this name."""
        rows = self.database.reader().run("policy", tenant=tenant, name=name)
        return PolicyRow(*rows[0]) if rows else None

    def budgets(self, policy: int) -> dict[str, Account]:
        """Return the accounts as the database has them."""
        rows = self.database.reader().run("budgets", policy=policy)
        return {resource: Account(*numbers) for resource, *numbers in rows}

    def decision(self, policy: int, task: str) -> DecisionRow | None:
        """Return a decision."""
        rows = self.database.reader().run("decisions", policy=policy, keys=[task])
        return decision_row(rows[0]) if rows else None

    def seats(self, policy: int, task: str) -> list[SeatRow]:
        """Return the seats of a task."""
        return [seat_row(row) for row in self.database.reader().run("read_seats", policy=policy, keys=[task])]

    def claims(self, policy: int, task: str) -> list[ClaimRow]:
        """Return who has held the seats of a task."""
        return [claim_row(row) for row in self.database.reader().run("claims", policy=policy, keys=[task])]

    def overdue(self, policy: int, now: int, after: tuple[int, str], limit: int) -> list[tuple[int, str]]:
        """Return a page of the tasks that hold budget beyond their deadline, each with it, the oldest first."""
        deadline, task = after
        return self.database.reader().run("overdue", policy=policy, now=now, deadline=deadline, task=task, limit=limit)

    def old_parked(self, policy: int, before: int, limit: int) -> list[str]:
        """Return the tasks of outcomes that were parked before a time, the oldest first."""
        rows = self.database.reader().run("old_parked", policy=policy, before=before, limit=limit)
        return [task for (task,) in rows]

    def has_old_payloads(self, policy: int, before: int) -> bool:
        """Whether there is something to erase of tasks that ended and were decided before a time."""
        return bool(self.database.reader().run("has_old_payloads", policy=policy, before=before))

    def parked_by_key(self, policy: int) -> dict[str, int]:
        """Return how many outcomes are parked by each API key."""
        return dict(self.database.reader().run("parked_by_key", policy=policy))

    def queue(self, policy: int) -> tuple[int, int, int | None]:
        """Return how many seats wait, how many are claimed, and since when the oldest is there."""
        return self.database.reader().run("queue", policy=policy)[0]
