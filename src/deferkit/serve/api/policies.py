"""Bodies and replies of policies. Their specifications are in `domain/spec.py`: the log contains them too."""

from typing import Annotated

import msgspec

from deferkit.learn.settings import DECEMBER_2026
from deferkit.serve.api.common import Body, Cost, CostByResource
from deferkit.serve.api.reports import BudgetState
from deferkit.serve.domain.spec import NAME_PATTERN, DefaultsName, FeatureName, Finite, PolicySpec, TaskId


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


class BudgetBody(Body, frozen=True, kw_only=True):
    """A change of totals, relative (`add`) or absolute (`total`). Repeating an id changes nothing."""

    id: TaskId
    add: Finite | dict[str, Finite] | None = None
    total: Cost | CostByResource | None = None


class ResetReply(msgspec.Struct, frozen=True, kw_only=True):
    """The learner was reset."""

    id: str
    decisions: int  # that were made before, and are not learned from any more


class ForgetReply(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the task was removed from the estimates."""

    task: str
    forgotten: bool  # False: it had been forgotten before


class BudgetReply(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts after the change."""

    id: str
    budget: dict[str, BudgetState]


class EraseReply(msgspec.Struct, frozen=True, kw_only=True):
    """The number of seats whose payload or model answer was erased."""

    erased: int


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The name of the deleted object."""

    deleted: str


class PolicyPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of policies, sorted by name. `next` is the start of the next page."""

    policies: list[PolicySpec]
    next: str | None


After = Annotated[str, msgspec.Meta(pattern=f"^$|{NAME_PATTERN}", description="The last name of the previous page.")]
