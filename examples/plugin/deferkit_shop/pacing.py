"""A pacing: a controller that raises the price while more is spent than planned, and lowers it else."""

import numpy as np

from deferkit.learn.pacing import PacingView, Parameter, PythonPacing
from deferkit.learn.pacing.compiled import Floats


class Proportional(PythonPacing):
    """The step is proportional to what was spent above plan, in units of the mean cost."""

    description = "a price that follows what is spent above plan"
    parameters = (Parameter("gain", 0.02, 0, False, "step for one mean cost above plan, in units of reward"),)

    def step(self, dual: Floats, view: PacingView) -> None:
        """Move the price of each resource."""
        if view.decided <= view.warm_up or np.isnan(view.mean_cost).any() or (view.mean_cost <= 0).any():
            return
        for r in np.flatnonzero(np.isfinite(view.left)):  # no price where there is no bound
            planned = view.left[r] / max(1.0, view.tasks_left[r])
            above = (view.cost[r] - planned) / view.mean_cost[r]
            dual[r] = max(0.0, dual[r] + view.parameters["gain"] * above / view.mean_cost[r])
