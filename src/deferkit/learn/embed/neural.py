"""Settings of a `NeuralEmbedding`: networks in front of the linear layer (NeuralLinear, Section 4.3 of the paper)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, ClassVar

from deferkit.errors import expected
from deferkit.extras import needs
from deferkit.learn.embed.embedding import Embedder, Shape
from deferkit.types import AT_LEAST_ONE, FLAG, Constraint, check_fields, is_whole, number

BATCH_STEP = 100_000  # multiplications that a mini-batch costs beyond its own

Schedule = int | Sequence[tuple[int, int]]

MEMORY = {
    "memory": AT_LEAST_ONE.or_none,
    "discount": number("a number from 0 to 1", lambda value: 0 <= value <= 1),
}
"""The constraints of what an embedding remembers."""
NETWORK = {
    "hidden": AT_LEAST_ONE,
    "batch": AT_LEAST_ONE,
    "learning_rate": number("a number above 0", lambda value: 0 < value < math.inf),
}
"""The constraints of a network and its training."""
CONSTRAINTS = {
    **NETWORK,
    **MEMORY,
    "networks": Constraint("3, 2 or 1", lambda value: is_whole(value, 1) and value <= 3),
    "skip": FLAG,
    "module": Constraint(
        "a function from n_features to a torch Module", lambda value: value is None or callable(value)
    ),
}


@dataclass(frozen=True, kw_only=True)
class NeuralEmbedding:
    """The hidden layer of small networks that predict rewards and costs, retrained on a schedule.

    After each retraining the views of all kept tasks are recomputed and the linear systems on top are refitted. Needs
    `pip install 'deferkit[networks]'`, or `pip install 'deferkit[neural]'` for a torch `module` of your own.

    Args:
        hidden: The number of hidden units of each network; 50 by default.
        networks: 3 (default): a network for each reward and each cost; 2: one for each decider, with its costs;
            1: one for all targets.
        learning_rate: The learning rate of Adam; 5e-4 by default.
        batch: The number of tasks in a mini-batch; 500 by default. A network learns from those with a known outcome.
        every: Observations between two retrainings of one epoch each: a number, or pairs (from which observation on,
            every how many). By default every 10, and every 100 from observation 4,000 on.
        skip: Whether the view holds the context beside the hidden layer; True by default.
        memory: The number of tasks kept to retrain on; None (default) keeps all. What was learned from older
            tasks stays, discounted at each retraining.
        discount: The factor of that discount, from 0 to 1; 0.95 by default.
        module: A function from the number of features to a torch Module that maps contexts to `hidden` numbers; None
            (default) for one ReLU layer.

    Raises:
        InvalidArgument: If an argument is of the wrong type or out of range.

    >>> NeuralEmbedding(every=[(0, 20), (4_000, 100)]).next_at(seen=5_000)
    5100
    """

    kind: ClassVar[str] = "neural"
    frozen: ClassVar[bool] = False

    hidden: int = 50
    networks: int = 3
    learning_rate: float = 5e-4
    batch: int = 500
    every: Schedule = ((0, 10), (4_000, 100))
    skip: bool = True
    memory: int | None = None
    discount: float = 0.95
    module: Callable[[int], Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, CONSTRAINTS)
        object.__setattr__(self, "every", as_schedule(self.every))

    def width(self, shape: Shape) -> int:
        """Return the length of a view."""
        return int(self.hidden) + (shape.n_features if self.skip else 0)

    def views(self, shape: Shape) -> list[int]:
        """Return the network whose view each target reads."""
        if self.networks == 1:
            return [0] * shape.n_targets
        if self.networks == 2:
            return [shape.expert_of(target) for target in range(shape.n_targets)]
        return list(range(shape.n_targets))

    def next_at(self, seen: int) -> int:
        """Return the number of observations at which the networks are retrained next."""
        return next_in(self.every, seen)

    def count_numbers(self, shape: Shape) -> int:
        """Return the number of numbers in the networks: weights, gradients, moments, and a copy."""
        return 4 * self.hidden * (max(self.views(shape)) + 1) * (shape.n_features + shape.n_targets)

    def training_step(self, shape: Shape, n: int) -> int:
        """Return the multiplications of an epoch on n tasks."""
        units = self.hidden * (max(self.views(shape)) + 1)
        return 6 * n * units * (shape.n_features + shape.n_targets) + -(-n // self.batch) * BATCH_STEP

    def make(self, shape: Shape) -> Embedder:
        """Return the networks, untrained."""
        needs("networks" if self.module is None else "torch")
        from deferkit.learn.embed.networks import Networks  # noqa: PLC0415 - they know their settings

        return Networks(self, shape)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values; of a module of your own, only that there is one."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"kind": self.kind, **given, "module": self.module is not None}


def as_schedule(every: object, owner: str = "NeuralEmbedding") -> tuple[tuple[int, int], ...]:
    """Return a schedule as pairs (from which observation on, every how many), the first from 0 on; raise if invalid."""
    what = "a whole number, or pairs (from how many observations on, every how many) of which the first begins at 0"
    if is_whole(every, 1):
        every = [(0, every)]
    pairs = list(every) if isinstance(every, Sequence) and not isinstance(every, str) else []
    good = all(isinstance(p, Sequence) and len(p) == 2 and is_whole(p[0], 0) and is_whole(p[1], 1) for p in pairs)
    if not pairs or not good or pairs[0][0] != 0 or any(a[0] >= b[0] for a, b in pairwise(pairs)):
        raise expected("every", owner, what, every)
    return tuple((int(begin), int(step)) for begin, step in pairs)


def next_in(every: Schedule, seen: int) -> int:
    """Return the number of observations at which a schedule is due next.

    Args:
        every: A number, or pairs (from which observation on, every how many).
        seen: The number of observations so far.

    >>> next_in(((0, 20), (100, 50)), 80), next_in(((0, 20), (100, 50)), 100), next_in(((0, 10),), 7)
    (100, 150, 10)
    >>> next_in(((0, 1000), (100, 10)), 0)
    100
    """
    phases = as_schedule(every)
    ends = [*(begin for begin, _ in phases[1:]), None]
    for (begin, step), end in zip(phases, ends, strict=True):
        time = -(-max(seen + 1, begin) // step) * step  # the first multiple that is not before
        if end is None or time < end:
            return time
    raise AssertionError("the last phase has no end")
