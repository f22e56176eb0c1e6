"""What a learned representation is: settings that a user gives, and what they make."""

from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.embed.training_set import Floats, Ints, TrainingSet


class Shape(NamedTuple):
    """What a representation is made for."""

    n_features: int
    n_experts: int
    n_resources: int
    link: str
    reward_range: tuple[float, float]
    seed: int

    @property
    def n_deciders(self) -> int:
        """The model and the experts."""
        return self.n_experts + 1

    @property
    def n_targets(self) -> int:
        """All that is estimated: the rewards of the deciders, then the costs of the experts by resource."""
        return self.n_deciders + self.n_experts * self.n_resources

    def training_set(self) -> TrainingSet:
        """Return a training set for contexts and outcomes of this shape, still empty."""
        return TrainingSet(n_features=self.n_features, n_deciders=self.n_deciders, n_resources=self.n_resources)

    def expert_of(self, target: int) -> int:
        """Return whose reward or cost an estimate is: 0 for the model."""
        if target < self.n_deciders:
            return target
        return (target - self.n_deciders) // self.n_resources + 1


class Embedder(Protocol):
    """A representation at work."""

    def transform(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts [n, d] to [n, views · width]; a row does not depend on the others."""
        ...

    def retrain(self, training_set: TrainingSet, epochs: int) -> None:
        """Learn from all of the past, this many times as thoroughly as usual."""
        ...

    def embed(self, training_set: TrainingSet, rows: Ints, view: int) -> Floats:
        """Return one view [rows, width] of tasks of the past, as their linear systems shall see them."""
        ...

    def system(self, target: int) -> tuple[Floats, Floats] | None:
        """Return coefficients and inverse precision of an estimate, where they are not to be fitted to the past."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned, as arrays."""
        ...

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore what `state` returned."""
        ...


class Embedding(Protocol):
    """The settings of a representation: a frozen record of plain data."""

    kind: ClassVar[str]
    frozen: ClassVar[bool]
    """Whether estimates change at a retraining only."""

    @property
    def memory(self) -> int | None:
        """How many tasks are kept to retrain on; None for all."""
        ...

    @property
    def discount(self) -> float:
        """The weight, at each retraining, of what was learned from tasks that are no longer kept."""
        ...

    def width(self, shape: Shape) -> int:
        """Return the length of a view."""
        ...

    def views(self, shape: Shape) -> list[int]:
        """Return which view each estimate looks at."""
        ...

    def next_at(self, seen: int) -> int:
        """Return after how many observations it wants to be retrained, if this many have come."""
        ...

    def make(self, shape: Shape) -> Embedder:
        """Return it, untrained."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        ...
