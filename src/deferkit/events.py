"""What can happen to a learner. Its state is the fold of `Deferrer.apply` over these."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from deferkit.types import Amount, Decision

Context: TypeAlias = Sequence[float] | Mapping[str, object]
"""Numbers, or named features for a learner with an encoder."""


class Decided(NamedTuple):
    """A task was decided: what `propose` returns and `apply` takes.

    >>> from deferkit import Budget, Deferrer, Decided
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> event = deferrer.propose([1.0])
    >>> isinstance(event, Decided), event.context, event.decision.id
    (True, [1.0], 0)
    """

    decision: Decision
    context: Context


class Observed(NamedTuple):
    """Something became known of a decision.

    >>> from deferkit import Budget, Deferrer, Observed
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(deferrer.propose([1.0], force="human"))
    >>> deferrer.apply(Observed(0, {"human": 0.9}, 0.4))
    >>> deferrer.summary().spent
    0.4
    """

    id: int
    rewards: Mapping[str, float]
    cost: Amount | None


class Corrected(NamedTuple):
    """Something that was observed of a decision turned out to be wrong.

    >>> from deferkit import Budget, Deferrer, Corrected, Observed
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(deferrer.propose([1.0], force="human"))
    >>> deferrer.apply(Observed(0, {}, 0.4))
    >>> deferrer.apply(Corrected(0, {}, 0.25))
    >>> deferrer.summary().spent
    0.25
    """

    id: int
    rewards: Mapping[str, float]
    cost: Amount | None


class Expired(NamedTuple):
    """A decision will not hear back; its reservation is released.

    >>> from deferkit import Budget, Deferrer, Expired
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(deferrer.propose([1.0], force="human"))
    >>> deferrer.apply(Expired(0))
    >>> deferrer.summary().reserved
    0.0
    """

    id: int


class BudgetChanged(NamedTuple):
    """The total of a budget was topped up or cut.

    >>> from deferkit import Budget, Deferrer, BudgetChanged
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(BudgetChanged(8.0))
    >>> deferrer.summary().left
    8.0
    """

    total: Amount


class WarmStarted(NamedTuple):
    """The learner was shown labelled tasks of the past. NaN: not known.

    >>> from deferkit import Budget, Deferrer, WarmStarted
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(WarmStarted([[1.0]], {"model": [0.5], "human": [0.9]}, "human", [0.4]))
    >>> deferrer.summary().decisions
    0
    """

    contexts: Sequence[Context]
    rewards: Mapping[str, Sequence[float]]
    expert: str  # whose costs these are
    costs: Sequence[float] | Mapping[str, Sequence[float]] | None  # by resource if there are several


Event: TypeAlias = Decided | Observed | Corrected | Expired | BudgetChanged | WarmStarted
