"""Public value types of the library: `Budget`, `Decision`, `Summary` and the other arguments and results."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from deferkit.display import html_block, html_table
from deferkit.errors import expected
from deferkit.periods import Schedule, as_seconds

if TYPE_CHECKING:  # a client works without numpy
    import numpy as np
    from numpy.typing import NDArray

Amount: TypeAlias = float | Mapping[str, float]
"""A number if there is one resource, else a mapping from the name of each resource to its number."""

LARGEST = 1e50
"""The largest absolute value of a feature, a reward or a cost; its fourth power is still a finite double."""

MODEL = "model"
AUTO = "auto"
REASONS = ("warm-up", "worth it", "not worth it", "budget", "forced", "explored", "unavailable", "unsettled")
"""The values of `Decision.reason`, in the order of the compiled core."""


@dataclass(frozen=True, repr=False)
class Budget:
    """How much of one resource may be spent: over how many tasks, until when, or in every period.

    With `max_cost`, that amount is reserved for each deferral until its cost is known, so that spending never exceeds
    the total while no cost is higher. Without it, the largest cost observed so far is reserved. A cost that does not
    fit the total is counted as overrun: without `max_cost`, if it is above `max_cost` or higher than announced with
    `decide(x, cost=…)`, or if it is reported after its decision expired. Nobody is asked until budget that becomes free
    has covered what costs above `max_cost` have overrun. Where every review costs the same, see `Budget.reviews`.

    One of `horizon`, `until` and `every` is given, unless the total is infinite. With `until` or `every` tasks have a
    time: `decide(x, at=…)`. At the end of a period, what is left beyond `carry` allowances lapses and a new
    allowance comes. A review that is pending then takes its hold along: its cost is booked in the period in which it
    comes, and what the hold was too large by is free from then on.

    Where a review can be stopped, `hold` or `limit` says that less than `max_cost` is reserved for it. A review that
    needs more requests it with `Deferrer.extend`, and is stopped with `Deferrer.stop` if nothing is left; a cost that
    does not fit the budget, because the reviewer went on, is counted as overrun.

    Args:
        total: The amount that may be spent, in any unit (minutes, euros, reviews); at least 0, `math.inf` for an
            unlimited budget. With `every`, the allowance of one period. Costs are reported in the same unit.
        horizon: The number of tasks that the total must last for, at least 1.
        until: The time until which the total must last: seconds since 1970, or a datetime with a time zone.
        every: The period after which the budget is renewed: a length such as "7d", "12h" or "30min", a timedelta, or a
            calendar "day", "week" (from Monday on) or "month". A length is from a minute to 2,500,000 days.
        zone: The time zone of calendar periods, such as "Europe/Berlin"; UTC by default.
        start: The start of the first period, before which nothing is spent: seconds since 1970, or a datetime with a
            time zone. By default the first task begins it, or it is the calendar period of the first task.
        carry: How many allowances may be carried over to the next period; 0 (default): what is not used lapses,
            `math.inf`: nothing lapses.
        max_cost: The largest cost of one decision, in the unit of the total, or one by expert. A higher cost takes free
            budget, and is an overrun where there is none. None (default) if it is not known.
        hold: What is reserved for a review that can be stopped, or "auto": three times the mean cost, at most
            `max_cost` and a hundredth of what is left, but never less than the mean cost. None (default) reserves as
            above, or the `limit`.
        limit: The cost at which every review is stopped. None (default) if there is no such limit.
        fixed_cost: What every review costs, at most `max_cost`: it need not be reported. None (default) if it differs.
        strict: Whether a reported cost above `max_cost` is refused; False by default.

    Raises:
        InvalidArgument: If an argument is of the wrong type or out of range, or if not exactly one of `horizon`,
            `until` and `every` is given.

    >>> Budget(8_000, horizon=50_000, max_cost=3)
    Budget(total=8000, horizon=50000, max_cost=3)
    >>> Budget(40, every="week", zone="Europe/Berlin", carry=1, max_cost=2, hold="auto")
    Budget(total=40, every='week', zone='Europe/Berlin', carry=1, max_cost=2, hold='auto')
    >>> Budget.unlimited().total
    inf
    """

    total: float
    horizon: int | None = field(default=None, kw_only=True)
    until: "float | datetime | None" = field(default=None, kw_only=True)
    every: "str | timedelta | None" = field(default=None, kw_only=True)
    zone: str | None = field(default=None, kw_only=True)
    start: "float | datetime | None" = field(default=None, kw_only=True)
    carry: float = field(default=0.0, kw_only=True)
    max_cost: float | Mapping[str, float] | None = field(default=None, kw_only=True, hash=False)
    hold: float | str | None = field(default=None, kw_only=True)
    limit: float | None = field(default=None, kw_only=True)
    fixed_cost: float | None = field(default=None, kw_only=True)
    strict: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, plain(getattr(self, each.name)))
        AT_LEAST_0.check("total", "Budget", self.total)
        self._check_time()
        if isinstance(self.max_cost, Mapping):
            object.__setattr__(self, "max_cost", {name: plain(cap) for name, cap in self.max_cost.items()})
        caps = [("max_cost", cap) for cap in self.max_cost.values()] if isinstance(self.max_cost, dict) else []
        caps = caps or [("max_cost", cast("float | None", self.max_cost))]
        for name, cap in (*caps, ("limit", self.limit), ("fixed_cost", self.fixed_cost)):
            if cap is not None:
                FINITE_ABOVE_0.check(name, "Budget", cap)
        if self.fixed_cost is not None:
            if any(cap is not None and cap < self.fixed_cost for name, cap in caps):
                raise expected("fixed_cost", "Budget", "at most the max_cost", self.fixed_cost)
            if self.can_be_stopped:
                raise expected("fixed_cost", "Budget", "left out where reviews can be stopped", self.fixed_cost)
        FLAG.check("strict", "Budget", self.strict)
        if self.hold is not None and self.hold != AUTO:
            FINITE_ABOVE_0._replace(words="'auto' or a finite number above 0").check("hold", "Budget", self.hold)

    def _check_time(self) -> None:
        given = [name for name in ("horizon", "until", "every") if getattr(self, name) is not None]
        if not given and self.total != math.inf:
            raise expected("horizon", "Budget", "given, unless the total is infinite (or `until` or `every`)", None)
        if len(given) > 1:
            raise expected(given[1], "Budget", f"left out where `{given[0]}` is given", getattr(self, given[1]))
        if self.horizon is not None:
            AT_LEAST_ONE.check("horizon", "Budget", self.horizon)
        if self.total == math.inf and given and given != ["horizon"]:
            raise expected("total", "Budget", f"finite with `{given[0]}`", self.total)
        for name in ("until", "start"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_seconds(name, "Budget", getattr(self, name)))
        AT_LEAST_0.check("carry", "Budget", self.carry)
        if self.every is None:
            for name, default in (("zone", None), ("start", None), ("carry", 0)):
                if getattr(self, name) != default:
                    raise expected(name, "Budget", "left out without `every`", getattr(self, name))
        else:
            schedule = self.schedule
            if isinstance(self.every, timedelta):
                object.__setattr__(self, "every", f"{schedule.length:.15g}s")

    @property
    def schedule(self) -> Schedule:
        """The periods of a budget with `every`.

        >>> Budget(40, every="7d").schedule.length
        604800.0
        """
        return Schedule.of(self.every, self.zone, cast("float | None", self.start))

    @property
    def is_timed(self) -> bool:
        """Whether tasks need a time: with `until` or `every`.

        >>> Budget(5, horizon=10).is_timed, Budget(5, every="day").is_timed
        (False, True)
        """
        return self.until is not None or self.every is not None

    @property
    def can_be_stopped(self) -> bool:
        """Whether reviews can be stopped, so that less than `max_cost` is held for them.

        >>> Budget(5, horizon=10, hold="auto").can_be_stopped
        True
        """
        return self.hold is not None or self.limit is not None

    def max_cost_of(self, expert: str) -> float | None:
        """Return the `max_cost` of an expert; None if it is not known.

        >>> Budget(60, horizon=100, max_cost={"senior": 6, "junior": 2}).max_cost_of("junior")
        2
        """
        return self.max_cost.get(expert) if isinstance(self.max_cost, Mapping) else self.max_cost

    def __repr__(self) -> str:
        always = ("total",) if self.is_timed else ("total", "horizon", "max_cost")
        shown = [f for f in fields(self) if f.name in always or getattr(self, f.name) != f.default]
        return f"Budget({', '.join(f'{each.name}={getattr(self, each.name)!r}' for each in shown)})"

    @classmethod
    def unlimited(cls) -> "Budget":
        """Return an infinite budget, under which the price is 0.

        >>> Budget.unlimited() == Budget(math.inf)
        True
        """
        return cls(math.inf)

    @classmethod
    def reviews(cls, total: float, **when: Any) -> "Budget":
        """Return a budget that counts reviews: each costs 1, and its cost need not be reported.

        Args:
            total: The number of reviews.
            when: `horizon`, `until` or `every`, and what belongs to it.

        Raises:
            InvalidArgument: As `Budget`.

        >>> Budget.reviews(100, horizon=1_000)
        Budget(total=100, horizon=1000, max_cost=1, fixed_cost=1)
        """
        return cls(total, **{"max_cost": 1, "fixed_cost": 1} | when)


def is_number(value: object) -> bool:
    """Whether a value is a real number that fits a double; True and False are not.

    Args:
        value: Anything.

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
    """Whether a value is a whole number from `least` to 2⁵³ − 1; floats such as 3.0 are.

    Args:
        value: Anything.
        least: The smallest number allowed.

    >>> is_whole(3, 1), is_whole(3.0, 1), is_whole(0, 1), is_whole(math.nan, 1)
    (True, True, False, False)
    """
    return is_number(value) and least <= cast(float, value) < 2**53 and cast(float, value) % 1 == 0


