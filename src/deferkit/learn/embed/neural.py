"""Networks in front of the linear layer: the paper's NeuralLinear (Section 4.3), and NeuralLogistic."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, ClassVar

from deferkit.errors import expected
from deferkit.extras import needs
from deferkit.learn.embed.embedding import Embedder, Shape
from deferkit.types import is_number, is_whole, plain

Schedule = int | Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class NeuralEmbedding:
    """The hidden layer of small networks that predict rewards and costs, retrained on a schedule.

    After each retraining the views of all past contexts are computed anew and the linear systems on top are rebuilt.
    It needs `pip install 'deferkit[networks]'`; a `module` of your own needs torch, `pip install 'deferkit[neural]'`.

    >>> NeuralEmbedding(every=[(0, 20), (4_000, 100)]).next_at(seen=5_000)
    5100
    """

    kind: ClassVar[str] = "neural"
    frozen: ClassVar[bool] = False

    hidden: int = 50
    """Units of the hidden layer, for each network."""
    networks: int = 3
    """3: one for each reward and each cost; 2: one for each decider, its cost included; 1: one for everything."""
    learning_rate: float = 5e-4
    """Of Adam."""
    batch: int = 500
    """Tasks in a mini-batch; each network learns from those of them whose outcome it knows."""
    every: Schedule = ((0, 10), (4_000, 100))
    """Observations between two retrainings, one epoch each: a number, or pairs (from how many on, every how many)."""
    skip: bool = True
    """Put the context itself beside the hidden layer: never worse than either by more than noise."""
    memory: int | None = None
    """Tasks kept to retrain on. What was learned from older ones stays, with less and less weight; None keeps all."""
    discount: float = 0.95
    """That weight, at each retraining."""
    module: Callable[[int], Any] | None = field(default=None, compare=False)
    """Your own network: takes the number of features, returns a torch Module from contexts to `hidden` numbers."""

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, plain(getattr(self, each.name)))
        object.__setattr__(self, "every", as_schedule(self.every))
        for name in ("hidden", "batch"):
            if not is_whole(getattr(self, name), 1):
                raise expected(name, "NeuralEmbedding", "a whole number of at least 1", getattr(self, name))
            object.__setattr__(self, name, int(getattr(self, name)))
        if not is_whole(self.networks, 1) or self.networks > 3:
            raise expected("networks", "NeuralEmbedding", "3, 2 or 1", self.networks)
        if not is_number(self.learning_rate) or not 0 < self.learning_rate < math.inf:
            raise expected("learning_rate", "NeuralEmbedding", "a number above 0", self.learning_rate)
        check_memory(self.memory, self.discount, "NeuralEmbedding")
        if not isinstance(self.skip, bool):
            raise expected("skip", "NeuralEmbedding", "True or False", self.skip)
        if self.module is not None and not callable(self.module):
            raise expected("module", "NeuralEmbedding", "a function from n_features to a torch Module", self.module)

    def width(self, shape: Shape) -> int:
        """Return the length of a view."""
        return int(self.hidden) + (shape.n_features if self.skip else 0)

    def views(self, shape: Shape) -> list[int]:
        """Return which network each estimate looks at."""
        if self.networks == 1:
            return [0] * shape.n_targets
        if self.networks == 2:
            return [shape.expert_of(target) for target in range(shape.n_targets)]
        return list(range(shape.n_targets))

    def next_at(self, seen: int) -> int:
        """Return after how many observations it is retrained next."""
        return next_in(self.every, seen)

    def make(self, shape: Shape) -> Embedder:
        """Return the networks, untrained."""
        needs("networks" if self.module is None else "torch")
        from deferkit.learn.embed.networks import Networks  # noqa: PLC0415 - they know their settings

        return Networks(self, shape)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data; of your own module only that there is one."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"kind": self.kind, **given, "module": self.module is not None}


def as_schedule(every: object, owner: str = "NeuralEmbedding") -> tuple[tuple[int, int], ...]:
    """Return pairs (from how many observations on, every how many), the first from 0 on; raise if these are none."""
    what = "a whole number, or pairs (from how many observations on, every how many) of which the first begins at 0"
    if is_whole(every, 1):
        every = [(0, every)]
    pairs = list(every) if isinstance(every, Sequence) and not isinstance(every, str) else []
    good = all(isinstance(p, Sequence) and len(p) == 2 and is_whole(p[0], 0) and is_whole(p[1], 1) for p in pairs)
    if not pairs or not good or pairs[0][0] != 0 or any(a[0] >= b[0] for a, b in pairwise(pairs)):
        raise expected("every", owner, what, every)
    return tuple((int(begin), int(step)) for begin, step in pairs)


def next_in(every: Schedule, seen: int) -> int:
    """Return the first time after `seen` that a schedule names.

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


def check_memory(memory: object, discount: object, owner: str) -> None:
    """Raise unless these say how many tasks are kept, and what the others still weigh."""
    if memory is not None and not is_whole(memory, 1):
        raise expected("memory", owner, "None or a whole number of at least 1", memory)
    if not is_number(discount) or not 0 <= discount <= 1:  # type: ignore[operator]
        raise expected("discount", owner, "a number from 0 to 1", discount)
