"""Rows of the store. Times are microseconds."""

from typing import NamedTuple

from deferkit.serve.domain.accounts import Micros

# states of a decision's reservation: model → – ; open → posted | void ; void → posted (a late cost)
MODEL, OPEN, POSTED, VOID = "model", "open", "posted", "void"
# states of a seat: waiting ⇄ claimed → done ; waiting | claimed → closed
WAITING, CLAIMED, DONE, CLOSED = "waiting", "claimed", "done", "closed"


class PolicyRow(NamedTuple):
    """A policy, the end of its log (`seq`, `head`), and its ownership lease."""

    id: int
    tenant: str
    name: str
    spec: str  # JSON
    seq: int
    head: bytes
    created: int
    owner: str | None
    address: str | None
    epoch: int
    expires: int
    parked: int


class DecisionRow(NamedTuple):
    """A decision: its reply and its outcome."""

    policy: int
    task: str
    id: int
    digest: bytes  # of the request
    reply: bytes
    at: int
    route: str
    state: str
    held: Micros | None
    rewards: dict[str, float]
    cost: Micros | None
    final: str | None  # whose answer is used: the model's, an expert's, None while it is open
    answer: str | None  # JSON of that answer, where it is an expert's
    told: str  # what the learner was told of: deciders, and $cost, separated by spaces


def is_stopped(row: DecisionRow) -> bool:
    """Whether an expert was paid, and the model's answer is used: the review was stopped, or came too late."""
    return row.route != MODEL and row.state == POSTED and row.final == MODEL


class SeatRow(NamedTuple):
    """A seat: the place of one reviewer at one task."""

    policy: int
    task: str
    seat: int
    expert: str
    state: str
    epoch: int
    reviewer: str | None
    lease_until: int
    priority: float
    created: int
    deadline: int | None
    payload: str | None  # JSON
    model_answer: str | None  # JSON
    answer: str | None  # JSON
    rewards: dict[str, float]
    cost: Micros | None


class LogRow(NamedTuple):
    """A row of the log."""

    policy: int
    seq: int
    at: int
    kind: str
    task: str | None
    body: bytes
    hash: bytes


class ParkedRow(NamedTuple):
    """An outcome that came before its decision."""

    policy: int
    task: str
    body: bytes
    at: int
    key: str = ""  # ids of the API keys that it came with, sorted and separated by spaces; '' is a call without one


class RequestRow(NamedTuple):
    """An idempotency key, the digest of its request, and the reply."""

    policy: int
    request: str
    digest: bytes
    reply: bytes


class ClaimRow(NamedTuple):
    """One reviewer's hold on a seat; `effort` is set once, if the work came to nothing and was paid."""

    policy: int
    task: str
    seat: int
    epoch: int
    reviewer: str
    at: int
    effort: Micros | None
    token: bytes | None = None  # hash of the claim token; None: claimed before there were tokens
    visible: bool | None = None  # whether the reviewer was shown the model's answer; None: claimed before that was kept


class KeyRow(NamedTuple):
    """An API key: its hash, never the key."""

    id: str
    tenant: str
    hash: bytes
    scopes: str  # separated by spaces
    name: str
    created: int
    revoked: int | None
    expires: int | None = None
    last_used: int | None = None
    reviewer: str | None = None  # the only reviewer that it may claim for; None: any

    def usable(self, now: int) -> bool:
        """Return whether the key is neither revoked nor expired at a time in microseconds."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class SessionRow(NamedTuple):
    """A session of a browser. It is good only as long as the key that it was opened with."""

    id: bytes  # hash of what the cookie holds
    key: str  # id of the key; '' where everyone may call
    tenant: str
    reviewer: str | None  # the only reviewer that it may claim for; None: any
    created: int
    expires: int
    revoked: int | None = None
