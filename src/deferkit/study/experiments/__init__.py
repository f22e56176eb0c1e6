"""The experiments, by name."""

from deferkit.errors import InvalidArgument
from deferkit.study.experiments import (
    coverage,
    drift,
    exp1,
    exp2,
    feedback,
    horizon,
    imagenet16h,
    knapsack_bandit,
    knapsack_regret,
    knapsack_reward,
    logistic,
    mvh,
    noise,
    reviewed,
    rivals,
    small_budget,
    small_streams,
    tables,
)
from deferkit.study.experiments.experiment import Experiment, Finding

SYNTHETIC = (exp1, exp2, horizon, small_budget, small_streams, drift, feedback, coverage, noise, logistic)
WITH_PEOPLE = (knapsack_reward, knapsack_regret, knapsack_bandit, imagenet16h, mvh, reviewed, tables)
EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in (*SYNTHETIC, *WITH_PEOPLE, rivals)
}
PEOPLE = tuple(module.EXPERIMENT.name for module in WITH_PEOPLE)
"""On tables of answers, most of them people's: rewards are realised, OPT is that of hindsight."""
APART = (*PEOPLE, "rivals")
"""What runs only when it is asked for: it takes longer, and needs other packages or data."""


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


__all__ = ["APART", "EXPERIMENTS", "PEOPLE", "Experiment", "Finding", "chosen"]
