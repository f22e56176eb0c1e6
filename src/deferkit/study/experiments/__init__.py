"""The experiments, by name."""

from deferkit.errors import InvalidArgument
from deferkit.study.experiments import (
    coverage,
    exp1,
    exp2,
    feedback,
    horizon,
    logistic,
    noise,
    rivals,
    small_budget,
)
from deferkit.study.experiments.experiment import Experiment, Finding

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (exp1, exp2, horizon, small_budget, feedback, coverage, noise, logistic, rivals)
}
APART = ("rivals",)
"""What runs only when it is asked for: it needs other packages, and they are slow."""


def chosen(names: list[str] | None) -> list[Experiment]:
    """Return the experiments of these names, or all but those apart; or say which ones there are.

    >>> [experiment.name for experiment in chosen(["noise"])]
    ['noise']
    """
    for name in names or ():
        if name not in EXPERIMENTS:
            raise InvalidArgument(f"There is no experiment {name!r}. There is: {', '.join(EXPERIMENTS)}.")
    wanted = names or [name for name in EXPERIMENTS if name not in APART]
    return [EXPERIMENTS[name] for name in dict.fromkeys(wanted)]


__all__ = ["APART", "EXPERIMENTS", "Experiment", "Finding", "chosen"]
