"""What can happen to a learner. Its state is the fold of `Deferrer.apply` over these."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from deferkit.types import Amount, Decision

Context: TypeAlias = Sequence[float] | Mapping[str, object]
"""Numbers, or named features for a learner with an encoder."""


class Decided(NamedTuple):
    """A task was decided: what `propose` returns and `apply` takes."""

    decision: Decision
    context: Context


class Observed(NamedTuple):
    """Something became known of a decision."""

    id: int
    rewards: Mapping[str, float]
    cost: Amount | None


class Corrected(NamedTuple):
    """Something that was observed of a decision turned out to be wrong."""

    id: int
    rewards: Mapping[str, float]
    cost: Amount | None


class Expired(NamedTuple):
    """A decision will not hear back; its reservation is released."""

    id: int


class BudgetChanged(NamedTuple):
    """The total of a budget was topped up or cut."""

    total: Amount


class WarmStarted(NamedTuple):
    """The learner was shown labelled tasks of the past. NaN: not known."""

    contexts: Sequence[Context]
    rewards: Mapping[str, Sequence[float]]
    expert: str  # whose costs these are
    costs: Sequence[float] | Mapping[str, Sequence[float]] | None  # by resource if there are several


Event: TypeAlias = Decided | Observed | Corrected | Expired | BudgetChanged | WarmStarted
