"""The store: leases of policies, their logs, tasks and keys."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import Account
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import memory_of
from deferkit.serve.domain.problems import Fenced, TooManyPolicies, TooMuchMemory
from deferkit.serve.domain.rows import (
    ClaimRow,
    DecisionRow,
    KeyRow,
    LogRow,
    ParkedRow,
    PolicyRow,
    RequestRow,
    SeatRow,
    SessionRow,
)
from deferkit.serve.domain.webhook import UNDELIVERED, EventRow
from deferkit.serve.storage.connections import (
    PolicyMemory,
    ReadSet,
    StoreConnections,
    Transaction,
    claim_row,
    decision_row,
    decision_values,
    oldest_parked_row,
    seat_row,
    seat_values,
    to_json,
    to_json_column,
)
from deferkit.serve.storage.database import Connection, Database, Row


class KeyStore(StoreConnections):
    """The tables of keys and sessions."""

    def keys(self) -> list[KeyRow]:
        """Return all keys."""
        return [KeyRow(*row) for row in self.database.reader().run("keys")]

    def add_key(self, key: KeyRow) -> None:
        """Write a new key."""
        values = key._asdict()
        del values["revoked"], values["last_used"]
        self.in_own_transaction(lambda connection: connection.run("add_key", **values))

    def revoke_keys_of(self, tenant: str, at: int) -> int:
        """Revoke all keys of a tenant; return how many there were."""
        return len(self.in_own_transaction(lambda connection: connection.run("revoke_keys_of", tenant=tenant, at=at)))

    def revoke_key(self, number: str, at: int, *, tenant: str | None = None) -> bool:
        """Revoke a key, only of a tenant if one is given; False if there is none to revoke."""
        if tenant is None:
            return bool(self.in_own_transaction(lambda connection: connection.run("revoke_key", id=number, at=at)))
        return bool(
            self.in_own_transaction(lambda connection: connection.run("revoke_key_of", id=number, at=at, tenant=tenant))
        )

    def use_keys(self, used: Mapping[str, int]) -> None:
        """Write when keys were last used."""
        calls = [("use_key", {"id": number, "at": at}) for number, at in used.items()]
        self.in_own_transaction(lambda connection: connection.run_all(calls))

    def sessions(self, now: int) -> list[SessionRow]:
        """Return the sessions that are neither revoked nor expired."""
        rows = self.database.reader().run("sessions", now=now)
        return [SessionRow(bytes(number), *rest) for number, *rest in rows]

    def add_session(self, row: SessionRow, *, most: int) -> None:
        """Write a new session; only the latest `most` of its key are kept, and expired ones are dropped."""
        values = row._asdict()
        del values["revoked"]

        def add(connection: Connection) -> None:
            connection.run("drop_sessions", now=row.created)
            connection.run("add_session", **values)
            connection.run("revoke_oldest_sessions", key=row.key, at=row.created, keep=most)

        self.in_own_transaction(add)

    def revoke_session(self, number: bytes, at: int) -> None:
        """End a session."""
        self.in_own_transaction(lambda connection: connection.run("revoke_session", id=number, at=at))


# in the order in which their rows are deleted
POLICY_TABLES = (
    "declines",
    "claims",
    "seats",
    "snapshots",
    "requests",
    "parked",
    "decisions",
    "log",
    "budgets",
    "deliveries",
    "event_deliveries",
    "events",
    "webhooks",
)
SLICE = 500  # rows that are deleted in one transaction: other callers wait for it


def advance_values(policy: Policy, number: int, epoch: int, owner: str, expires: int, parked: int) -> dict[str, Any]:
    """Return the parameters of the query `advance`: the new end of a policy's log, fenced by owner and epoch."""
    return {
        "policy": number,
        "owner": owner,
        "epoch": epoch,
        "seq": policy.seq,
        "head": policy.head,
        "expires": expires,
        "spec": to_json(policy.spec).decode(),
        "parked": parked,
    }


