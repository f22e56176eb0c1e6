"""Connections of the store: transactions, rows and their encoding, the memory of policies."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from deferkit.serve.api.common import Reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy_learner import memory_of
from deferkit.serve.domain.rows import ClaimRow, DecisionRow, LogRow, ParkedRow, RequestRow, SeatRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.domain.webhook import EventRow
from deferkit.serve.storage.database import Connection, Database

Result = TypeVar("Result")


class StoreConnections:
    """One writer connection for the writer thread, read-only connections for all others."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writer: Connection | None = None

    @property
    def writer(self) -> Connection:
        """The connection of the writer thread; opened on first use."""
        if self._writer is None:
            self._writer = self.database.writer()
        return self._writer

    def close(self) -> None:
        """Close all connections; the writer last, so that SQLite removes its -wal and -shm files."""
        self.database.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def in_own_transaction(self, query: Callable[[Connection], Result]) -> Result:
        """Run a query in a transaction of its own, in any thread; also for a policy that another process owns."""
        with self.database.checkout() as connection:
            try:
                connection.begin()
                result = query(connection)
                connection.commit()
                return result
            finally:
                connection.rollback()


AT_ONCE = 500  # settings that one query reads


class PolicyMemory:
    """Sums up the memory of a tenant's learners.

    Settings may be long, and the sum is needed where others wait: those of a policy are read once. No change of a
    policy but an upgrade changes its size. A number may be used again after a deletion, but not with the same time of
    creation.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[int, int], int]] = {}  # by tenant: number, time of creation: bytes

    def forget(self, tenant: str) -> None:
        """Reload the settings of a tenant's policies after an upgrade."""
        self._known.pop(tenant, None)

    def of_tenant(self, connection: Connection, tenant: str) -> int:
        """Return the memory of a tenant's policies in bytes, as a connection sees them.

        Args:
            connection: Where they are read: any reader, or the writer in its transaction.
            tenant: Whose policies.
        """
        before = self._known.get(tenant, {})
        there: list[tuple[int, int]] = [(number, created) for number, created in connection.run("ages", tenant=tenant)]
        new = [number for number, created in there if (number, created) not in before]
        specs: dict[int, str] = {}
        for i in range(0, len(new), AT_ONCE):
            specs |= dict(connection.run("specs", keys=new[i : i + AT_ONCE]))
        known = {}
        for number, created in there:
            if number in specs:
                known[number, created] = memory_of(msgspec.json.decode(specs[number], type=PolicySpec))
            elif (number, created) in before:  # else it was deleted between the two queries
                known[number, created] = before[number, created]
        self._known[tenant] = known
        return sum(known.values())


PAGE = 5000  # records that one query measures
BESIDE = 250  # bytes of a record in its row, and in the row and the reply of the decision that it changes


class PolicyBytes:
    """Sums up the bytes of policies in the store; of their logs, only what is new is read. Indexes come on top."""

    def __init__(self) -> None:
        self._logs: dict[tuple[int, int], tuple[int, int]] = {}  # by number and time of creation: records, bytes

    def of_tenant(self, connection: Connection, tenant: str) -> int:
        """Return the bytes of a tenant's policies: logs, payloads, parked outcomes, events, snapshots."""
        total = 0
        for number, created in connection.run("ages", tenant=tenant):
            records, size = self._logs.get((number, created), (0, 0))
            while True:
                [(n, more)] = connection.run("bytes_of_log", policy=number, seq=records, stop=records + PAGE)
                records, size = records + n, size + int(more or 0) + n * BESIDE
                if n < PAGE:
                    break
            self._logs[number, created] = records, size
            total += size + int(connection.run("bytes_beside_log", policy=number)[0][0])
        return total


to_json = msgspec.json.Encoder().encode


def to_json_column(value: Any) -> str | None:
    """Return plain data as a column of JSON; None as NULL."""
    return None if value is None else to_json(value).decode()


def from_json_column(text: str | None) -> Any:
    """Return the data of a JSON column; NULL as None."""
    return None if text is None else msgspec.json.decode(text)


