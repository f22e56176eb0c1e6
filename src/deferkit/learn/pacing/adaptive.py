"""A price that follows spending with an adaptive step: O(1) a decision."""

from deferkit.learn.pacing.strategy import Parameter, Strategy


class Adaptive(Strategy):
    """The dual holds Σg² of each resource beside the prices."""

    name = "adaptive"
    description = "an adaptive step of the price after every decision"
    parameters = (Parameter("step", 0.3, 0, False, "η, in units of reward for the mean cost"),)

    def memory_size(self, n_resources: int) -> int:
        """Return the number of resources."""
        return n_resources