def plain(value: object) -> object:
    """Return a numpy scalar as a Python number, which JSON can hold; return anything else unchanged.

    Args:
        value: Anything.

    >>> plain("text")
    'text'
    """
    generic = getattr(sys.modules.get("numpy"), "generic", ())  # without numpy there are no numpy scalars
    return value.item() if isinstance(value, generic) else value


class Constraint(NamedTuple):
    """The valid values of a parameter.

    Attributes:
        words: The values, as they follow "must be" in an error message.
        holds: Returns whether a value is valid.
        convert: Returns the value that is kept for a valid one; by default the same.

    >>> at_least(1).check("horizon", "Budget", 3.0)
    3
    """

    words: str
    holds: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value

    def check(self, name: str, owner: str, value: object) -> Any:
        """Return the value that is kept; raise InvalidArgument if it is invalid."""
        if not self.holds(value):
            raise expected(name, owner, self.words, value)
        return self.convert(value)

    @property
    def or_none(self) -> "Constraint":
        """The same constraint of a parameter that may also be None."""
        return Constraint(
            f"None or {self.words}",
            lambda value: value is None or self.holds(value),
            lambda value: None if value is None else self.convert(value),
        )


def at_least(least: int) -> Constraint:
    """Return the constraint to whole numbers from `least` on, which are kept as int."""
    return Constraint(f"a whole number of at least {least}", lambda value: is_whole(value, least), int)


