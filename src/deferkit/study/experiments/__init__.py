"""The registry of experiments: the only list of their names.

A module is named after its experiment, and imported when that is asked for: drawing takes a second to import.
"""

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from deferkit.errors import InvalidArgument

if TYPE_CHECKING:
    from deferkit.study.experiments.experiment import Experiment

DEFAULT = (
    "exp1",
    "exp2",
    "horizon",
    "small-budget",
    "small-streams",
    "drift",
    "feedback",
    "coverage",
    "noise",
    "logistic",
    "renewing",
    "holds",
)
"""Experiments that run by default."""
ON_REQUEST = (
    "knapsack-reward",
    "knapsack-regret",
    "knapsack-bandit",
    "imagenet16h",
    "mvh",
    "reviewed",
    "tables",
    "rivals",
    "day-one",
    "small-tables",
    "drift-alarms",
)
"""Experiments that run only by name: they take longer, or need other packages or data."""
REGISTRY = (*DEFAULT, *ON_REQUEST)


def module_of(name: str) -> str:
    """Return the name of the module that declares an experiment."""
    return name.replace("-", "_")


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
    experiment: Experiment = import_module(f"{__name__}.{module_of(name)}").EXPERIMENT
    return replace(experiment, name=name)


def select_experiments(names: list[str] | None) -> "list[Experiment]":
    """Return the experiments of these names, each once; all of `DEFAULT` if there are none.

    Raises:
        InvalidArgument: There is no experiment of one of the names.
    """
    return [load(name) for name in dict.fromkeys(names or DEFAULT)]