class PolicyLeases(StoreConnections):
    """Ownership leases: a process may change a policy while it owns it. Writes are for the writer thread only."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._memory = PolicyMemory()

    def add_policy(
        self,
        tenant: str,
        policy: Policy,
        first: LogRow,
        owner: str,
        address: str | None,
        expires: int,
        *,
        most: int | None = None,
        most_memory: int | None = None,
    ) -> int | None:
        """Write a new policy and acquire it; return its number, None if the name is taken.

        Raises `TooManyPolicies` if the tenant has `most` of them, `TooMuchMemory` if with this one they would take more
        than `most_memory` bytes.
        """
        writer = self.writer
        writer.begin()
        try:
            # concurrent creations must not use the same number or name, nor exceed the tenant's limit together
            writer.lock("policies")
            if writer.run("policy", tenant=tenant, name=policy.spec.name):
                return None
            if most is not None and writer.run("count_policies", tenant=tenant)[0][0] >= most:
                raise TooManyPolicies(most)
            if most_memory is not None:
                needed, taken = memory_of(policy.spec), self._memory.of_tenant(writer, tenant)
                if taken + needed > most_memory:
                    raise TooMuchMemory(needed, taken, most_memory)
            [(number,)] = writer.run(
                "add_policy",
                tenant=tenant,
                name=policy.spec.name,
                spec=to_json(policy.spec).decode(),
                head=records.START,
                at=first.at,
                owner=owner,
                address=address,
                expires=expires,
            )
            accounts = policy.accounts.items()
            writer.write_all(
                {
                    "add_budget": [(number, resource, *account) for resource, account in accounts],
                    "add_log": [first._replace(policy=number)],
                }
            )
            writer.run("advance", **advance_values(policy, number, 1, owner, expires, 0))
            writer.commit()
            return int(number)
        finally:
            writer.rollback()

    def memory_taken(self, tenant: str) -> int:
        """Return the memory of a tenant's learners in bytes, over all processes."""
        return self._memory.of_tenant(self.database.reader(), tenant)

    def forget_memory(self, tenant: str) -> None:
        """Recompute the memory of a tenant's learners after an upgrade."""
        self._memory.forget(tenant)

    def acquire(
        self, row: PolicyRow, owner: str, address: str | None, now: int, expires: int, *, dead: str | None
    ) -> int | None:
        """Acquire a policy without an owner; return the new epoch, or None. Renews the leases of reviewers."""
        writer = self.writer
        writer.begin()
        try:
            found = writer.run(
                "acquire",
                policy=row.id,
                owner=owner,
                address=address,
                epoch=row.epoch,
                now=now,
                expires=expires,
                owners=[owner] if dead is None else [owner, dead],
            )
            if not found:
                return None
            lease = int(msgspec.json.decode(row.spec)["lease_s"] * 1e6)
            writer.run("renew_leases", policy=row.id, lease_until=now + lease)
            writer.commit()
            return int(found[0][0])
        finally:
            writer.rollback()

    def renew(self, epochs: Mapping[int, int], owner: str, expires: int) -> set[int]:
        """Renew the leases of policies, given the epoch of each; return those that another process has acquired."""
        writer = self.writer
        writer.begin()
        try:
            values = {"owner": owner, "expires": expires}
            found = writer.run_all([("renew", {"policy": p, "epoch": e, **values}) for p, e in epochs.items()])
            writer.commit()
            return {policy for policy, rows in zip(epochs, found, strict=True) if not rows}
        finally:
            writer.rollback()

    def release_policy(self, policy: int, owner: str, epoch: int) -> None:
        """Release the lease of a policy, so that another process can acquire it before the lease expires."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("release_policy", policy=policy, owner=owner, epoch=epoch)
            writer.commit()
        finally:
            writer.rollback()

    def retire_policy(self, policy: int, owner: str, epoch: int) -> bool:
        """Retire a policy, so that its tenant does not see it, before its rows are deleted; False if not the owner."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("retire_webhooks", policy=policy)
            found = writer.run("retire_policy", policy=policy, owner=owner, epoch=epoch)
            if found:
                writer.commit()
            return bool(found)
        finally:
            writer.rollback()

    def retired_policies(self) -> list[int]:
        """Return the retired policies that still have rows."""
        return [number for (number,) in self.database.reader().run("retired_policies")]

    def delete_slice(self, policy: int) -> bool:
        """Delete up to `SLICE` rows of a retired policy in one transaction; False if none are left."""
        writer = self.writer
        writer.begin()
        try:
            for name in POLICY_TABLES:
                if writer.run(f"delete_{name}", policy=policy, **({} if name == "snapshots" else {"most": SLICE})):
                    writer.commit()
                    return True
            writer.run("delete_policy", policy=policy)
            writer.commit()
            return False
        finally:
            writer.rollback()