def decision_row(row: tuple[Any, ...]) -> DecisionRow:
    """Return a row of decisions with its JSON read."""
    each = DecisionRow(*row)
    return each._replace(
        held=from_json_column(row[8]), rewards=from_json_column(row[9]), cost=from_json_column(row[10])
    )


def decision_values(row: DecisionRow) -> tuple[Any, ...]:
    """Return the columns of a decision."""
    return (*row[:8], to_json_column(row.held), to_json_column(row.rewards), to_json_column(row.cost), *row[11:])


def seat_row(row: tuple[Any, ...]) -> SeatRow:
    """Return a row of seats with its JSON read."""
    each = SeatRow(*row)
    return each._replace(rewards=from_json_column(row[14]), cost=from_json_column(row[15]))


def seat_values(row: SeatRow) -> tuple[Any, ...]:
    """Return the columns of a seat."""
    return row._replace(rewards=to_json_column(row.rewards), cost=to_json_column(row.cost))  # type: ignore[arg-type]


def oldest_parked_row(row: tuple[Any, ...]) -> ParkedRow:
    """Return a parked outcome, of a query by key."""
    policy, key, task, body, at = row
    return ParkedRow(policy, task, body, at, key)


def claim_row(row: tuple[Any, ...]) -> ClaimRow:
    """Return a row of claims with its JSON read."""
    token = None if row[7] is None else bytes(row[7])
    visible = None if row[8] is None else bool(row[8])
    return ClaimRow(*row)._replace(effort=from_json_column(row[6]), token=token, visible=visible)


class ReadSet(NamedTuple):
    """The rows that a command needs."""

    policy: int
    tasks: tuple[str, ...] = ()
    parked: bool = False
    seats: bool = False
    claims: bool = False
    request: str | None = None
    observes: bool = False  # whether the learner may be told of an outcome
    histories: bool = False  # observed and corrected records of the tasks
    parked_by: str | None = None  # the API keys whose oldest parked outcomes may be evicted
    replaces: bool = False  # whether the policy in memory is replaced: such a command is never blocked

    def reads(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the name of each query to be run, and the keys of the rows that it looks up."""
        if self.tasks:
            yield "decisions", self.tasks
            if self.parked:
                yield "parked", self.tasks
            if self.seats:
                yield "seats", self.tasks
            if self.claims:  # after the seats, whose row locks keep other processes from adding claims
                yield "claims", self.tasks
            if self.histories:
                yield "histories", self.tasks
        if self.parked_by is not None:
            yield "oldest_parked", (self.parked_by,)
        if self.request is not None:
            yield "requests", (self.request,)


class QueueQuery:
    """A query of the review queue that runs in the database, at the end of the transaction."""

    def __init__(self, execute: Callable[[Connection], Reply]) -> None:
        self._execute = execute
        self.reply: Reply | None = None

    def run(self, connection: Connection) -> Reply:
        """Run the query, and keep its reply."""
        self.reply = self._execute(connection)
        return self.reply


class Transaction:
    """The rows of one transaction: `Store.begin` reads them, `Store.commit` writes the changes."""

    def __init__(self) -> None:
        self.decisions: dict[tuple[int, str], DecisionRow | None] = {}
        self.parked: dict[tuple[int, str], ParkedRow | None] = {}
        self.oldest_parked: dict[tuple[int, str], list[ParkedRow]] = {}  # by policy and API keys
        self.seats: dict[tuple[int, str], list[SeatRow]] = {}
        self.claims: dict[tuple[int, str], list[ClaimRow]] = {}
        self.histories: dict[tuple[int, str], list[bytes]] = {}  # records of the log
        self.requests: dict[tuple[int, str], RequestRow | None] = {}
        self.changed: dict[int, OwnedPolicy] = {}
        self.log: list[LogRow] = []
        self.changed_decisions: dict[tuple[int, str], None] = {}
        self.changed_seats: dict[tuple[int, str, int], None] = {}
        self.new_parked: dict[tuple[int, str], ParkedRow] = {}
        self.dropped_parked: dict[tuple[int, str], None] = {}
        self.new_requests: list[RequestRow] = []
        self.efforts: list[dict[str, Any]] = []
        self.queue_queries: list[QueueQuery] = []
        self.events: list[EventRow] = []  # for webhooks

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.changed or self.queue_queries)