def number(words: str, within: Callable[[float], bool]) -> Constraint:
    """Return the constraint to numbers within a range.

    Args:
        words: The range, as it follows "must be".
        within: Returns whether a number is in the range.

    >>> number("a number above 1", lambda value: value > 1).holds(math.nan)
    False
    """
    return Constraint(words, lambda value: is_number(value) and within(value))


FLAG = Constraint("True or False", lambda value: isinstance(value, bool))
AT_LEAST_ONE = at_least(1)
AT_LEAST_0 = number("a number of at least 0", lambda value: value >= 0)
FINITE_ABOVE_0 = number("a finite number above 0", lambda value: 0 < value < math.inf)


def check_fields(made: object, constraints: Mapping[str, Constraint]) -> None:
    """Check the fields of a frozen dataclass, and keep plain numbers in them; to be called in `__post_init__`.

    Args:
        made: A dataclass.
        constraints: The constraints by name of the field.

    Raises:
        InvalidArgument: A field is invalid; the message names it, the class, the valid values and the value.
    """
    for each in fields(made):  # type: ignore[arg-type]
        value = plain(getattr(made, each.name))
        if each.name in constraints:
            value = constraints[each.name].check(each.name, type(made).__name__, value)
        object.__setattr__(made, each.name, value)


class Decision(NamedTuple):
    """The route of a task, with the estimates, price and budget that it was decided with.

    The expert with the largest (estimate + width) − price · max(0, cost − cost width) is asked, if that is more than
    the model's estimate + width. (`Deferrer.paper` does not clip the cost at 0, and gives the model an optimistic cost;
    under Thompson sampling values are drawn, with the widths as standard deviations.)

    Attributes:
        id: The number of the decision, counted from 0.
        route: "model", or the name of the expert to ask.
        reason: One of `REASONS`.
        propensity: The probability with which this route was taken, in (0, 1].
        price: The reward that one unit of budget must bring, by resource if there are several.
        budget_left: Before this decision: the total less what is spent and reserved.
        reserved: The hold of this decision: the amount reserved until its cost is known; 0 if the model decides.
        expected_cost: The estimated cost of this route; 0 if the model decides.
        estimates: The expected reward of each decider.
        widths: What optimism adds to each of these estimates.
        costs: The expected cost of each expert.
        cost_widths: What optimism subtracts from each of these costs.

    >>> from deferkit import Budget, Deferrer
    >>> decision = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1)).decide([1.0], force="human")
    >>> decision.route, decision.reason, decision.reserved, decision.estimates
    ('human', 'forced', 1.0, {'model': 0.5, 'human': 0.5})
    """

    id: int
    route: str
    reason: str
    propensity: float
    price: Amount
    budget_left: Amount
    reserved: Amount
    expected_cost: Amount
    estimates: dict[str, float]
    widths: dict[str, float]
    costs: dict[str, Amount]
    cost_widths: dict[str, Amount]

    def explain(self) -> str:
        """Return one English sentence that gives the reason of this route.

        An estimate is followed by ± and what optimism adds to it: the smaller that is, the surer is the estimate.

        >>> from deferkit import Budget, Deferrer
        >>> Deferrer(n_features=1, budget=Budget(0, horizon=10)).decide([1.0]).explain()
        'Task 0 goes to model, because the 0 left of the budget is not enough to ask.'
        """
        return explain(self)

    def _repr_html_(self) -> str:
        rows = [
            [name, f"{reward:.3g} ± {self.widths[name]:.2g}", show(self.costs[name]) if name in self.costs else "–"]
            for name, reward in self.estimates.items()
        ]
        about = [f"price {show(self.price)} for a unit of budget, {show(self.budget_left)} left before"]
        table = html_table((["decider", "expected reward", "expected cost"], rows))
        return html_block(self.explain(), table, remarks=about)


