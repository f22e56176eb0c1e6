"""What a pacing is: its parameters, initial state and reaction to a change of the budget.

Its step is compiled: the file of the same name in `learn/core/`. The state is one vector, the *dual*: the prices of
the resources first, then whatever the pacing remembers.
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
        """Return the value, or raise."""
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
        """Where there is a price to find: not for a budget of nothing, nor for one without end."""
        return (self.total > LEAST_BUDGET) & np.isfinite(self.total)


class Strategy:
    """The base of all pacings: no parameters, no memory, a price of 0 at the start."""

    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    @property
    def code(self) -> int:
        """Its number in the compiled core."""
        return core.PACINGS.index(self.name)

    def check(self, given: Mapping[str, object]) -> dict[str, float]:
        """Return all parameters with these values, checked."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                there = ", ".join(map(repr, known)) or "none"
                raise InvalidArgument(
                    f"The pacing {self.name!r} has no parameter {name!r}. Its parameters are: {there}."
                )
        return {name: each.check(given.get(name, each.default)) for name, each in known.items()}

    def window(self, parameters: Mapping[str, float]) -> int:
        """Return how many of the latest contexts are looked at."""
        del parameters
        return 0

    def memory_size(self, n_resources: int) -> int:
        """Return how many numbers it remembers beside the prices."""
        del n_resources
        return 0

    def constants(self, parameters: Mapping[str, float], budgets: Budgets) -> list[float]:
        """Return the numbers that the compiled step reads and never changes."""
        del budgets
        return list(parameters.values())

    def start(self, dual: Floats, budgets: Budgets, warm_up: int) -> None:
        """Write the initial state to a vector of zeros."""

    def budget_changed(self, dual: Floats, before: Budgets, after: Budgets, next_id: int, warm_up: int) -> None:
        """React to a change of the totals."""

    def warm_up_changed(self, dual: Floats, warm_up: int) -> None:
        """React to a shorter warm-up."""

    def next_solve(self, dual: Floats, n_resources: int) -> float:
        """Return the number of the decision that next looks at past contexts."""
        del dual, n_resources
        return math.inf
