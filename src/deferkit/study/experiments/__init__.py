"""The registry of experiments: the only list of their names.

A module is imported when its experiment is asked for, because drawing takes a second to import.
"""

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from deferkit.errors import InvalidArgument

if TYPE_CHECKING:
    from deferkit.study.experiments.experiment import Experiment

DEFAULT = {
    "exp1": "exp1",
    "exp2": "exp2",
    "horizon": "horizon",
    "small-budget": "small_budget",
    "small-streams": "small_streams",
    "drift": "drifting_rewards",
    "feedback": "feedback",
    "coverage": "ellipsoid_coverage",
    "noise": "noise",
    "logistic": "binary_rewards",
    "renewing": "renewing_budgets",
    "holds": "held_back",
}
"""Experiments that run unless some are named, and their modules."""
ON_REQUEST = {
    "knapsack-reward": "knapsack_reward",
    "knapsack-regret": "knapsack_regret",
    "knapsack-bandit": "knapsack_bandit",
    "imagenet16h": "noisy_pictures",
    "mvh": "mvh",
    "reviewed": "reviewed",
    "tables": "moderation_tables",
    "rivals": "rivals",
    "day-one": "day_one",
    "small-tables": "made_tables",
    "drift-alarms": "drift_alarms",
}
"""Experiments that run only by name: they take longer, or need other packages or data."""
REGISTRY = DEFAULT | ON_REQUEST


def load(name: str) -> "Experiment":
    """Return the experiment of this name.

    Args:
        name: A key of `REGISTRY`.

    Raises:
        InvalidArgument: There is no such experiment; the message lists those that there are.

    >>> load("noise").name
    'noise'
    """
    if name not in REGISTRY:
        raise InvalidArgument(f"There is no experiment {name!r}. There is: {', '.join(REGISTRY)}.")
    experiment: Experiment = import_module(f"{__name__}.{REGISTRY[name]}").EXPERIMENT
    return replace(experiment, name=name)


def chosen(names: list[str] | None) -> "list[Experiment]":
    """Return the experiments of these names, each once; all of `DEFAULT` if there are none.

    Raises:
        InvalidArgument: There is no experiment of one of the names.
    """
    return [load(name) for name in dict.fromkeys(names or DEFAULT)]
