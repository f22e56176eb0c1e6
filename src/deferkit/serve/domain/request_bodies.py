"""The bodies of requests: strict, with every bound that the service holds callers to."""

import hashlib
from typing import Annotated, Any

import msgspec

from deferkit.learn.settings import DECEMBER_2026
from deferkit.serve.domain.accounts import MAX_AMOUNT
from deferkit.serve.domain.spec import NO_CONTROL, DefaultsName, FeatureName, Finite, Name, Seats, Seconds, TaskId

NO_NUL = r"^[^\u0000]*$"  # PostgreSQL has no text with that character
Cost = Annotated[float, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
CostByResource = dict[str, Cost]
Rewards = Annotated[
    dict[str, Finite | bool],
    msgspec.Meta(max_length=64, description="by decider; true (right) is 1, false (wrong) is 0"),
]
Reviewer = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=NO_CONTROL)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Seat = Annotated[int, msgspec.Meta(ge=0, le=15)]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=64, description="proves that the claim is yours")]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all bodies: unknown fields are refused."""


def rewards_as_numbers(body: "OutcomeBody | CorrectionBody | CompleteBody | StopBody") -> None:
    """Replace true and false by 1 and 0, so that both ways to write a reward are the same request."""
    if bool in map(type, body.rewards.values()):
        msgspec.structs.force_setattr(body, "rewards", {name: float(value) for name, value in body.rewards.items()})


class TaskBody(Body, frozen=True, kw_only=True):
    """A task to be decided, under your own id: the same task sent again gets the same reply."""

    task: TaskId
    context: (
        Annotated[list[Finite], msgspec.Meta(max_length=2000)]
        | Annotated[dict[str, int | Finite | str | None], msgspec.Meta(max_length=2000)]
    )
    payload: Annotated[Any, msgspec.Meta(description="what a reviewer is to see")] = None
    model_answer: Annotated[Any, msgspec.Meta(description="what the model would answer")] = None
    cost: (
        Annotated[
            Cost | dict[str, Cost | CostByResource],
            msgspec.Meta(description="if known beforehand; by expert, resource"),
        ]
        | None
    ) = None
    available: Annotated[list[Name], msgspec.Meta(max_length=32, description="experts on duty")] | None = None
    force: Name | None = None
    reviewers: Seats | None = None


class BatchBody(Body, frozen=True, kw_only=True):
    """Several tasks; each is decided, or refused, by itself."""

    tasks: Annotated[list[TaskBody], msgspec.Meta(min_length=1, max_length=1000)]


class OutcomeBody(Body, frozen=True, kw_only=True):
    """What has become known of a task: rewards of any decider, the cost."""

    task: TaskId
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None
    park: Annotated[bool, msgspec.Meta(description="keep it if the decision is yet to come; else 404")] = True

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class CorrectionBody(Body, frozen=True, kw_only=True):
    """Values that replace those observed before. The same id again changes nothing."""

    id: TaskId
    task: TaskId
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class ExpirationBody(Body, frozen=True, kw_only=True):
    """A task that waits no longer."""

    task: TaskId


class ResetBody(Body, frozen=True, kw_only=True):
    """A learner that is to start anew. The same id again changes nothing."""

    id: TaskId


class ForgetBody(Body, frozen=True, kw_only=True):
    """A task whose outcome is to be taken out of the estimates."""

    task: TaskId


class UpgradeBody(Body, frozen=True, kw_only=True):
    """Another version of the default rule, from now on. The same again changes nothing."""

    defaults: Annotated[DefaultsName, msgspec.Meta(description="version of the default rule")] = DECEMBER_2026
    confidence: Annotated[int, msgspec.Meta(ge=0)] | FeatureName | msgspec.UnsetType = msgspec.UNSET
    """The feature that is the model's own confidence, by name or by index. None by default."""


class EraseBody(Body, frozen=True, kw_only=True):
    """Whose payload and model's answer are erased: one task's, or those of all that ended and are so old."""

    task: TaskId | None = None
    older_than_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None


class HoldBody(Body, frozen=True, kw_only=True):
    """More to be reserved for a review that is pending. The same id again changes nothing."""

    id: TaskId
    task: TaskId
    amount: Cost | CostByResource


class StopBody(Body, frozen=True, kw_only=True):
    """A review that was stopped before it was done, and what it has cost until then."""

    task: TaskId
    cost: Cost | CostByResource
    rewards: Rewards = {}

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class BudgetBody(Body, frozen=True, kw_only=True):
    """A change of totals: more or less (`add`), or what they shall be (`total`). The same id again changes nothing."""

    id: TaskId
    add: Finite | dict[str, Finite] | None = None
    total: Cost | CostByResource | None = None


class ClaimBody(Body, frozen=True, kw_only=True):
    """A reviewer who is free."""

    reviewer: Reviewer
    experts: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=32)] | None = None
    lease_s: Seconds | None = None


class LeaseBody(Body, frozen=True, kw_only=True):
    """A claim, as `claim` gave it."""

    task: TaskId
    seat: Seat = 0
    epoch: Epoch
    token: Token | msgspec.UnsetType = msgspec.UNSET  # left out only by claims from before there were tokens


class ExtendBody(LeaseBody, frozen=True, kw_only=True):
    """A claim that is to last longer, and what the review has cost so far where it can be stopped."""

    lease_s: Seconds | None = None
    cost: (
        Annotated[
            Cost | CostByResource, msgspec.Meta(description="so far: the hold is extended for more, or it is stopped")
        ]
        | None
    ) = None


class ResumeBody(Body, frozen=True, kw_only=True):
    """A claim that a reviewer holds, and has lost the token of."""

    reviewer: Reviewer
    task: TaskId
    seat: Seat = 0


class DeclineBody(LeaseBody, frozen=True, kw_only=True):
    """A claim that a reviewer gives back for good, and why."""

    reason: Annotated[str, msgspec.Meta(max_length=1000, pattern=NO_NUL)] = ""


class ReassignBody(Body, frozen=True, kw_only=True):
    """A seat whose claim is to end."""

    task: TaskId
    seat: Seat = 0


class CompleteBody(LeaseBody, frozen=True, kw_only=True):
    """The answer of a reviewer; rewards and cost as far as they are known by now."""

    answer: Any = None
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class AnswerCorrectionBody(LeaseBody, frozen=True, kw_only=True):
    """An answer that replaces the one given before. The same id again changes nothing."""

    id: TaskId
    answer: Any = None
    cost: Annotated[Cost | CostByResource, msgspec.Meta(description="in the place of the one before")] | None = None


class EffortBody(LeaseBody, frozen=True, kw_only=True):
    """What work has cost that came to nothing, because the lease had lapsed or the task was closed."""

    cost: Cost | CostByResource


in_one_order = msgspec.json.Encoder(order="deterministic").encode


def digest(body: Body) -> bytes:
    """Return the digest of a body, independent of field order and white space."""
    return hashlib.blake2b(in_one_order(body), digest_size=16).digest()
