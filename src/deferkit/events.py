"""Events of a learner. Its state is the fold of `Deferrer.apply` over them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from deferkit.types import Amount, Decision

Context: TypeAlias = Sequence[float] | Mapping[str, object]
"""A vector of numbers, or named features for a learner with an encoder."""


class Decided(NamedTuple):
    """A task was decided: what `propose` returns and `apply` takes.

    Args:
        decision: The route with its reservation; its id must be that of the learner's next decision.
        context: The context that was decided.
        at: When the task came, in seconds since 1970; None (default) if no budget has an end or a period.
        announced: Whether the cost of the route was known before, so that `Deferrer.observe` need not be told it; False
            by default.

    >>> from deferkit import Budget, Deferrer, Decided
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> event = deferrer.propose([1.0])
    >>> isinstance(event, Decided), event.context, event.decision.id
    (True, [1.0], 0)
    """

    decision: Decision
    context: Context
    at: float | None = None
    announced: bool = False


class Observed(NamedTuple):
    """Rewards or the cost of a decision became known.

    Args:
        id: The id of the decision.
        rewards: The rewards that became known, by decider; may be empty.
        cost: What the decision cost, in the unit of the budget; None if it is not known yet.

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
    """Rewards or a cost that were observed before are replaced.

    Args:
        id: The id of the decision.
        rewards: The correct rewards by decider; only those that change.
        cost: The correct cost, in the unit of the budget; None if it stays.

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
    """The outcome of a decision will not arrive; its reservation is released.

    Args:
        id: The id of the decision.

    >>> from deferkit import Budget, Deferrer, Expired
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(deferrer.propose([1.0], force="human"))
    >>> deferrer.apply(Expired(0))
    >>> deferrer.summary().reserved
    0.0
    """

    id: int


class BudgetChanged(NamedTuple):
    """The total of the budget, its end or its allowance was changed.

    Args:
        total: The new total, by resource if there are several.
        horizon: The new number of tasks that the total must last for, counted from the first decision; None (default)
            if it stays. By resource if there are several, and only those that change.
        until: The new end of a budget with `until`, in seconds since 1970; likewise.
        allowance: What a budget with `every` gets at each renewal from now on; likewise.

    >>> from deferkit import Budget, Deferrer, BudgetChanged
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(BudgetChanged(8.0))
    >>> deferrer.summary().left
    8.0
    """

    total: Amount
    horizon: Amount | None = None
    until: Amount | None = None
    allowance: Amount | None = None


class Renewed(NamedTuple):
    """A period of a budget with `every` began; or the first task came, which begins the time of one with `until`.

    Args:
        resource: The name of the resource; "cost" if there is one without a name.
        start: When the period began, in seconds since 1970: the end of the one before it, unless it is the first.
        end: When the next one begins, or the end of a budget with `until`.
        total: The total from then on: what is spent and reserved, what was carried over, and the allowance.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, every="1h", carry=1, max_cost=1))
    >>> for event in deferrer.renewals(at=0.0):
    ...     deferrer.apply(event)
    >>> deferrer.renewals(at=4_000.0)
    [Renewed(resource='cost', start=3600.0, end=7200.0, total=10.0)]
    """

    resource: str
    start: float
    end: float
    total: float


class Extended(NamedTuple):
    """More was reserved for a pending review.

    Args:
        id: The id of the decision.
        amount: What was added to its hold, by resource if there are several.

    >>> from deferkit import Budget, Deferrer, Extended
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=4, hold=1))
    >>> deferrer.apply(deferrer.propose([1.0], force="human"))
    >>> deferrer.apply(Extended(0, 0.5))
    >>> deferrer.summary().reserved
    1.5
    """

    id: int
    amount: Amount


class Stopped(NamedTuple):
    """A review was stopped before it was done: its cost is booked, and the model's answer stands.

    Args:
        id: The id of the decision.
        cost: What the review cost until then, in the unit of the budget.
        rewards: Rewards that are known, by decider, such as the model's; None (default) for none.

    >>> from deferkit import Budget, Deferrer, Stopped
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=4, hold=1))
    >>> deferrer.apply(deferrer.propose([1.0], force="human"))
    >>> deferrer.apply(Stopped(0, 1.0))
    >>> deferrer.summary().spent, deferrer.summary().stopped
    (1.0, 1)
    """

    id: int
    cost: Amount
    rewards: Mapping[str, float] | None = None


class WarmStarted(NamedTuple):
    """The learner learned from labelled tasks that it did not decide. NaN stands for an unknown value.

    Args:
        contexts: The contexts of the tasks.
        rewards: The rewards of the tasks by decider.
        expert: The name of the expert whose costs are given.
        costs: The costs of that expert, by resource if there are several; None if they are not known.

    >>> from deferkit import Budget, Deferrer, WarmStarted
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    >>> deferrer.apply(WarmStarted([[1.0]], {"model": [0.5], "human": [0.9]}, "human", [0.4]))
    >>> deferrer.summary().decisions
    0
    """

    contexts: Sequence[Context]
    rewards: Mapping[str, Sequence[float]]
    expert: str
    costs: Sequence[float] | Mapping[str, Sequence[float]] | None


Event: TypeAlias = Decided | Observed | Corrected | Expired | BudgetChanged | Renewed | Extended | Stopped | WarmStarted
