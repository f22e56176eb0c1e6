"""Policies, decisions, reviews and keys in a database. Everything that writes is one transaction."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from deferkit.serve.domain import hash_chain
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Fenced, TooManyPolicies
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
from deferkit.serve.storage.database import Connection, Database, Row
from deferkit.serve.storage.row_codec import (
    claim_row,
    decision_row,
    decision_values,
    oldest_parked_row,
    seat_row,
    seat_values,
    text_of,
    to_json,
)
from deferkit.serve.storage.transaction import ReadSet, Transaction

Result = TypeVar("Result")
Unit = TypeVar("Unit", bound=Transaction)
SNAPSHOTS_KEPT = 3
# tables
OF_A_POLICY = (
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
    "webhooks",
)
PAGE = 5000
SLICE = 500  # rows of a policy that are deleted at once: others wait for as long
# what a row of each table is to a command: there is one for a key, or several
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


def advanced(policy: Policy, number: int, epoch: int, owner: str, expires: int, parked: int) -> dict[str, Any]:
    """Return where the log of a policy ends now, for a query that writes it if this process still owns the policy."""
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
        """Close all connections; the one that writes last, because SQLite then leaves one file and no other."""
        self.database.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

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
            ("advance", advanced(owned.policy, owned.id, owned.epoch, owner, expires, owned.parked))
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
                    (text_of(each["effort"]), each["policy"], each["task"], each["seat"], each["epoch"])
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
        """Undo what a group has written."""
        if self._writer is not None:
            self._writer.rollback()

    def directly(self, query: Callable[[Connection], Result]) -> Result:
        """Run a query of the queue in a transaction of its own, from any thread of any process."""
        with self.database.lend() as connection:
            try:
                connection.begin()
                result = query(connection)
                connection.commit()
                return result
            finally:
                connection.rollback()

    # --- owning ---------------------------------------------------------------------------------------------------

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
    ) -> int | None:
        """Write a new policy and own it; return its number, None if the name is taken.

        Raises `TooManyPolicies` if the tenant has `most` of them.
        """
        writer = self.writer
        writer.begin()
        try:
            # two processes must not give out one number, or one name, or both the last policy that a tenant may have
            writer.lock("policies")
            if writer.run("policy", tenant=tenant, name=policy.spec.name):
                return None
            if most is not None and writer.run("count_policies", tenant=tenant)[0][0] >= most:
                raise TooManyPolicies(most)
            [(number,)] = writer.run(
                "add_policy",
                tenant=tenant,
                name=policy.spec.name,
                spec=to_json(policy.spec).decode(),
                head=hash_chain.START,
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
            writer.run("advance", **advanced(policy, number, 1, owner, expires, 0))
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
        """Own policies for longer, given the epoch of each; return those that are another's by now."""
        writer = self.writer
        writer.begin()
        try:
            values = {"owner": owner, "expires": expires}
            found = writer.run_all([("renew", {"policy": p, "epoch": e, **values}) for p, e in epochs.items()])
            writer.commit()
            return {policy for policy, rows in zip(epochs, found, strict=True) if not rows}
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

    def retire_policy(self, policy: int, owner: str, epoch: int) -> bool:
        """Take a policy from its tenant, before its rows are deleted; False if another process owns it by now."""
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
        """Return the policies whose rows are yet to be deleted."""
        return [number for (number,) in self.database.reader().run("retired_policies")]

    def delete_slice(self, policy: int) -> bool:
        """Delete some rows of a retired policy, in one transaction; False if it was the last: the policy is gone."""
        writer = self.writer
        writer.begin()
        try:
            for name in OF_A_POLICY:
                if writer.run(f"delete_{name}", policy=policy, **({} if name == "snapshots" else {"most": SLICE})):
                    writer.commit()
                    return True
            writer.run("delete_policy", policy=policy)
            writer.commit()
            return False
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

    def log_of_task(self, policy: int, task: str, limit: int) -> list[LogRow]:
        """Return what happened to a task."""
        return [
            LogRow(*row) for row in self.database.reader().run("log_of_task", policy=policy, task=task, limit=limit)
        ]

    def log_page(self, policy: int, seq: int, limit: int) -> list[LogRow]:
        """Return a page of the log."""
        return [LogRow(*row) for row in self.database.reader().run("log_after", policy=policy, seq=seq, limit=limit)]

    def log_bodies(self, policy: int, seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the time and the record of each row of a page of the log: half the work of whole rows."""
        return self.database.reader().run("log_bodies", policy=policy, seq=seq, limit=limit)

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

    def snapshot_places(self, policy: int) -> list[int]:
        """Return where in the log there are snapshots."""
        return [seq for (seq,) in self.database.reader().run("snapshot_places", policy=policy)]

    def last_time(self) -> int:
        """Return the latest time that any log has."""
        return int(self.database.reader().run("last_time")[0][0] or 0)

    def clock(self, boot: str) -> tuple[int, int] | None:
        """Return what the clock said at the last start in this boot of a machine, and for how long it had run then."""
        rows = self.database.reader().run("clock", boot=boot)
        return rows[0] if rows else None

    def put_clock(self, boot: str, wall: int, uptime: int) -> None:
        """Keep what the clock says at a start."""
        self.directly(lambda connection: connection.run("put_clock", boot=boot, wall=wall, uptime=uptime))

    # --- keys -----------------------------------------------------------------------------------------------------

    def keys(self) -> list[KeyRow]:
        """Return all keys."""
        return [KeyRow(*row) for row in self.database.reader().run("keys")]

    def add_key(self, key: KeyRow) -> None:
        """Write a new key."""
        values = key._asdict()
        del values["revoked"], values["last_used"]
        self.directly(lambda connection: connection.run("add_key", **values))

    def revoke_keys_of(self, tenant: str, at: int) -> int:
        """Revoke all keys of a tenant; return how many there were."""
        return len(self.directly(lambda connection: connection.run("revoke_keys_of", tenant=tenant, at=at)))

    def revoke_key(self, number: str, at: int, *, tenant: str | None = None) -> bool:
        """Revoke a key, only of a tenant if one is given; False if there is none to revoke."""
        if tenant is None:
            return bool(self.directly(lambda connection: connection.run("revoke_key", id=number, at=at)))
        return bool(self.directly(lambda connection: connection.run("revoke_key_of", id=number, at=at, tenant=tenant)))

    def use_keys(self, used: Mapping[str, int]) -> None:
        """Write when keys were last used."""
        calls = [("use_key", {"id": number, "at": at}) for number, at in used.items()]
        self.directly(lambda connection: connection.run_all(calls))

    # --- sessions of browsers -------------------------------------------------------------------------------------

    def sessions(self, now: int) -> list[SessionRow]:
        """Return the sessions that are neither revoked nor expired."""
        rows = self.database.reader().run("sessions", now=now)
        return [SessionRow(bytes(number), *rest) for number, *rest in rows]

    def add_session(self, row: SessionRow, *, most: int) -> None:
        """Write a new session; only the latest `most` of its key stay, and those that have expired are dropped."""
        values = row._asdict()
        del values["revoked"]

        def add(connection: Connection) -> None:
            connection.run("drop_sessions", now=row.created)
            connection.run("add_session", **values)
            connection.run("revoke_oldest_sessions", key=row.key, at=row.created, keep=most)

        self.directly(add)

    def revoke_session(self, number: bytes, at: int) -> None:
        """End a session."""
        self.directly(lambda connection: connection.run("revoke_session", id=number, at=at))
