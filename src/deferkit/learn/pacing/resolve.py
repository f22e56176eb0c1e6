"""The default pacing: the price is solved periodically so that the latest contexts would use the budget left."""

from collections.abc import Mapping

from deferkit.learn.pacing.strategy import Budgets, Floats, Parameter, Strategy


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
