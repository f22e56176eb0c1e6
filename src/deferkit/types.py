"""The words of the library: what goes in and what comes out."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from deferkit.errors import expected

if TYPE_CHECKING:  # a client works without numpy
    import numpy as np
    from numpy.typing import NDArray

Amount: TypeAlias = float | Mapping[str, float]
"""A number when there is one resource, else a number for each resource by name."""

LARGEST = 1e50
"""What a number of a context, a reward or a cost may be at most; the square of its square is still a number."""

MODEL = "model"
REASONS = ("warm-up", "worth it", "not worth it", "budget", "forced", "explored", "unavailable", "unsettled")
"""Why a decision went where it went."""


@dataclass(frozen=True)
class Budget:
    """How much of a resource may be used over how many tasks.

    With `max_cost`, no decision may cost more, and that much is held for each decision until its cost is known, so
    that the total is never passed. Without it the largest cost seen is held. What does not fit the total after all
    is counted as overrun: without `max_cost`, or when a cost comes after its decision expired, or turns out higher
    than was announced with `decide(x, cost=…)`.

    >>> Budget(8_000, horizon=50_000, max_cost=3)
    Budget(total=8000, horizon=50000, max_cost=3)
    >>> Budget.unlimited().total
    inf
    """

    total: float
    horizon: int | None = field(default=None, kw_only=True)
    max_cost: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("total", "horizon", "max_cost"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        if not is_number(self.total) or math.isnan(self.total) or self.total < 0:
            raise expected("total", "Budget", "a number of at least 0", self.total)
        if self.horizon is None:
            if self.total != math.inf:
                raise expected("horizon", "Budget", "given, unless the total is infinite", None)
        elif not is_whole(self.horizon, 1):
            raise expected("horizon", "Budget", "a whole number of at least 1", self.horizon)
        cap = self.max_cost
        if cap is not None and not (is_number(cap) and 0 < cap < math.inf):
            raise expected("max_cost", "Budget", "a finite number above 0", cap)

    @classmethod
    def unlimited(cls) -> "Budget":
        """Return the budget that never ends: the price is 0."""
        return cls(math.inf)


def is_number(value: object) -> bool:
    """Whether this is a real number; a truth value is not one here.

    >>> is_number(1), is_number(0.5), is_number(True), is_number("1")
    (True, True, False, False)
    """
    if not isinstance(value, Real) or isinstance(value, bool):  # numpy's truth values are not Real
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def is_whole(value: object, least: int) -> bool:
    """Whether this is a whole number that is not below the least.

    >>> is_whole(3, 1), is_whole(3.0, 1), is_whole(0, 1), is_whole(math.nan, 1)
    (True, True, False, False)
    """
    return is_number(value) and least <= cast(float, value) < 2**53 and cast(float, value) % 1 == 0


def plain(value: object) -> object:
    """Return a number of numpy's as one of Python's, so that it can be written as JSON; anything else as it is."""
    generic = getattr(sys.modules.get("numpy"), "generic", ())  # nothing is one where numpy was never imported
    return value.item() if isinstance(value, generic) else value


class Decision(NamedTuple):
    """Who decides a task, and all that was known when that was decided.

    The expert with the largest (estimate + width) − price · max(0, cost − cost width) is asked, if that is more than
    the model's estimate + width. (`Deferrer.paper` does not cut the cost at 0, and gives the model an optimistic cost;
    under Thompson sampling values are drawn, with the widths as standard deviations.)

    >>> from deferkit import Budget, Deferrer
    >>> decision = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1)).decide([1.0], force="human")
    >>> decision.route, decision.reason, decision.reserved, decision.estimates
    ('human', 'forced', 1.0, {'model': 0.0, 'human': 0.0})
    """

    id: int  # counts up from 0
    route: str  # "model", or the name of an expert
    reason: str  # one of REASONS
    propensity: float  # the probability with which this route was taken
    price: Amount  # the reward that one unit of budget must bring
    budget_left: Amount  # before this decision: neither spent nor reserved
    reserved: Amount  # for this decision
    expected_cost: Amount  # of this decision
    estimates: dict[str, float]  # expected reward of each decider
    widths: dict[str, float]  # what optimism adds to it
    costs: dict[str, Amount]  # expected cost of each expert
    cost_widths: dict[str, Amount]  # what optimism takes off it

    def explain(self) -> str:
        """Say in one sentence why the task went where it went."""
        return explain(self)


def show(amount: Amount) -> str:
    """Return an amount as text.

    >>> show(0.25), show({"minutes": 3.0, "euros": 0.5})
    ('0.25', '3 minutes and 0.5 euros')
    """
    if isinstance(amount, Mapping):
        return " and ".join(f"{value:.4g} {name}" for name, value in amount.items())
    return f"{amount:.4g}"


def explain(decision: Decision) -> str:
    """Say in one sentence why a decision went where it went."""
    head = f"Task {decision.id} goes to {decision.route}"
    expert = decision.route if decision.route != MODEL else runner_up(decision)
    compared = (
        f"{expert} is expected to earn {decision.estimates[expert]:.3g} ± {decision.widths[expert]:.2g}"
        f" at a cost of {show(decision.costs[expert])}, the model"
        f" {decision.estimates[MODEL]:.3g} ± {decision.widths[MODEL]:.2g}"
    )
    priced = f"with a price of {show(decision.price)} for a unit of budget"
    chance = f"with probability {decision.propensity:.3g}"
    return {
        "warm-up": f"{head}, drawn {chance} so that everyone is known.",
        "worth it": f"{head}, which is worth it: {compared}, {priced}.",
        "not worth it": f"{head}, because an expert is not worth it: {compared}, {priced}.",
        "budget": f"{head}, because the {show(decision.budget_left)} left of the budget is not enough to ask.",
        "forced": f"{head}, because the caller said so.",
        "explored": f"{head}, drawn {chance} so that other policies can be evaluated.",
        "unavailable": f"{head}, because no expert is available.",
        "unsettled": f"{head}, because no cost is known yet and enough is held for tasks that wait for one.",
    }[decision.reason]


def runner_up(decision: Decision) -> str:
    """Return the expert that came closest to being worth it."""

    def worth(expert: str) -> float:
        price, cost, width = (
            list(amount.values()) if isinstance(amount, Mapping) else [amount]
            for amount in (decision.price, decision.costs[expert], decision.cost_widths[expert])
        )
        paid = sum(p * max(0.0, c - w) for p, c, w in zip(price, cost, width, strict=True))
        return decision.estimates[expert] + decision.widths[expert] - paid

    return max(decision.costs, key=worth)


class Scores(NamedTuple):
    """What the learner thinks of a set of contexts, without deciding any of them.

    >>> from deferkit import Budget, Deferrer
    >>> scores = Deferrer(n_features=1, warm_up=0).score([[1.0], [0.5]])
    >>> scores.routes.tolist(), scores.price
    (['model', 'model'], 0.0)
    """

    routes: "NDArray[np.str_]"  # [n] who would decide if this context came next
    estimates: "dict[str, NDArray[np.float64]]"  # [n] expected reward of each decider
    widths: "dict[str, NDArray[np.float64]]"  # [n] what optimism adds to it
    costs: "dict[str, NDArray[np.float64]]"  # [n, R] expected cost of each expert
    cost_widths: "dict[str, NDArray[np.float64]]"  # [n, R]
    price: Amount


class Coefficients(NamedTuple):
    """What a learner believes of one reward or cost: a coefficient for each feature, and how sure it is of them.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1), ridge=0.5)
    >>> decision = deferrer.decide([1.0], force="human")
    >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.3)
    >>> deferrer.coefficients()["human"]
    Coefficients(theta=array([0.6]), inverse=array([[0.66666667]]), names=None)
    """

    theta: "NDArray[np.float64]"  # [d]
    inverse: "NDArray[np.float64]"  # [d, d] M⁻¹: a width is a factor times √(xᵀM⁻¹x)
    names: tuple[str, ...] | None = None  # [d] what each stands for, where features are named


class Drifted(NamedTuple):
    """A reward or cost that has changed, so that much of what was learned of it was given up.

    >>> Drifted("human", decision=1_200, strength=0.8, times=1).target
    'human'
    """

    target: str  # "model", the name of an expert, or "cost of …"
    decision: int  # the one that was to come next when it was found
    strength: float  # share of the observations that was given up then
    times: int  # how often this target has drifted so far


class Run(NamedTuple):
    """What a stream of tasks came to.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=1, budget=Budget(0, horizon=2))
    >>> run = deferrer.run([[1.0], [0.5]], {"model": [0.5, 0.25], "human": [1.0, 1.0]}, cost=[1.0, 1.0])
    >>> run.reward, run.deferral_rate, run.costs.tolist()
    (0.75, 0.0, [[0.0], [0.0]])
    """

    routes: "NDArray[np.int64]"  # [n] 0 for the model, 1 for the first expert, …
    reasons: "NDArray[np.int64]"  # [n] places in REASONS
    propensities: "NDArray[np.float64]"  # [n]
    prices: "NDArray[np.float64]"  # [n, R] at each decision
    rewards: "NDArray[np.float64]"  # [n] of the chosen decider
    costs: "NDArray[np.float64]"  # [n, R] of the chosen decider
    deciders: tuple[str, ...]

    @property
    def reward(self) -> float:
        """The sum of rewards."""
        return float(self.rewards.sum())

    @property
    def deferral_rate(self) -> float:
        """The share of tasks that an expert decided."""
        return float((self.routes > 0).mean()) if self.routes.size else 0.0


class Summary(NamedTuple):
    """Where a learner stands.

    >>> from deferkit import Budget, Deferrer
    >>> summary = Deferrer(n_features=1, budget=Budget(5, horizon=100)).summary()
    >>> summary.decisions, summary.left, summary.routes
    (0, 5.0, {'model': 0, 'human': 0})
    """

    decisions: int
    routes: dict[str, int]  # decisions by decider
    deferral_rate: float
    total: Amount
    spent: Amount
    reserved: Amount
    left: Amount
    overrun: Amount
    price: Amount
    pending: int  # decisions that hold budget
    expired: int
    forced: int
    without_budget: int  # decisions that went to the model because nothing was left
    noise: dict[str, float]  # estimated for each reward, and for each cost as "cost of …"
    samples: dict[str, int]  # observations of each of them
    samples_in_use: dict[str, float]  # how many of those its estimate rests on: fewer where the past is forgotten
    drifts: int  # how often one of them was found to have changed
    history_bytes: int  # kept of the past: decisions remembered, and samples for exact refits

    def __str__(self) -> str:
        """Return a line for each field, to be read by people."""
        return aligned(self._asdict())


def aligned(fields: Mapping[str, object]) -> str:
    """Return fields as lines to be read by people; shares in per cent.

    >>> print(aligned({"decisions": 12000, "deferral_rate": 0.125, "routes": {"model": 10500, "human": 1500}}))
    decisions      12,000
    deferral rate  12.5 %
    routes         model 10,500, human 1,500
    """
    width = max(map(len, fields), default=0)
    return "\n".join(f"{name.replace('_', ' '):<{width}}  {shown(name, value)}" for name, value in fields.items())


def shown(name: str, value: object) -> str:
    """Return a value to be read by people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown('', each)}" for key, each in value.items()) or "none"
    if name.endswith("_rate") and isinstance(value, float):
        return f"{100 * value:.4g} %"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if type(value) is int else str(value)
