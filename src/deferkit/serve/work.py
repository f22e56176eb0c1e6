"""A group of commands at work: what they have read, what they want to be written. One transaction."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from deferkit.serve.policy import Policy
from deferkit.serve.records import AnyRecord
from deferkit.serve.storage.database import Connection
from deferkit.serve.storage.rows import ClaimRow, DecisionRow, LogRow, ParkedRow, RequestRow, SeatRow
from deferkit.types import Drifted


class Reply(NamedTuple):
    """What a caller gets: a status and the bytes of a JSON document."""

    status: int
    body: bytes


class Needs(NamedTuple):
    """What a command must have read before it runs."""

    policy: int
    tasks: tuple[str, ...] = ()
    parked: bool = False
    seats: bool = False
    claims: bool = False
    request: str | None = None
    observes: bool = False  # whether the learner may be told of an outcome

    def reads(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the name of each query that is to be run, and the keys of the rows that it is to find."""
        if self.tasks:
            yield "decisions", self.tasks
            if self.parked:
                yield "parked", self.tasks
            if self.seats:
                yield "seats", self.tasks
            if self.claims:  # after the seats: those are locked then, and nobody else adds a claim
                yield "claims", self.tasks
        if self.request is not None:
            yield "requests", (self.request,)


class Held:
    """A policy that this process owns, in memory."""

    def __init__(self, number: int, tenant: str, policy: Policy, epoch: int, parked: int) -> None:
        self.id = number
        self.tenant = tenant
        self.policy = policy
        self.epoch = epoch
        self.parked = parked
        self.forgotten = 0  # parked outcomes that this process has let go of
        self.snapshot_at = policy.seq  # where the last snapshot was taken
        self._drifts = drifts_of(policy)
        self.ahead = 0  # microseconds: an owner before may have had another clock

    def time(self, now: int) -> int:
        """Return the time of the policy, which never goes back."""
        return now + self.ahead

    def new_drifts(self) -> list[Drifted]:
        """Return what has drifted since this was asked last."""
        before, self._drifts = self._drifts, drifts_of(self.policy)
        return [drift for name, drift in self._drifts.items() if name not in before or drift.times > before[name].times]


def drifts_of(policy: Policy) -> dict[str, Drifted]:
    """Return the latest drift of each target that has drifted."""
    return {drift.target: drift for drift in policy.learner.drifts()} if policy.spec.forget_used == "auto" else {}


class Question:
    """Something that is asked of the database itself, at the end of the transaction."""

    def __init__(self, ask: Callable[[Connection], Reply]) -> None:
        self._ask = ask
        self.reply: Reply | None = None

    def ask(self, connection: Connection) -> Reply:
        """Ask, and remember the reply."""
        self.reply = self._ask(connection)
        return self.reply


class Command(Protocol):
    """Something that a caller wants of a policy."""

    def needs(self, held: Held) -> Needs:
        """Return what must be read first."""
        ...

    def run(self, held: Held, work: "Work", now: int) -> Reply | Question:
        """Do it, or raise a `Problem` before anything was changed."""
        ...


class Work:
    """What a group has read and changed."""

    def __init__(self) -> None:
        self.decisions: dict[tuple[int, str], DecisionRow | None] = {}
        self.parked: dict[tuple[int, str], ParkedRow | None] = {}
        self.seats: dict[tuple[int, str], list[SeatRow]] = {}
        self.claims: dict[tuple[int, str], list[ClaimRow]] = {}
        self.requests: dict[tuple[int, str], RequestRow | None] = {}
        self.changed: dict[int, Held] = {}
        self.log: list[LogRow] = []
        self.changed_decisions: dict[tuple[int, str], None] = {}
        self.changed_seats: dict[tuple[int, str, int], None] = {}
        self.new_parked: dict[tuple[int, str], ParkedRow] = {}
        self.dropped_parked: dict[tuple[int, str], None] = {}
        self.new_requests: list[RequestRow] = []
        self.efforts: list[dict[str, Any]] = []
        self.questions: list[Question] = []

    def observes(self, needs: Needs) -> bool:
        """Whether a command with these needs may tell the learner of an outcome: its own, or one that was parked."""
        return needs.observes or any(self.parked.get((needs.policy, task)) is not None for task in needs.tasks)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.changed or self.questions)

    def record(self, held: Held, record: AnyRecord, now: int, task: str | None = None) -> None:
        """Let something happen to a policy, and have it logged."""
        seq = held.policy.seq
        self.changed[held.id] = held
        body = held.policy.append(record, now)
        kind = record.__struct_config__.tag
        self.log.append(LogRow(held.id, seq, now, kind, task, body, held.policy.head))  # type: ignore[arg-type]

    def put_decision(self, row: DecisionRow) -> None:
        """Have a decision written."""
        key = (row.policy, row.task)
        self.decisions[key] = row
        self.changed_decisions[key] = None

    def put_seats(self, rows: list[SeatRow]) -> None:
        """Have the seats of a task written."""
        for row in rows:
            self.changed_seats[row.policy, row.task, row.seat] = None
        self.seats[rows[0].policy, rows[0].task] = rows

    def park(self, held: Held, row: ParkedRow) -> None:
        """Keep an outcome until its decision comes."""
        key = (row.policy, row.task)
        held.parked += self.parked.get(key) is None
        self.changed[held.id] = held
        self.parked[key] = self.new_parked[key] = row
        self.dropped_parked.pop(key, None)

    def unpark(self, held: Held, task: str) -> None:
        """Let go of an outcome whose decision has come."""
        key = (held.id, task)
        held.parked -= 1
        self.changed[held.id] = held
        self.parked[key] = None
        self.new_parked.pop(key, None)
        self.dropped_parked[key] = None

    def answer(self, row: RequestRow) -> None:
        """Keep a reply for when its request is repeated."""
        self.requests[row.policy, row.request] = row
        self.new_requests.append(row)
