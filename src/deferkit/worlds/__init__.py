"""Where tasks come from."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Protocol

from deferkit.errors import InvalidArgument
from deferkit.worlds.imagenet16h import ImageNet16H
from deferkit.worlds.knapsack import Knapsack
from deferkit.worlds.model_vs_human import ModelVsHuman
from deferkit.worlds.stream import Stream
from deferkit.worlds.synthetic import Synthetic


class World(Protocol):
    """Streams of tasks, one for each seed."""

    def parameters(self) -> dict[str, Any]:
        """Return all that the world was made with, as plain data."""
        ...

    def draw(self, seed: int) -> Stream:
        """Return the stream of this seed."""
        ...


WORLDS: dict[str, Callable[..., World]] = {
    "synthetic": Synthetic,
    "knapsack": Knapsack,
    "imagenet16h": ImageNet16H,
    "model-vs-human": ModelVsHuman,
}


def make_world(name: str, parameters: Mapping[str, Any]) -> World:
    """Return the world of this name, or say which ones there are.

    >>> make_world("synthetic", {"horizon": 100}).draw(0).n_tasks
    100
    """
    if not isinstance(name, str) or name not in WORLDS:
        raise InvalidArgument(f"There is no world {name!r}. There is: {', '.join(WORLDS)}.")
    known = signature(WORLDS[name]).parameters
    for parameter in parameters:
        if parameter not in known:
            raise InvalidArgument(f"The world {name!r} has no parameter {parameter!r}. It has: {', '.join(known)}.")
    return WORLDS[name](**parameters)
