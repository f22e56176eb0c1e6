"""Strict request bodies with all their bounds."""

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
    msgspec.Meta(max_length=64, description="Rewards by decider; true (correct) is 1, false (wrong) is 0."),
]
Reviewer = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=NO_CONTROL)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Seat = Annotated[int, msgspec.Meta(ge=0, le=15)]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=64, description="The token of the claim.")]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of request bodies. Unknown fields are refused."""


def rewards_as_numbers(body: "OutcomeBody | CorrectionBody | CompleteBody | StopBody") -> None:
    """Replace true and false by 1 and 0, so that both ways to write a reward are the same request."""
    if bool in map(type, body.rewards.values()):
        msgspec.structs.force_setattr(body, "rewards", {name: float(value) for name, value in body.rewards.items()})


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


class OutcomeBody(Body, frozen=True, kw_only=True):
    """The outcome of a task: rewards of any deciders, and the cost."""

    task: TaskId
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None
    park: Annotated[
        bool, msgspec.Meta(description="Park the outcome if the task has no decision yet; otherwise 404.")
    ] = True

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class CorrectionBody(Body, frozen=True, kw_only=True):
    """New values for a task whose outcome was observed. Repeating an id changes nothing."""

    id: TaskId
    task: TaskId
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class ExpirationBody(Body, frozen=True, kw_only=True):
    """A task to expire."""

    task: TaskId


class ResetBody(Body, frozen=True, kw_only=True):
    """A reset of the learner. Repeating an id changes nothing."""

    id: TaskId


class ForgetBody(Body, frozen=True, kw_only=True):
    """A task whose outcome is removed from the estimates."""

    task: TaskId


class UpgradeBody(Body, frozen=True, kw_only=True):
    """A new version of the default rule. Repeating the request changes nothing."""

    defaults: Annotated[DefaultsName, msgspec.Meta(description="Version of the default rule.")] = DECEMBER_2026
    confidence: Annotated[int, msgspec.Meta(ge=0)] | FeatureName | msgspec.UnsetType = msgspec.UNSET
    """The feature that is the model's own confidence, by name or by index. None by default."""


class EraseBody(Body, frozen=True, kw_only=True):
    """The tasks whose payload and model answer are erased: one task, or all ended tasks above an age."""

    task: TaskId | None = None
    older_than_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None


class HoldBody(Body, frozen=True, kw_only=True):
    """An extension of the hold of a pending review. Repeating an id changes nothing."""

    id: TaskId
    task: TaskId
    amount: Cost | CostByResource


class StopBody(Body, frozen=True, kw_only=True):
    """A review that was stopped before its end, with its cost so far."""

    task: TaskId
    cost: Cost | CostByResource
    rewards: Rewards = {}

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class BudgetBody(Body, frozen=True, kw_only=True):
    """A change of totals, relative (`add`) or absolute (`total`). Repeating an id changes nothing."""

    id: TaskId
    add: Finite | dict[str, Finite] | None = None
    total: Cost | CostByResource | None = None


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


class CompleteBody(LeaseBody, frozen=True, kw_only=True):
    """The answer of a reviewer, with the rewards and cost known so far."""

    answer: Any = None
    rewards: Rewards = {}
    cost: Cost | CostByResource | None = None

    def __post_init__(self) -> None:
        rewards_as_numbers(self)


class AnswerCorrectionBody(LeaseBody, frozen=True, kw_only=True):
    """A corrected answer. Repeating an id changes nothing."""

    id: TaskId
    answer: Any = None
    cost: Annotated[Cost | CostByResource, msgspec.Meta(description="Replaces the previous cost.")] | None = None


class EffortBody(LeaseBody, frozen=True, kw_only=True):
    """The cost of work that was lost because the lease had lapsed or the task was closed."""

    cost: Cost | CostByResource


in_one_order = msgspec.json.Encoder(order="deterministic").encode


def digest(body: Body) -> bytes:
    """Return the digest of a body, independent of field order and white space."""
    return hashlib.blake2b(in_one_order(body), digest_size=16).digest()
