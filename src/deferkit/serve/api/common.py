"""Types that several topics share: bounded values, the base of bodies, problems, the service itself."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from deferkit.serve.domain.accounts import MAX_AMOUNT
from deferkit.serve.domain.spec import NAME_PATTERN, NO_CONTROL, Finite
from deferkit.version import __version__

NO_NUL = r"^[^\u0000]*$"  # PostgreSQL has no text with that character
Cost = Annotated[float, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
CostByResource = dict[str, Cost]
Rewards = Annotated[
    dict[str, Finite | bool],
    msgspec.Meta(max_length=64, description="Rewards by decider; true (correct) is 1, false (wrong) is 0."),
]
Reviewer = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=NO_CONTROL)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of request bodies. Unknown fields are refused."""


class BodyWithRewards(Body, frozen=True, kw_only=True):
    """Base class of bodies with rewards: true and false become 1 and 0, so that both are the same request."""

    if TYPE_CHECKING:
        rewards: Rewards  # declared by each subclass: the order of fields is part of the digests in the store

    def __post_init__(self) -> None:
        if bool in map(type, self.rewards.values()):
            msgspec.structs.force_setattr(self, "rewards", {name: float(value) for name, value in self.rewards.items()})


class Reply(NamedTuple):
    """An HTTP status and the bytes of a JSON document."""

    status: int
    body: bytes


PolicyName = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, description="The name of the policy.")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000, description="The maximum number of items.")]


class ProblemReply(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a call."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    code: Annotated[str, msgspec.Meta(description="A short code for programs.")]
    detail: Annotated[str, msgspec.Meta(description="A sentence for people.")]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The service responds."""

    status: str
    version: str


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Name and version of the service, and the path of its OpenAPI document."""

    service: str = "deferkit decision service"
    version: str = __version__
    console: str = "/console"
    routes: str = "/v1/openapi.json"
    health: str = "/healthz"
    readiness: str = "/readyz"
    metrics: str = "/metrics"
    guide: str = "docs/service-guide.md in the source of deferkit"
