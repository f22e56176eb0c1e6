"""The contract of a world."""

import json
from typing import Any

import numpy as np

from deferkit.testing.learner_checks import ContractCheck, disturb_global_generator, require, run_checks
from deferkit.worlds import kind_of, make_world
from deferkit.worlds.base import TaskStream

BAD_SEEDS: tuple[Any, ...] = (-1, 0.5, "one", None)
WIDTHS = 3  # axes of the costs


def world_checks(world: Any, **parameters: Any) -> list[ContractCheck]:
    """Return the checks of a world, to be run one by one.

    Args:
        world: A name, `module:name`, a path to a table, or a class.
        parameters: Of the world; the others have their defaults.

    Raises:
        InvalidArgument: There is no such world or parameter.
    """

    def make(**given: Any) -> Any:
        return make_world(world, given) if isinstance(world, str) else world(**given)

    made = make(**parameters)
    kind = kind_of(world) if isinstance(world, str) else world

    def plain() -> None:
        told = made.parameters()
        require(json.loads(json.dumps(told)) == json.loads(json.dumps(dict(told))), "Parameters are no JSON values.")
        given = {name: value for name, value in told.items() if name != "path"} if isinstance(world, str) else told
        again = make_world(world, given) if isinstance(world, str) else kind(**given)
        require(same_streams(again.draw(0), made.draw(0)), "A world with the same parameters draws another stream.")

    def seed() -> None:
        disturb_global_generator(1)
        first = made.draw(0)
        disturb_global_generator(2)
        require(same_streams(first, made.draw(0)), "Two streams of one seed differ.")

    def shapes() -> None:
        check_shapes(made.draw(0))

    def refuse_bad_seeds() -> None:
        for bad in BAD_SEEDS:
            try:
                made.draw(bad)
            except (ValueError, TypeError):
                continue
            require(False, f"It drew a stream for the seed {bad!r}.")

    return [
        ContractCheck("parameters", "`parameters` are JSON values that make the same world again", plain),
        ContractCheck("seed", "a seed gives the same stream again", seed),
        ContractCheck("shapes", "arrays have the shapes and values of a TaskStream", shapes),
        ContractCheck("refused", "a seed that is no whole number of at least 0 is refused", refuse_bad_seeds),
    ]


def same_streams(first: TaskStream, second: TaskStream) -> bool:
    """Return whether two streams have the same tasks."""
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first[:3], second[:3], strict=True))


def check_shapes(stream: TaskStream) -> None:
    """Compare the arrays of a stream with each other."""
    require(isinstance(stream, TaskStream), f"`draw` returned {type(stream).__name__}, not a TaskStream.")
    n = len(stream.contexts)
    for name in ("contexts", "rewards", "costs"):
        array = getattr(stream, name)
        require(array.dtype == np.float64, f"{name} are {array.dtype}, not float64.")
    require(n > 0 and stream.contexts.ndim == WIDTHS - 1, f"contexts have the shape {stream.contexts.shape}.")
    require(stream.costs.ndim == WIDTHS and len(stream.costs) == n, f"costs have the shape {stream.costs.shape}.")
    deciders = stream.costs.shape[1] + 1
    require(
        stream.rewards.shape == (n, deciders), f"rewards have the shape {stream.rewards.shape}, not {(n, deciders)}."
    )
    require(np.isfinite(stream.contexts).all(), "A context contains NaN or infinity.")
    require(not np.isinf(stream.rewards).any() and not np.isinf(stream.costs).any(), "An outcome is infinite.")
    require(not (stream.costs < 0).any(), "A cost is below 0.")
    require(not np.isnan(stream.rewards[:, 0]).any(), "A reward of the model is missing.")
    if stream.truth is not None:
        truth = stream.truth
        require(truth.rewards.shape == stream.rewards.shape, "The true rewards have another shape.")
        require(truth.costs.shape == stream.costs.shape, "The true costs have another shape.")
        require(abs(float(truth.population.probabilities.sum()) - 1) < 1e-9, "Probabilities do not add up to 1.")
    if stream.times is not None:
        require(stream.times.shape == (n,) and (np.diff(stream.times) >= 0).all(), "Times are not in order.")


def check_world(world: Any, **parameters: Any) -> list[str]:
    """Check that a world keeps the promises of its kind.

    Args:
        world: A name, `module:name`, a path to a table, or a class.
        parameters: Of the world; the others have their defaults.

    Returns:
        The names of the checks.

    Raises:
        ContractViolated: A promise is not kept.
        InvalidArgument: There is no such world or parameter.

    >>> check_world("synthetic", horizon=50)
    ['parameters', 'seed', 'shapes', 'refused']
    """
    return run_checks(world_checks(world, **parameters))