def show(amount: Amount) -> str:
    """Return an amount as text, with four significant digits.

    Args:
        amount: A number, or numbers by resource.

    >>> show(0.25), show({"minutes": 3.0, "euros": 0.5})
    ('0.25', '3 minutes and 0.5 euros')
    """
    if isinstance(amount, Mapping):
        return " and ".join(f"{value:.4g} {name}" for name, value in amount.items())
    return f"{amount:.4g}"


def explain(decision: Decision) -> str:
    """Return one English sentence that gives the reason of a route.

    Args:
        decision: A decision of a `Deferrer` or of the service.
    """
    head = f"Task {decision.id} goes to {decision.route}"
    expert = decision.route if decision.route != MODEL else runner_up(decision)
    compared = (
        f"{expert} is expected to earn {decision.estimates[expert]:.3g} ± {decision.widths[expert]:.2g}"
        f" at a cost of {show(decision.costs[expert])}, the model"
        f" {decision.estimates[MODEL]:.3g} ± {decision.widths[MODEL]:.2g}"
    )
    priced = f"with a price of {show(decision.price)} for a unit of budget"
    chance = f"with probability {decision.propensity:.3g}"
    why = why_worth_it(decision, expert) if decision.route != MODEL else why_not_worth_it(decision, expert)
    return {
        "warm-up": f"{head}, drawn {chance} so that everyone is known.",
        "worth it": f"{head}, which is worth it: {compared}, {priced}{why}.",
        "not worth it": f"{head}, because an expert is not worth it: {compared}, {priced}{why}.",
        "budget": f"{head}, because the {show(decision.budget_left)} left of the budget is not enough to ask.",
        "forced": f"{head}, because the caller said so.",
        "explored": f"{head}, drawn {chance} so that other policies can be evaluated.",
        "unavailable": f"{head}, because no expert is available.",
        "unsettled": f"{head}, because no cost is known yet and enough is held for tasks that wait for one.",
    }[decision.reason]


