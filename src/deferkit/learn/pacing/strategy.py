"""Base class of the pacings: parameters, initial state, and reaction to a change of the budget.

Its step is compiled: the file of the same name in `learn/core/`. The state is one vector, the *dual*: the prices of
the resources first, then the memory of the pacing.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, expected
from deferkit.learn import core
from deferkit.types import is_number, is_whole

Floats = NDArray[np.float64]

LEAST_BUDGET: float = core.CONSTANTS["least_budget"]


class Parameter(NamedTuple):
    """A parameter of a pacing: a whole number of at least `least`, or any finite number above it."""

    name: str
    default: float
    least: float
    whole: bool
    meaning: str

    def check(self, value: object) -> float:
        """Return a valid value, or raise `InvalidArgument`."""
        if self.whole:
            if not is_whole(value, int(self.least)):
                raise expected(self.name, "Pacing", f"a whole number of at least {self.least:g}", value)
            return int(value)  # type: ignore[call-overload]
        if not (is_number(value) and self.least < value < math.inf):  # type: ignore[operator]
            raise expected(self.name, "Pacing", f"a number above {self.least:g}", value)
        return value  # type: ignore[return-value]


class Budgets(NamedTuple):
    """Totals and horizons [R]; an infinite total has an infinite horizon."""

    total: Floats
    horizon: Floats

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """Which resources have a price: not those with a budget of 0, nor those with an infinite one."""
        return (self.total > LEAST_BUDGET) & np.isfinite(self.total)


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
        """Return how many numbers the dual holds beside the prices."""
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
