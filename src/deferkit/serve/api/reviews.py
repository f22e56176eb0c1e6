"""Bodies and replies of reviews: the queue, claims and answers."""

from typing import Annotated, Any, Literal

import msgspec

from deferkit.serve.api.common import NO_NUL, Body, BodyWithRewards, Cost, CostByResource, Reviewer, Rewards
from deferkit.serve.domain.review import ReviewDocument
from deferkit.serve.domain.spec import Name, Seconds, TaskId

Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Seat = Annotated[int, msgspec.Meta(ge=0, le=15)]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=64, description="The token of the claim.")]


class ClaimBody(Body, frozen=True, kw_only=True):
    """A reviewer who claims a task."""

    reviewer: Reviewer
    experts: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=32)] | None = None
    lease_s: Seconds | None = None


class LeaseBody(Body, frozen=True, kw_only=True):
    """A claim, as returned by `claim`."""

    task: TaskId
    seat: Seat = 0
    epoch: Epoch
    token: Token | msgspec.UnsetType = msgspec.UNSET  # only claims created before tokens existed leave it out


class ExtendBody(LeaseBody, frozen=True, kw_only=True):
    """A claim to renew, with the cost so far where reviews can be stopped."""

    lease_s: Seconds | None = None
    cost: (
        Annotated[
            Cost | CostByResource,
            msgspec.Meta(description="The cost so far. The hold is extended, or the review is stopped."),
        ]
        | None
    ) = None


class ResumeBody(Body, frozen=True, kw_only=True):
    """A claim whose token the reviewer has lost."""

    reviewer: Reviewer
    task: TaskId
    seat: Seat = 0


class DeclineBody(LeaseBody, frozen=True, kw_only=True):
    """A claim that a reviewer declines, with a reason."""

    reason: Annotated[str, msgspec.Meta(max_length=1000, pattern=NO_NUL)] = ""


class ReassignBody(Body, frozen=True, kw_only=True):
    """A seat whose claim is ended."""

    task: TaskId
    seat: Seat = 0


class CompleteBody(LeaseBody, BodyWithRewards, frozen=True, kw_only=True):
    """The answer of a reviewer, with the rewards and cost known so far."""

    answer: Any = None
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None


class AnswerCorrectionBody(LeaseBody, frozen=True, kw_only=True):
    """A corrected answer. Repeating an id changes nothing."""

    id: TaskId
    answer: Any = None
    cost: Annotated[Cost | CostByResource, msgspec.Meta(description="Replaces the previous cost.")] | None = None


class EffortBody(LeaseBody, frozen=True, kw_only=True):
    """The cost of work that was lost because the lease had lapsed or the task was closed."""

    cost: Cost | CostByResource


class ClaimReply(msgspec.Struct, frozen=True, kw_only=True):
    """A task to review. Task, seat, epoch and token are the claim: send them with the answer."""

    task: str
    seat: int
    epoch: int
    token: str  # proves the claim; it is shown this once
    expert: str
    lease_until: float
    priority: float
    waiting_since: float
    deadline: float | None
    payload: Any
    model_answer: Any  # null where the policy's review document does not show it


class LeaseReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease after the call."""

    task: str
    seat: int
    epoch: int
    lease_until: float | None
    hold: float | dict[str, float] | None = None  # what the review may cost before it asks again, if it said its cost
    stopped: bool = False  # nothing is left for it: the model's answer is used
    booked: float | dict[str, float] | None = None  # cost so far of this claim that was booked with the stop


class CompleteReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an answer."""

    task: str
    seat: int
    finished: bool  # all reviewers of the task have answered
    learned: bool
    booked: float | dict[str, float] | None = None
    unconfirmed: float | dict[str, float] | None = None  # a cost above max_reported_cost: a correction confirms it
    model_answer: Any = None  # where the policy's review document shows it after the answer


class EffortReply(msgspec.Struct, frozen=True, kw_only=True):
    """The booked cost of an effort."""

    task: str
    seat: int
    epoch: int
    booked: float | dict[str, float]


class AnswerCorrectionReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a corrected answer."""

    task: str
    seat: int
    finished: bool  # the task has ended, so that rewards and cost were corrected too
    learned: bool
    rewards: dict[str, float]  # of the task
    cost: float | dict[str, float] | None  # of the task, where it is booked


class UnconfirmedCost(msgspec.Struct, frozen=True, kw_only=True):
    """A reported cost above max_reported_cost. It is neither booked nor learned until a correction."""

    task: str
    cost: float | dict[str, float]  # as reported; the sum of all reports of the task


class UnconfirmedCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Reported costs that wait for a correction, oldest first."""

    total: int
    costs: list[UnconfirmedCost]


class ReviewReply(msgspec.Struct, frozen=True, kw_only=True):
    """The review document of a policy, with its lease, experts and timer unit."""

    policy: str
    review: ReviewDocument  # that of the policy, or one text field
    lease_s: float
    reviewers: int  # people for each task
    experts: list[str]
    unit: str  # the resource that the timer counts, or the first one
    max_cost: float | None  # of that resource
    stops: bool  # reviews say their cost when they extend their lease, and may be stopped


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A seat, the place of one reviewer at a task, that waits or is claimed."""

    task: str
    seat: int
    state: str
    expert: str
    priority: float
    created: float
    lease_until: float | None
    reviewer: str | None
    deadline: float | None
    declines: int  # reviewers who did not want the task


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of seats, in the order of claims. `next` is the start of the next page."""

    seats: list[QueueLine]
    next: str | None


class HeldClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a reviewer, without its token: only `claim` and `resume` return tokens."""

    task: str
    seat: int
    epoch: int
    expert: str
    lease_until: float
    priority: float
    waiting_since: float
    deadline: float | None
    payload: Any
    model_answer: Any


class HeldReply(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a reviewer's claims, in the order of lease ends. `next` is the start of the next page."""

    held: list[HeldClaim]
    next: str | None


ReviewerName = Annotated[Reviewer, msgspec.Meta(description="The name of the reviewer.")]
SeatState = Annotated[
    Literal["waiting", "claimed", "all"],
    msgspec.Meta(description="Filter by state: waiting, claimed or all."),
]
Cursor = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^$|^-?[0-9][0-9.e+-]{0,30} [0-9]{1,17} [0-9]{1,2} [^\u0000-\u001f\u007f-\u009f]{1,128}(?!\n)$",
        description="The `next` of the previous page.",
    ),
]
HeldCursor = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^$|^[0-9]{1,17} [0-9]{1,2} [^\u0000-\u001f\u007f-\u009f]{1,128}(?!\n)$",
        description="The `next` of the previous page.",
    ),
]
WhyEmpty = Literal["declined", "all_claimed", "answered", "frozen", "budget_exhausted", "nothing_deferred"]


class StatusReply(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of one reviewer. Days begin at midnight UTC; an answer counts for the day of its claim."""

    waiting: int  # seats that the reviewer could claim
    claimed: int  # seats that others hold, and that the reviewer could claim else
    next_free_at: float | None  # when the first of their leases ends
    declined: int  # seats that wait or are held, at tasks that the reviewer has declined
    budget_left: dict[str, float | None]  # null: without end
    why_empty: WhyEmpty | None  # null: something waits
    text: str
    done: int  # answers of the reviewer
    done_today: int
    cost_today: dict[str, float]