def why_worth_it(decision: Decision, expert: str) -> str:
    """Return the reason to ask an expert who is expected to earn no more than the model, after a semicolon."""
    estimates = decision.estimates
    if decision.reason != "worth it" or estimates[expert] > estimates[MODEL]:
        return ""
    free = not any(amounts_of(decision.price)) and all(math.isfinite(left) for left in amounts_of(decision.budget_left))
    return f"; {expert} is asked to learn more{', because the budget would not be used otherwise' * free}"


def why_not_worth_it(decision: Decision, expert: str) -> str:
    """Return the shortfall of the best expert, after a semicolon; nothing if it was not compared."""
    if decision.reason != "not worth it":
        return ""
    reward = decision.estimates[expert] + decision.widths[expert]
    gain, price = reward - decision.estimates[MODEL], reward - worth_of(decision, expert)
    if gain <= 0.0:
        return f"; even at best, {expert} is expected to earn no more than the model"
    if gain <= price:
        return f"; at best {expert} is expected to earn {gain:.3g} more, and the price of its cost is {price:.3g}"
    return f"; at best {expert} is expected to earn {gain:.3g} more, and as much may be true of the model"


def amounts_of(amount: Amount) -> list[float]:
    """Return the numbers of an amount, one for each resource."""
    return list(amount.values()) if isinstance(amount, Mapping) else [amount]


def worth_of(decision: Decision, decider: str) -> float:
    """Return the value of a decider at a decision: its optimistic reward less the price of its optimistic cost.

    >>> from deferkit import Budget, Deferrer
    >>> decision = Deferrer(n_features=1, budget=Budget(9, horizon=100, max_cost=1), warm_up=0).decide([1.0])
    >>> worth_of(decision, "model") == decision.estimates["model"] + decision.widths["model"]
    True
    """
    reward = decision.estimates[decider] + decision.widths[decider]
    if decider == MODEL:
        return reward
    price, cost, width = map(amounts_of, (decision.price, decision.costs[decider], decision.cost_widths[decider]))
    return reward - sum(p * max(0.0, c - w) for p, c, w in zip(price, cost, width, strict=True))


def runner_up(decision: Decision) -> str:
    """Return the expert with the largest optimistic reward less the price of its optimistic cost.

    Args:
        decision: A decision of a `Deferrer` or of the service.
    """
    return max(decision.costs, key=lambda expert: worth_of(decision, expert))


class Scores(NamedTuple):
    """Routes, estimates and widths of n contexts, none of which was decided. R is the number of resources.

    Attributes:
        routes: [n] The route that each context would get if it came next.
        estimates: [n] for each decider: expected rewards.
        widths: [n] for each decider: what optimism adds to them.
        costs: [n, R] for each expert: expected costs.
        cost_widths: [n, R] for each expert: what optimism subtracts from them.
        price: The reward that one unit of budget must bring.

    >>> from deferkit import Budget, Deferrer
    >>> scores = Deferrer(n_features=1, warm_up=0).score([[1.0], [0.5]])
    >>> scores.estimates["human"].tolist(), scores.price
    ([0.5, 0.5], 0.0)
    """

    routes: "NDArray[np.str_]"
    estimates: "dict[str, NDArray[np.float64]]"
    widths: "dict[str, NDArray[np.float64]]"
    costs: "dict[str, NDArray[np.float64]]"
    cost_widths: "dict[str, NDArray[np.float64]]"
    price: Amount


class Coefficients(NamedTuple):
    """The estimate of one reward or cost: a coefficient for each of d features, and their uncertainty.

    Attributes:
        theta: [d] The coefficients θ.
        inverse: [d, d] The inverse M⁻¹ of the precision matrix; a width is a factor times √(xᵀM⁻¹x).
        names: [d] The feature of each coefficient where an encoder names them, else None.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1), ridge=0.5)
    >>> decision = deferrer.decide([1.0], force="human")
    >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.3)
    >>> deferrer.coefficients()["human"]
    Coefficients(theta=array([0.6]), inverse=array([[0.66666667]]), names=None)
    """

    theta: "NDArray[np.float64]"
    inverse: "NDArray[np.float64]"
    names: tuple[str, ...] | None = None


