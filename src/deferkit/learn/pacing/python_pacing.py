"""The base class of pacings from outside the package, whose step is written in Python."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from deferkit.learn import core
from deferkit.learn.pacing.compiled import Floats, Strategy


class PacingView(NamedTuple):
    """What a step is told; all arrays are [R], a number for each resource.

    Attributes:
        decided: The number of decisions so far.
        warm_up: How many of the first ones are drawn at random: the price does not matter until then.
        cost: What the latest decision cost; what it is expected to cost, as long as that is not known; 0 if the model
            decided.
        left: The budget left: neither spent nor reserved.
        tasks_left: The number of tasks to come, by the horizon of the budget.
        mean_cost: The mean of all costs that were observed; NaN before the first.
        parameters: The parameters of the pacing by name.
    """

    decided: int
    warm_up: int
    cost: Floats
    left: Floats
    tasks_left: Floats
    mean_cost: Floats
    parameters: Mapping[str, float]


class PythonPacing(Strategy):
    """A pacing whose step is written in Python: the base class of pacings from outside the package.

    A subclass has a `description`, `parameters` with defaults, and `step`. All that it remembers is in the dual: the
    prices of the resources, then as many numbers as `memory_size` says. A pacing has no other state, so that it is
    saved, loaded and proposed with, and two learners may share it.

    >>> class Proportional(PythonPacing):
    ...     description = "the price follows what is spent above plan"
    ...     def step(self, dual, view):
    ...         dual[:1] = max(0.0, dual[0] + 0.1 * (view.cost[0] - view.left[0] / max(1.0, view.tasks_left[0])))
    >>> Proportional().memory_size(n_resources=1)
    0
    """

    name: ClassVar[str] = "python"
    can_be_chosen: ClassVar[bool] = False  # this class; those derived from it are named as plug-ins

    @property
    def code(self) -> int:
        """The number of all pacings in Python in the compiled core."""
        return core.PACINGS.index("python")

    def step(self, dual: Floats, view: PacingView) -> None:
        """Move the price for the latest decision. It is called once for each, and again for proposals.

        Args:
            dual: A copy of the prices [R], then of the memory of the pacing; to be changed in place. A price must be a
                finite number of at least 0. Resources without a price (a budget of 0, or an infinite one) keep 0.
            view: What is known of the decision and the budget.
        """
        raise NotImplementedError
