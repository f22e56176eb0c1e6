"""A transaction for a group of commands: the rows that they read, and the rows that they write."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.rows import ClaimRow, DecisionRow, LogRow, ParkedRow, RequestRow, SeatRow
from deferkit.serve.domain.webhook import DeliveryRow
from deferkit.serve.storage.database import Connection


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
    """The rows of one transaction: `Store.begin` fills in what was read, `Store.commit` writes what was changed."""

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
        self.deliveries: list[DeliveryRow] = []  # of events to webhooks

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.changed or self.queue_queries)