class Drifted(NamedTuple):
    """A detected drift: the relation between context and one reward or cost has changed.

    Attributes:
        target: "model", the name of an expert, or "cost of …".
        decision: The id of the next decision at the time of detection.
        strength: The share of the observations that the estimate stopped using, from 0 to 1.
        times: How often this target has drifted so far.
        since: The id of the next decision at the most likely time of the change; None with `defaults="2026.11"` or an
            unbounded `reward_range`.
        before: The mean response between the change before it, or the start, and this one; None likewise.
        after: The mean response since the change, at the time of detection; None likewise.
        error: The standard error of after − before; None likewise.

    >>> Drifted("human", decision=1_200, strength=0.8, times=1).target
    'human'
    """

    target: str
    decision: int
    strength: float
    times: int
    since: int | None = None
    before: float | None = None
    after: float | None = None
    error: float | None = None


class Run(NamedTuple):
    """The routes, rewards and costs of a stream of n tasks. R is the number of resources.

    Attributes:
        routes: [n] Indices into `deciders`: 0 for the model, 1 for the first expert, …
        reasons: [n] Indices into `REASONS`.
        propensities: [n] The probability of each route.
        prices: [n, R] The price at each decision.
        rewards: [n] The reward of the chosen decider; the model's where a review was stopped.
        costs: [n, R] The cost of the chosen decider.
        deciders: "model", then the names of the experts.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=1, budget=Budget(0, horizon=2))
    >>> run = deferrer.run([[1.0], [0.5]], {"model": [0.5, 0.25], "human": [1.0, 1.0]}, cost=[1.0, 1.0])
    >>> run.reward, run.deferral_rate, run.costs.tolist()
    (0.75, 0.0, [[0.0], [0.0]])
    """

    routes: "NDArray[np.int64]"
    reasons: "NDArray[np.int64]"
    propensities: "NDArray[np.float64]"
    prices: "NDArray[np.float64]"
    rewards: "NDArray[np.float64]"
    costs: "NDArray[np.float64]"
    deciders: tuple[str, ...]

    @property
    def reward(self) -> float:
        """The sum of rewards."""
        return float(self.rewards.sum())

    @property
    def deferral_rate(self) -> float:
        """The share of tasks that went to an expert, from 0 to 1; 0 for an empty stream."""
        return float((self.routes > 0).mean()) if self.routes.size else 0.0

    def facts(self) -> dict[str, str]:
        """Return the outcome as texts by label.

        >>> from deferkit import Deferrer
        >>> Deferrer(n_features=1).run([[1.0]], {"model": [0.5], "human": [0.5]}, cost=[1.0]).facts()["tasks"]
        '1: model 1'
        """
        counts = ((name, int((self.routes == i).sum())) for i, name in enumerate(self.deciders))
        reasons = ((name, int((self.reasons == i).sum())) for i, name in enumerate(REASONS))
        return {
            "tasks": f"{len(self.routes):,}: " + ", ".join(f"{name} {n:,}" for name, n in counts if n),
            "reasons": ", ".join(f"{name} {n:,}" for name, n in reasons if n) or "none",
            "reward": f"{self.reward:,.6g}",
            "cost": ", ".join(f"{cost:,.6g}" for cost in self.costs.sum(axis=0)),
            "last price": ", ".join(f"{price:.4g}" for price in self.prices[-1:].ravel()) or "none",
        }

    def __repr__(self) -> str:
        """Return the outcome in lines; the arrays are attributes."""
        return "Run\n" + align_fields(self.facts())

    def _repr_html_(self) -> str:
        return html_block("Run", html_table((["", ""], list(self.facts().items())), 2))


class Period(NamedTuple):
    """The current period of a budget with `every`, or the time up to the end of one with `until`.

    Attributes:
        start: When it began, in seconds since 1970.
        end: When the budget is renewed, or ends.
        total: What there was to spend in it: the allowance, what was carried over, and the holds of pending reviews.
        spent: The costs booked in it.
        tasks_left: How many tasks are expected until its end.

    >>> Period(start=0.0, end=604_800.0, total=40.0, spent=12.5, tasks_left=310.0).spent
    12.5
    """

    start: float
    end: float
    total: float
    spent: float
    tasks_left: float


