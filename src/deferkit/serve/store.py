"""Policies, decisions, reviews and keys in a database. Everything that writes is one transaction."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from deferkit.serve import chain
from deferkit.serve.account import Account
from deferkit.serve.database import Connection, Database
from deferkit.serve.policy import Policy
from deferkit.serve.problems import Fenced
from deferkit.serve.rows import (
    ClaimRow,
    DecisionRow,
    KeyRow,
    LogRow,
    ParkedRow,
    PolicyRow,
    RequestRow,
    SeatRow,
)
from deferkit.serve.store_rows import claim_row, decision_row, decision_values, seat_row, seat_values, text_of, to_json
from deferkit.serve.work import Needs, Work

Result = TypeVar("Result")
SNAPSHOTS_KEPT = 3
PAGE = 5000


class Store:
    """One writer connection for the thread that writes, readers for all others."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writer: Connection | None = None

    @property
    def writer(self) -> Connection:
        """The connection that writes; opened by the thread that first asks for it."""
        if self._writer is None:
            self._writer = self.database.writer()
        return self._writer

    def close(self) -> None:
        """Close all connections; the writer last, because SQLite tidies up with the last one if that may write."""
        self.database.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # --- a group of commands, one transaction -------------------------------------------------------------------

    def begin(self, needs: Iterable[Needs]) -> Work:
        """Begin a transaction and read what the commands of a group need."""
        writer = self.writer
        writer.begin()
        work = Work()
        for need in needs:
            policy = need.policy
            for task in need.tasks:
                key = (policy, task)
                if key not in work.decisions:
                    rows = writer.run("decision", policy=policy, task=task)
                    work.decisions[key] = decision_row(rows[0]) if rows else None
                if need.parked and key not in work.parked:
                    rows = writer.run("parked", policy=policy, task=task)
                    work.parked[key] = ParkedRow(*rows[0]) if rows else None
                if need.seats and key not in work.seats:
                    work.seats[key] = [seat_row(row) for row in writer.run("seats", policy=policy, task=task)]
                if need.claims and key not in work.claims:
                    work.claims[key] = [claim_row(row) for row in writer.run("claims", policy=policy, task=task)]
            if need.request is not None and (policy, need.request) not in work.requests:
                rows = writer.run("request", policy=policy, request=need.request)
                work.requests[policy, need.request] = RequestRow(*rows[0]) if rows else None
        return work

    def commit(self, work: Work, owner: str, expires: int) -> None:
        """Write what the commands of a group have changed, run their questions to the queue, and commit."""
        writer = self.writer
        for held in work.changed.values():
            policy = held.policy
            values = {
                "policy": held.id,
                "owner": owner,
                "epoch": held.epoch,
                "seq": policy.seq,
                "head": policy.head,
                "expires": expires,
                "spec": to_json(policy.spec).decode(),
                "parked": held.parked,
            }
            if not writer.run("advance", **values):
                raise Fenced(held.id)
            for resource, account in policy.accounts.items():
                writer.run("set_budget", policy=held.id, resource=resource, **account._asdict())
        writer.many("add_log", work.log)
        if work.changed_decisions:
            writer.many("put_decision", [decision_values(work.decisions[key]) for key in work.changed_decisions])  # type: ignore[arg-type]
        if work.changed_seats:
            writer.many("put_seat", [seat_values(work.seats[p, t][seat]) for p, t, seat in work.changed_seats])
        if work.new_parked:
            writer.many("put_parked", list(work.new_parked.values()))
        if work.dropped_parked:
            writer.many("drop_parked", list(work.dropped_parked))
        if work.new_requests:
            writer.many("add_request", work.new_requests)
        for values in work.efforts:
            writer.run("set_effort", **values | {"effort": text_of(values["effort"])})
        for question in work.questions:
            question.ask(writer)
        writer.commit()

    def rollback(self) -> None:
        """Undo what a group has written."""
        if self._writer is not None:
            self._writer.rollback()

    def directly(self, question: Callable[[Connection], Result]) -> Result:
        """Ask the queue something in a transaction of its own, from any thread of any process."""
        connection = self.database.writer()
        try:
            connection.begin()
            result = question(connection)
            connection.commit()
            return result
        finally:
            connection.rollback()
            connection.close()

    # --- owning ---------------------------------------------------------------------------------------------------

    def add_policy(
        self, tenant: str, policy: Policy, first: LogRow, owner: str, address: str | None, expires: int
    ) -> int | None:
        """Write a new policy and own it; return its number, None if the name is taken."""
        writer = self.writer
        writer.begin()
        try:
            if writer.run("policy", tenant=tenant, name=policy.spec.name):
                return None
            [(number,)] = writer.run(
                "add_policy",
                tenant=tenant,
                name=policy.spec.name,
                spec=to_json(policy.spec).decode(),
                head=chain.START,
                at=first.at,
                owner=owner,
                address=address,
                expires=expires,
            )
            for resource, account in policy.accounts.items():
                writer.run("add_budget", policy=number, resource=resource, **account._asdict())
            writer.many("add_log", [first._replace(policy=number)])
            writer.run(
                "advance",
                policy=number,
                owner=owner,
                epoch=1,
                seq=policy.seq,
                head=policy.head,
                expires=expires,
                spec=to_json(policy.spec).decode(),
                parked=0,
            )
            writer.commit()
            return int(number)
        finally:
            writer.rollback()

    def acquire(
        self, row: PolicyRow, owner: str, address: str | None, now: int, expires: int, *, dead: str | None
    ) -> int | None:
        """Own a policy if nobody else does; return the new epoch. Leases of reviewers are renewed."""
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
                dead=dead,
            )
            if not found:
                return None
            lease = int(msgspec.json.decode(row.spec)["lease_s"] * 1e6)
            writer.run("renew_leases", policy=row.id, lease_until=now + lease)
            writer.commit()
            return int(found[0][0])
        finally:
            writer.rollback()

    def renew(self, policy: int, owner: str, epoch: int, expires: int) -> bool:
        """Own a policy for longer; False if it is another's by now."""
        writer = self.writer
        writer.begin()
        try:
            found = writer.run("renew", policy=policy, owner=owner, epoch=epoch, expires=expires)
            writer.commit()
            return bool(found)
        finally:
            writer.rollback()

    def disown(self, policy: int, owner: str, epoch: int) -> None:
        """Give a policy up, so that another process need not wait for it."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("disown", policy=policy, owner=owner, epoch=epoch)
            writer.commit()
        finally:
            writer.rollback()

    def add_snapshot(self, policy: int, seq: int, data: bytes) -> None:
        """Keep a snapshot, and the two before it."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("add_snapshot", policy=policy, seq=seq, sha256=hashlib.sha256(data).digest(), data=data)
            writer.run("drop_snapshots", policy=policy, keep=SNAPSHOTS_KEPT)
            writer.commit()
        finally:
            writer.rollback()

    # --- reading, from any thread ---------------------------------------------------------------------------------

    def policies(self) -> list[PolicyRow]:
        """Return all policies of all tenants."""
        return [PolicyRow(*row) for row in self.database.reader().run("policies")]

    def policies_of(self, tenant: str, after: str, limit: int) -> list[PolicyRow]:
        """Return a page of a tenant's policies."""
        rows = self.database.reader().run("policies_of", tenant=tenant, after=after, limit=limit)
        return [PolicyRow(*row) for row in rows]

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
        rows = self.database.reader().run("decision", policy=policy, task=task)
        return decision_row(rows[0]) if rows else None

    def seats(self, policy: int, task: str) -> list[SeatRow]:
        """Return the seats of a task."""
        return [seat_row(row) for row in self.database.reader().run("read_seats", policy=policy, task=task)]

    def claims(self, policy: int, task: str) -> list[ClaimRow]:
        """Return who has held the seats of a task."""
        return [claim_row(row) for row in self.database.reader().run("claims", policy=policy, task=task)]

    def overdue(self, policy: int, now: int, limit: int) -> list[str]:
        """Return tasks whose deadline has passed."""
        return [task for (task,) in self.database.reader().run("overdue", policy=policy, now=now, limit=limit)]

    def queue(self, policy: int) -> tuple[int, int, int | None]:
        """Return how many seats wait, how many are claimed, and since when the oldest is there."""
        return self.database.reader().run("queue", policy=policy)[0]

    def log_of_task(self, policy: int, task: str, limit: int) -> list[LogRow]:
        """Return what happened to a task."""
        return [
            LogRow(*row) for row in self.database.reader().run("log_of_task", policy=policy, task=task, limit=limit)
        ]

    def log_page(self, policy: int, seq: int, limit: int) -> list[LogRow]:
        """Return a page of the log."""
        return [LogRow(*row) for row in self.database.reader().run("log_after", policy=policy, seq=seq, limit=limit)]

    def log(self, policy: int, seq: int = 0) -> Iterator[LogRow]:
        """Yield the rows of the log from a place on."""
        while page := self.log_page(policy, seq, PAGE):
            yield from page
            seq = page[-1].seq + 1

    def snapshots(self, policy: int) -> Iterator[tuple[int, bytes]]:
        """Yield the snapshots that are whole, the latest first."""
        for seq, sha256, data in self.database.reader().run("snapshots", policy=policy):
            if hashlib.sha256(data).digest() == bytes(sha256):
                yield seq, bytes(data)

    def last_time(self) -> int:
        """Return the latest time that any log has."""
        return int(self.database.reader().run("last_time")[0][0] or 0)

    # --- keys -----------------------------------------------------------------------------------------------------

    def keys(self) -> list[KeyRow]:
        """Return all keys."""
        return [KeyRow(*row) for row in self.database.reader().run("keys")]

    def add_key(self, key: KeyRow) -> None:
        """Write a new key."""
        values = key._asdict()
        values.pop("revoked")
        self.directly(lambda connection: connection.run("add_key", **values))

    def revoke_key(self, number: str, at: int) -> bool:
        """Revoke a key; False if there is none to revoke."""
        return bool(self.directly(lambda connection: connection.run("revoke_key", id=number, at=at)))
