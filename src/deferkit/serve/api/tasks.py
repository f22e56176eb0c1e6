"""Bodies and replies of tasks: decisions, outcomes, corrections, holds, listings."""

from typing import Annotated, Any, Literal

import msgspec

from deferkit.serve.api.common import Body, BodyWithRewards, Cost, CostByResource, Rewards
from deferkit.serve.domain.records import DecisionFields
from deferkit.serve.domain.spec import NO_CONTROL, Finite, Name, Seats, TaskId


class TaskBody(Body, frozen=True, kw_only=True):
    """A task to decide, under the caller's own id. Repeating the request returns the same reply."""

    task: TaskId
    context: (
        Annotated[list[Finite], msgspec.Meta(max_length=2000)]
        | Annotated[dict[str, int | Finite | str | None], msgspec.Meta(max_length=2000)]
    )
    payload: Annotated[Any, msgspec.Meta(description="The content that reviewers see.")] = None
    model_answer: Annotated[Any, msgspec.Meta(description="The answer of the model.")] = None
    cost: (
        Annotated[
            Cost | dict[str, Cost | CostByResource],
            msgspec.Meta(description="The cost, if known in advance; by expert and resource."),
        ]
        | None
    ) = None
    available: (
        Annotated[list[Name], msgspec.Meta(max_length=32, description="The experts on duty. All by default.")] | None
    ) = None
    force: Name | None = None
    reviewers: Seats | None = None


class BatchBody(Body, frozen=True, kw_only=True):
    """Several tasks. Each is decided or refused on its own."""

    tasks: Annotated[list[TaskBody], msgspec.Meta(min_length=1, max_length=1000)]


class OutcomeBody(BodyWithRewards, frozen=True, kw_only=True):
    """The outcome of a task: rewards of any deciders, and the cost."""

    task: TaskId
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None
    park: Annotated[
        bool, msgspec.Meta(description="Park the outcome if the task has no decision yet; otherwise 404.")
    ] = True


class CorrectionBody(BodyWithRewards, frozen=True, kw_only=True):
    """New values for a task whose outcome was observed. Repeating an id changes nothing."""

    id: TaskId
    task: TaskId
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None


class ExpirationBody(Body, frozen=True, kw_only=True):
    """A task to expire."""

    task: TaskId


class HoldBody(Body, frozen=True, kw_only=True):
    """An extension of the hold of a pending review. Repeating an id changes nothing."""

    id: TaskId
    task: TaskId
    amount: Cost | CostByResource


class StopBody(BodyWithRewards, frozen=True, kw_only=True):
    """A review that was stopped before its end, with its cost so far."""

    task: TaskId
    cost: Cost | CostByResource
    rewards: Rewards = {}


class DecisionReply(DecisionFields, frozen=True, kw_only=True):
    """A decision with all the values that it was based on, as in the log."""


class BatchResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one task of a batch: a decision or an error."""

    status: int
    decision: DecisionReply | None = None
    code: str | None = None
    detail: str | None = None


class BatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of each task, in the order of the request."""

    results: list[BatchResult]


class OutcomeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a task after a report."""

    task: str
    changed: bool  # False: all of it was known before
    learned: bool
    parked: bool = False  # its decision is yet to come
    late: str | None = None  # why it was not learned
    booked: float | dict[str, float] | None = None
    unconfirmed: float | dict[str, float] | None = None  # a cost above max_reported_cost: a correction confirms it


class CorrectionReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a correction."""

    task: str
    learned: bool


class ExpirationReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an expiry."""

    task: str
    final: str  # whose answer is used


class HoldReply(msgspec.Struct, frozen=True, kw_only=True):
    """A hold after the call."""

    task: str
    granted: float | dict[str, float]  # less than asked for where less is left, or a review may cost no more
    hold: float | dict[str, float]  # all that is held for the review now


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the log, as it was recorded."""

    seq: int
    at: float
    kind: str
    task: str | None
    record: dict[str, Any]
    hash: str


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of log rows, in order. `next` is the start of the next page."""

    rows: list[LogLine]
    next: int | None


class ClaimLine(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a task's seat."""

    seat: int
    epoch: int
    reviewer: str
    at: float
    effort: float | dict[str, float] | None


class SeatLine(msgspec.Struct, frozen=True, kw_only=True):
    """A seat, the place of one reviewer at a task, with the answer."""

    seat: int
    reviewer: str | None
    state: str  # waiting, claimed, done or closed
    answer: Any
    cost: float | dict[str, float] | None
    visible: bool | None  # whether the reviewer was shown the model's answer; null where that is not known


class TaskReply(msgspec.Struct, frozen=True, kw_only=True):
    """A decision with its explanation, outcome and history."""

    decision: DecisionReply
    explanation: str
    at: float
    state: str  # model, open, posted or void
    rewards: dict[str, float]
    cost: float | dict[str, float] | None
    final: str | None  # whose answer is used; null while it is open
    answer: Any
    history: list[LogLine]
    claims: list[ClaimLine]
    payload: Any  # what reviewers were shown, until it is erased; null for tasks that nobody was asked about
    model_answer: Any
    seats: list[SeatLine]


class TaskLine(msgspec.Struct, frozen=True, kw_only=True):
    """A task in a listing. Amounts are numbers, or objects by resource if there are several resources."""

    task: str
    id: int
    at: float
    route: str
    reason: str
    state: str  # model, open, posted or void
    final: str | None  # whose answer is used; null while it is open
    price: float | dict[str, float]
    estimates: dict[str, float]
    expected_gain: float  # of the route, above the model
    cost: float | dict[str, float] | None
    rewards: dict[str, float]
    reviewers: list[str]  # who have answered


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks, latest first. `next` is the start of the next page."""

    tasks: list[TaskLine]
    next: int | None


TimeFilter = Annotated[float, msgspec.Meta(ge=0, le=1e11, description="Seconds since 1970.")]
TaskState = Annotated[
    Literal["", "model", "open", "posted", "void"],
    msgspec.Meta(description="Filter by state: model, open, posted or void."),
]
TaskSearch = Annotated[
    str, msgspec.Meta(max_length=128, pattern=NO_CONTROL, description="Filter by a part of the task id.")
]
RouteFilter = Annotated[str, msgspec.Meta(max_length=64, pattern=NO_CONTROL, description="Filter by decider.")]
ReasonFilter = Annotated[
    str, msgspec.Meta(max_length=64, pattern=NO_CONTROL, description="Filter by the reason of the decision.")
]
Before = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1, description="The `next` of the previous page.")]