class MeanEstimate(NamedTuple):
    """The estimate of one reward or cost, on average over the latest tasks.

    Attributes:
        mean: The mean estimate.
        error: The mean standard error; of a reward, at most half the range of rewards.
        samples: The number of observations.

    >>> print(MeanEstimate(mean=0.7, error=0.0123, samples=400))
    0.7 ± 0.012
    """

    mean: float
    error: float
    samples: int

    def __str__(self) -> str:
        """Return the estimate with its error."""
        return f"{self.mean:.3g} ± {self.error:.2g}"


class Summary(NamedTuple):
    """Counts, budget and estimates of a learner at one moment.

    Attributes:
        decisions: How many tasks were decided.
        routes: How many of them went to each decider.
        deferral_rate: The share that went to an expert, from 0 to 1.
        total: The total of the budget.
        spent: The sum of the observed costs, without overruns.
        reserved: The sum of all holds.
        left: The total less what is spent and reserved.
        overrun: Costs that did not fit the budget.
        price: The reward that one unit of budget must bring.
        pending: Decisions that hold budget, because their cost is not known.
        expired: Decisions that expired.
        forced: Decisions whose route the caller prescribed.
        without_budget: Decisions that went to the model because no budget was left.
        noise: The estimated standard deviation of each reward, and of each cost as "cost of …".
        samples: The number of observations of each of them.
        samples_in_use: How many observations each estimate rests on; fewer than `samples` where it forgets.
        drifts: How many drifts were detected.
        history_bytes: Memory used for remembered decisions and for the samples of exact refits, in bytes.
        stopped: Reviews that were stopped before they were done.
        backwards: Decisions whose time was before that of an earlier one, and counted as that.
        periods: The current period of each resource that renews or has an end; total, spent and left above are those
            of all periods so far.
        estimates: The estimate of each reward and cost on the latest tasks, at most 200; none before the first task.
        remark: Why experts are asked less than planned, or how much budget is held for reviews whose reward came
            without a cost, and what would change it, in one line; empty if neither is so.

    >>> from deferkit import Budget, Deferrer
    >>> summary = Deferrer(n_features=1, budget=Budget(5, horizon=100)).summary()
    >>> summary.decisions, summary.left, summary.routes
    (0, 5.0, {'model': 0, 'human': 0})
    """

    decisions: int
    routes: dict[str, int]
    deferral_rate: float
    total: Amount
    spent: Amount
    reserved: Amount
    left: Amount
    overrun: Amount
    price: Amount
    pending: int
    expired: int
    forced: int
    without_budget: int
    noise: dict[str, float]
    samples: dict[str, int]
    samples_in_use: dict[str, float]
    drifts: int
    history_bytes: int
    stopped: int
    backwards: int
    periods: dict[str, Period]
    estimates: Mapping[str, MeanEstimate] = {}
    remark: str = ""

    def __str__(self) -> str:
        """Return a line for each field, to be read by people."""
        return align_fields(self._asdict())

    def _repr_html_(self) -> str:
        fields = self._asdict()
        remark = [fields.pop("remark")] if self.remark else []
        rows = [[name.replace("_", " "), show_value(name, value)] for name, value in fields.items()]
        return html_block("Summary", html_table((["", ""], rows), 2), remarks=remark)


def align_fields(fields: Mapping[str, object]) -> str:
    """Return fields as lines to be read by people; shares in per cent.

    >>> print(align_fields({"decisions": 12000, "deferral_rate": 0.125, "routes": {"model": 10500, "human": 1500}}))
    decisions      12,000
    deferral rate  12.5 %
    routes         model 10,500, human 1,500
    """
    width = max(map(len, fields), default=0)
    return "\n".join(f"{name.replace('_', ' '):<{width}}  {show_value(name, value)}" for name, value in fields.items())


def show_value(name: str, value: object) -> str:
    """Return a value to be read by people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {show_value('', each)}" for key, each in value.items()) or "none"
    if name.endswith("_rate") and isinstance(value, float):
        return f"{100 * value:.4g} %"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if type(value) is int else str(value) or "none"