SNAPSHOTS_KEPT = 3
PAGE = 5000


class PolicyLog(StoreConnections):
    """Reads logs in any thread, and writes snapshots in the writer thread. `Store.commit` appends to logs."""

    def log_of_task(self, policy: int, task: str, limit: int) -> list[LogRow]:
        """Return the log rows of a task."""
        return [
            LogRow(*row) for row in self.database.reader().run("log_of_task", policy=policy, task=task, limit=limit)
        ]

    def log_page(self, policy: int, seq: int, limit: int) -> list[LogRow]:
        """Return a page of the log."""
        return [LogRow(*row) for row in self.database.reader().run("log_after", policy=policy, seq=seq, limit=limit)]

    def log_bodies(self, policy: int, seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return time and body of each row of a page of the log; half the cost of `log_page`."""
        return self.database.reader().run("log_bodies", policy=policy, seq=seq, limit=limit)

    def relearning_rows(self, policy: int, seq: int) -> list[LogRow]:
        """Return the rows of the log, from number `seq` on, that rebuild the learner."""
        return [LogRow(*row) for row in self.database.reader().run("relearning_rows", policy=policy, seq=seq)]

    def log(self, policy: int, seq: int = 0) -> Iterator[LogRow]:
        """Yield the rows of the log from number `seq` on."""
        while page := self.log_page(policy, seq, PAGE):
            yield from page
            seq = page[-1].seq + 1

    def snapshots(self, policy: int) -> Iterator[tuple[int, bytes]]:
        """Yield the snapshots with a valid checksum, latest first."""
        for seq, sha256, data in self.database.reader().run("snapshots", policy=policy):
            if hashlib.sha256(data).digest() == bytes(sha256):
                yield seq, bytes(data)

    def snapshot_seqs(self, policy: int) -> list[int]:
        """Return the sequence numbers at which there are snapshots."""
        return [seq for (seq,) in self.database.reader().run("snapshot_seqs", policy=policy)]

    def last_time(self) -> int:
        """Return the latest time that any log has."""
        return int(self.database.reader().run("last_time")[0][0] or 0)

    def clock(self, boot: str) -> tuple[int, int] | None:
        """Return wall clock and uptime, in microseconds, at the last start in this boot; None if there was none."""
        rows = self.database.reader().run("clock", boot=boot)
        return rows[0] if rows else None

    def put_clock(self, boot: str, wall: int, uptime: int) -> None:
        """Store wall clock and uptime at a start."""
        self.in_own_transaction(lambda connection: connection.run("put_clock", boot=boot, wall=wall, uptime=uptime))

    def add_snapshot(self, policy: int, seq: int, data: bytes) -> None:
        """Write a snapshot; only the latest `SNAPSHOTS_KEPT` are kept."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("add_snapshot", policy=policy, seq=seq, sha256=hashlib.sha256(data).digest(), data=data)
            writer.run("drop_snapshots", policy=policy, keep=SNAPSHOTS_KEPT)
            writer.commit()
        finally:
            writer.rollback()


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


def event_values(events: Sequence[EventRow]) -> dict[str, list[Row]]:
    """Return the rows of events, and one of each for each of its webhooks, by the query that writes them."""
    return {
        "add_event": [(*event[:5], len(event.webhooks)) for event in events],
        "add_delivery": [
            (webhook, event.created, event.id, event.policy, event.created, UNDELIVERED, 0, None, None, None)
            for event in events
            for webhook in event.webhooks
        ],
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
        """Write the changes of a group's commands, run their queries of the queue, and commit."""
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
        if work.events:
            writer.write_all(event_values(work.events))
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
        """Return the number of a tenant's policies."""
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
        """Return the claims of a task's seats."""
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
        """Whether ended tasks that were decided before a time have payloads to erase."""
        return bool(self.database.reader().run("has_old_payloads", policy=policy, before=before))

    def parked_by_key(self, policy: int) -> dict[str, int]:
        """Return the number of parked outcomes by API key."""
        return dict(self.database.reader().run("parked_by_key", policy=policy))

    def queue(self, policy: int) -> tuple[int, int, int | None]:
        """Return the number of waiting and of claimed seats, and the creation time of the oldest."""
        return self.database.reader().run("queue", policy=policy)[0]
