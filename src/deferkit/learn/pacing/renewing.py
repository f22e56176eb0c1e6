"""The pacing "resolve" for budgets with an end or a period: the price depends on the time as well."""

from collections.abc import Mapping

from deferkit.learn.pacing.resolve import Resolve
from deferkit.learn.pacing.strategy import Budgets, Floats

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
