"""Options of `deferkit run` that belong to a world: only those that are given reach it, and only if it has them."""

import os
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from deferkit.errors import InvalidArgument
from deferkit.worlds import kind_of
from deferkit.worlds.drift import FAMILIES, KINDS
from deferkit.worlds.synthetic import LINKS, REGIMES
from deferkit.worlds.table import ORDERS, Table

SYNTHETIC, TABLE, DATA = "The synthetic world", "A table of your own", "Worlds of data"
DRIFT = "The world that drifts (with --horizon, --noise and --features)"

Regime = Annotated[
    str | None, typer.Option(help="How the deciders compare: " + ", ".join(REGIMES), rich_help_panel=SYNTHETIC)
]
Horizon = Annotated[int | None, typer.Option(help="Number of tasks; 50,000", rich_help_panel=SYNTHETIC)]
Noise = Annotated[
    float | None, typer.Option(help="Standard deviation of rewards and costs; 0.1", rich_help_panel=SYNTHETIC)
]
Features = Annotated[int | None, typer.Option(help="Length of a context; 20", rich_help_panel=SYNTHETIC)]
MostOnes = Annotated[
    int | None, typer.Option(help="How many features of a context can be on; 8", rich_help_panel=SYNTHETIC)
]
Decay = Annotated[
    float | None,
    typer.Option(help="λ: a context with k features on comes in proportion to λ^k; 0.3", rich_help_panel=SYNTHETIC),
]
Link = Annotated[str | None, typer.Option(help="Of the rewards: " + ", ".join(LINKS), rich_help_panel=SYNTHETIC)]
Scaled = Annotated[
    bool | None,
    typer.Option("--scaled", help="Scale rewards and costs so that means are in [0, 1]", rich_help_panel=SYNTHETIC),
]
Experts = Annotated[int | None, typer.Option(help="Number of experts; 1", rich_help_panel=SYNTHETIC)]
Resources = Annotated[
    int | None, typer.Option(help="Number of resources, each with this budget; 1", rich_help_panel=SYNTHETIC)
]
Family = Annotated[
    str | None, typer.Option(help="Linear rewards or a table: " + ", ".join(FAMILIES), rich_help_panel=DRIFT)
]
Kind = Annotated[str | None, typer.Option(help="How it drifts: " + ", ".join(KINDS), rich_help_panel=DRIFT)]
Categories = Annotated[int | None, typer.Option(help="Of the table; 8", rich_help_panel=DRIFT)]
Context = Annotated[
    str | None,
    typer.Option(help="Columns of the context: names or globs, with commas between; x_*", rich_help_panel=TABLE),
]
ModelReward = Annotated[
    str | None, typer.Option(help="Column of the model's rewards; model_reward", rich_help_panel=TABLE)
]
HumanReward = Annotated[
    str | None, typer.Option(help="Column of the human's rewards; human_reward", rich_help_panel=TABLE)
]
Cost = Annotated[str | None, typer.Option(help="Column of the human's costs; cost", rich_help_panel=TABLE)]
Order = Annotated[str | None, typer.Option(help=f"Of the tasks. A table: {' or '.join(ORDERS)}", rich_help_panel=TABLE)]
Time = Annotated[
    str | None, typer.Option(help="Column of dates or numbers that tasks are sorted by", rich_help_panel=TABLE)
]
Model = Annotated[str | None, typer.Option(help="Which network decides", rich_help_panel=DATA)]
History = Annotated[
    str | None, typer.Option(help="What a context knows of a person: observed or leaky", rich_help_panel=DATA)
]
People = Annotated[str | None, typer.Option(help="A file of people, instead of simulated ones", rich_help_panel=DATA)]
Data = Annotated[
    Path | None, typer.Option(help="Where data sets lie; $DEFERKIT_DATA unless given", rich_help_panel=DATA)
]

RENAMED = {
    "n_features": "features",
    "n_experts": "experts",
    "n_resources": "resources",
    "n_categories": "categories",
}
"""Parameters of a world whose option has another name."""

PARAMETERS = (
    *("regime", "horizon", "noise", "n_features", "most_ones", "decay", "link", "scaled", "n_experts", "n_resources"),
    *("family", "kind", "n_categories"),
    *("context", "model_reward", "human_reward", "cost", "order", "time", "model", "history", "people"),
)
"""What options of worlds are for; a command may have some of them."""


def option(parameter: str) -> str:
    """Return the option of a parameter, as a user types it.

    >>> option("n_features"), option("model_reward")
    ('--features', '--model-reward')
    """
    return "--" + RENAMED.get(parameter, parameter).replace("_", "-")


def of_world(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's values that belong to a world, by parameter.

    >>> of_world({"features": 20, "trials": 3, "noise": None})
    {'noise': None, 'n_features': 20}
    """
    names = {parameter: RENAMED.get(parameter, parameter) for parameter in PARAMETERS}
    return {parameter: values[name] for parameter, name in names.items() if name in values}


def given_to(world: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given; raise if the world has no such parameter.

    >>> given_to("synthetic", {"regime": "random", "noise": None, "people": None})
    {'regime': 'random'}
    """
    given = {name: value for name, value in options.items() if value is not None}
    known = signature(kind_of(world)).parameters
    for name in given:
        if name not in known:
            has = ", ".join(option(each) for each in options if each in known) or "none of its own"
            raise InvalidArgument(f"The world {world!r} has no option {option(name)}. It has: {has}.")
    if given.get("order") == "shuffled" and "time" in given:
        raise InvalidArgument("--order shuffled and --time are two orders: give one of them.")
    return given


def following(world: str, then: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the world of new tasks that follow past ones, and its options; raise unless both are tables.

    >>> following("history.csv", "new.csv", {"cost": "minutes"})
    ('new.csv', {'cost': 'minutes', 'after': 'history.csv'})
    """
    for name in (world, then):
        if kind_of(name) is not Table:
            raise InvalidArgument(f"--then is for two tables, as in history.csv --then new.csv. Got {name!r}.")
    return then, {**options, "after": world}


def use_data(folder: Path | None) -> None:
    """Tell this process and its workers where data sets lie."""
    if folder is not None:
        if not folder.is_dir():
            raise InvalidArgument(f"There is no directory {folder} with data.")
        os.environ["DEFERKIT_DATA"] = str(folder.resolve())
