"""Pacing strategies that are compiled: resolve, adaptive and exponentiated gradient."""

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.learn import core
from deferkit.types import at_least, number

Floats = NDArray[np.float64]

MIN_BUDGET: float = core.CONSTANTS["least_budget"]


class Parameter(NamedTuple):
    """A parameter of a pacing: a whole number of at least `least`, or any finite number above it."""

    name: str
    default: float
    least: float
    whole: bool
    meaning: str

    def check(self, value: object) -> float:
        """Return a valid value, or raise `InvalidArgument`."""
        above = number(f"a number above {self.least:g}", lambda each: self.least < each < math.inf)
        valid = at_least(int(self.least)) if self.whole else above
        checked: float = valid.check(self.name, "Pacing", value)
        return checked


class Budgets(NamedTuple):
    """Totals and horizons [R]; an infinite total has an infinite horizon."""

    total: Floats
    horizon: Floats

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """Which resources have a price: not those with a budget of 0, nor those with an infinite one."""
        return (self.total > MIN_BUDGET) & np.isfinite(self.total)


class Strategy:
    """A pacing without parameters and without memory, whose price starts at 0."""

    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    can_be_chosen: ClassVar[bool] = True
    """Whether users may name it; else it follows from other settings."""

    @property
    def code(self) -> int:
        """The number of this pacing in the compiled core."""
        return core.PACINGS.index(self.name)

    def check(self, given: Mapping[str, object]) -> dict[str, float]:
        """Return all parameters, with defaults for those that are not given; raise if one is invalid."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                there = ", ".join(map(repr, known)) or "none"
                raise InvalidArgument(
                    f"The pacing {self.name!r} has no parameter {name!r}. Its parameters are: {there}."
                )
        return {name: each.check(given.get(name, each.default)) for name, each in known.items()}

    def window(self, parameters: Mapping[str, float]) -> int:
        """Return the number of latest contexts that the price is solved for."""
        del parameters
        return 0

    def memory_size(self, n_resources: int) -> int:
        """Return the number of elements of the dual beside the prices."""
        del n_resources
        return 0

    def constants(self, parameters: Mapping[str, float], budgets: Budgets) -> list[float]:
        """Return the constants of the compiled step."""
        del budgets
        return list(parameters.values())

    def start(self, dual: Floats, budgets: Budgets, warm_up: int) -> None:
        """Write the initial dual to a vector of zeros."""

    def budget_changed(self, dual: Floats, before: Budgets, after: Budgets, next_id: int, warm_up: int) -> None:
        """React to a change of the totals."""

    def warm_up_changed(self, dual: Floats, warm_up: int) -> None:
        """React to a shorter warm-up."""

    def next_solve(self, dual: Floats, n_resources: int) -> float:
        """Return the number of the decision at which the price is next solved over past contexts."""
        del dual, n_resources
        return math.inf


class Adaptive(Strategy):
    """The dual holds Σg² of each resource beside the prices."""

    name = "adaptive"
    description = "an adaptive step of the price after every decision"
    parameters = (Parameter("step", 0.3, 0, False, "η, in units of reward for the mean cost"),)

    def memory_size(self, n_resources: int) -> int:
        """Return the number of resources."""
        return n_resources


MAX_STEP = 0.999  # ε = √(2/T) is above 1 for a horizon of 1


class Gradient(Strategy):
    """The dual holds log α of each resource beside the prices."""

    name = "gradient"
    description = "the exponentiated gradient of Agrawal & Devanur"
    first_weight: ClassVar[float] = 1.0

    def memory_size(self, n_resources: int) -> int:
        """Return the number of resources."""
        return n_resources

    def constants(self, parameters: Mapping[str, float], budgets: Budgets) -> list[float]:
        """Return log(1 + ε) and log(1 − ε) of each resource."""
        del parameters
        epsilon = np.sqrt(2.0 / budgets.horizon)
        return [*np.log1p(epsilon), *np.log1p(-np.minimum(epsilon, MAX_STEP))]

    def start(self, dual: Floats, budgets: Budgets, warm_up: int) -> None:
        """Start at γ = ½, or at equal shares if there are several resources."""
        del warm_up
        n, bounded = len(budgets.total), budgets.bounded
        share = 0.5 if n == 1 else 1.0 / (1.0 + n)
        dual[:n][bounded] = share * budgets.horizon[bounded] / budgets.total[bounded]
        dual[n:] = math.log(self.first_weight)

    def budget_changed(self, dual: Floats, before: Budgets, after: Budgets, next_id: int, warm_up: int) -> None:
        """Keep γ; a budget that was 0 starts at γ = ½, and one that becomes 0 has no price."""
        del next_id, warm_up
        price = dual[: len(after.total)]
        changed = (after.total != before.total) & np.isfinite(after.total)
        priced = after.total > MIN_BUDGET
        gamma = np.where(before.total > MIN_BUDGET, price * before.total / before.horizon, 0.5)
        fresh = np.where(priced, gamma * after.horizon / np.where(priced, after.total, 1.0), 0.0)
        price[changed] = fresh[changed]


class Paper(Gradient):
    """As printed: g = γ·(c − B/T), and α = ½ at the start, although γ = ½ implies α = 1."""

    name = "paper"
    description = "the exponentiated gradient exactly as Algorithm 1 prints it"
    first_weight = 0.5


class Resolve(Strategy):
    """The dual holds the number of the decision at which the price is solved next, beside the prices."""

    name = "resolve"
    description = "the price at which the recent tasks would use (budget left) / (tasks left) each"
    parameters = (
        Parameter("every", 200, 1, True, "decisions between two prices, once there are ten times as many"),
        Parameter("window", 1_000, 2, True, "how many of the latest contexts the price is solved for"),
    )

    def window(self, parameters: Mapping[str, float]) -> int:
        """Return the parameter `window`."""
        return int(parameters["window"])

    def memory_size(self, n_resources: int) -> int:
        """Return 1, for the number of a decision."""
        del n_resources
        return 1

    def constants(self, parameters: Mapping[str, float], budgets: Budgets) -> list[float]:
        """Return the parameter `every`."""
        del budgets
        return [parameters["every"]]

    def start(self, dual: Floats, budgets: Budgets, warm_up: int) -> None:
        """Schedule the first solution for the end of the warm-up."""
        del budgets
        dual[-1] = warm_up

    def budget_changed(self, dual: Floats, before: Budgets, after: Budgets, next_id: int, warm_up: int) -> None:
        """Solve at the next decision."""
        del before, after
        dual[-1] = min(dual[-1], max(next_id, warm_up))

    def warm_up_changed(self, dual: Floats, warm_up: int) -> None:
        """Solve no later than the end of the warm-up."""
        dual[-1] = min(dual[-1], warm_up)

    def next_solve(self, dual: Floats, n_resources: int) -> float:
        """Return the number of the decision at which the price is solved next."""
        del n_resources
        return dual.item(-1)


EVERY = 10  # tasks between two prices, at most


class Renewing(Resolve):
    """The dual holds the number of the decision at which prices are solved next, and the time of the last solution."""

    name = "renewing"
    can_be_chosen = False  # of "resolve", where a budget has an end or a period
    description = "the price at which tasks like those to come in this period would use what is left each"

    def memory_size(self, n_resources: int) -> int:
        """Return 2, for the number of a decision and a time."""
        del n_resources
        return 2

    def constants(self, parameters: Mapping[str, float], budgets: Budgets) -> list[float]:
        """Return the most tasks between two prices, and how many of the latest contexts they are solved for."""
        del budgets
        return [min(parameters["every"], EVERY), parameters["window"]]

    def start(self, dual: Floats, budgets: Budgets, warm_up: int) -> None:
        """Schedule the first solution for the end of the warm-up."""
        del budgets
        dual[-2] = warm_up

    def budget_changed(self, dual: Floats, before: Budgets, after: Budgets, next_id: int, warm_up: int) -> None:
        """Solve at the next decision."""
        del before, after
        dual[-2] = min(dual[-2], max(next_id, warm_up))

    def warm_up_changed(self, dual: Floats, warm_up: int) -> None:
        """Solve no later than the end of the warm-up."""
        dual[-2] = min(dual[-2], warm_up)

    def next_solve(self, dual: Floats, n_resources: int) -> float:
        """Return 0: time may make a solution due at any decision."""
        del dual, n_resources
        return 0.0
