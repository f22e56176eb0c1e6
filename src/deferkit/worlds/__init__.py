"""Worlds: sources of tasks, by name, path or module."""

from collections.abc import Mapping
from inspect import signature
from typing import Any, Protocol

from deferkit.errors import InvalidArgument, closest
from deferkit.extras import needs
from deferkit.plugins import PluginGroup

needs("study")  # before the worlds import it

from deferkit.tables.sheet import is_table
from deferkit.worlds.arrivals import Arrivals, LateCosts
from deferkit.worlds.base import Option, TaskStream, options_of
from deferkit.worlds.classifiers import Classifiers, JunkContexts, OneChange, SeveralExperts
from deferkit.worlds.drift import Drift
from deferkit.worlds.imagenet16h import ImageNet16H
from deferkit.worlds.knapsack import Knapsack
from deferkit.worlds.model_vs_human import ModelVsHuman
from deferkit.worlds.moderation import Moderation
from deferkit.worlds.small_tables import SmallTables
from deferkit.worlds.synthetic import Synthetic
from deferkit.worlds.table import Table


class World(Protocol):
    """Streams of tasks, one for each seed."""

    def parameters(self) -> dict[str, Any]:
        """Return all that the world was made with, as plain data."""
        ...

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed."""
        ...


WORLDS: dict[str, type[Any]] = {
    "synthetic": Synthetic,
    "knapsack": Knapsack,
    "imagenet16h": ImageNet16H,
    "model-vs-human": ModelVsHuman,
    "drift": Drift,
    "moderation": Moderation,
    "arrivals": Arrivals,
    "late": LateCosts,
    "classifiers": Classifiers,
    "made-up-tables": SmallTables,
    "several-experts": SeveralExperts,
    "junk-contexts": JunkContexts,
    "one-change": OneChange,
}
WORLD_PLUGINS = PluginGroup(
    noun="world",
    group="deferkit.worlds",
    wanted="a class with the methods `parameters` and `draw`",
    accepts=lambda kind: (
        isinstance(kind, type) and all(callable(getattr(kind, n, None)) for n in ("parameters", "draw"))
    ),
)


def kind_of(name: str) -> type[Any]:
    """Return the class of a world.

    Args:
        name: A key of `WORLDS`, a path to a table, or a plug-in: the name of an entry point, or `module:name`.

    Raises:
        InvalidArgument: There is no such world, the message lists those that there are; or the plug-in cannot be used.

    >>> kind_of("synthetic").__name__, kind_of("tasks.csv").__name__
    ('Synthetic', 'Table')
    """
    if isinstance(name, str) and name in WORLDS:
        return WORLDS[name]
    if isinstance(name, str) and is_table(name) and name not in WORLD_PLUGINS.names():
        return Table
    if (found := WORLD_PLUGINS.find(name)) is not None:
        kind: type[Any] = found
        return kind
    names = [*WORLDS, *WORLD_PLUGINS.names()]
    known = f"There is no world {name!r}. There is: {', '.join(names)}."
    raise InvalidArgument(f"{known} A path to a CSV or Parquet file is one too.{closest(str(name), names)}")


def make_world(name: str, parameters: Mapping[str, Any]) -> World:
    """Return a world.

    Args:
        name: As for `kind_of`.
        parameters: Values of its fields; the others have their defaults.

    Raises:
        InvalidArgument: There is no such world or parameter, or a value is not allowed.

    >>> make_world("synthetic", {"horizon": 100}).draw(0).n_tasks
    100
    """
    kind = kind_of(name)
    known = signature(kind).parameters
    for parameter in parameters:
        if parameter not in known:
            raise InvalidArgument(
                f"The world {name!r} has no parameter {parameter!r}. It has: {', '.join(known)}."
                f"{closest(parameter, known)}"
            )
    world: World = kind(**({"path": name, **parameters} if kind is Table else parameters))
    return world


def all_options() -> dict[str, list[tuple[str, Option]]]:
    """Return the options of all worlds: for each parameter the worlds that have it, and what it is there.

    >>> [world for world, _ in all_options()["horizon"]]
    ['synthetic', 'drift', 'moderation', 'late', 'one-change']
    """
    found: dict[str, list[tuple[str, Option]]] = {}
    worlds: dict[str, type[Any]] = {"a table": Table, **WORLDS}
    for world, kind in worlds.items():
        for each in options_of(kind):
            found.setdefault(each.parameter, []).append((world, each))
    return found


def flag_of(parameter: str) -> str:
    """Return the option of a parameter, as a user types it.

    >>> flag_of("n_features"), flag_of("model_reward")
    ('--features', '--model-reward')
    """
    used = all_options().get(parameter)
    return "--" + (used[0][1].flag if used else parameter.replace("_", "-"))
