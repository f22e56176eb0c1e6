"""Protocols of a learned representation: `Embedding`, its settings, and `Embedder`, which they make."""

from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.embed.training_set import Floats, Ints, TrainingSet


class Shape(NamedTuple):
    """The sizes, link and seed that a representation is made for.

    Attributes:
        n_features: The length of a context vector.
        n_experts: The number of experts.
        n_resources: The number of resources.
        link: The name of the link of the rewards.
        reward_range: The least and the largest reward.
        seed: The seed of the learner.
        stacked: Whether the representation "auto" has additive models and a stack; False by default.
    """

    n_features: int
    n_experts: int
    n_resources: int
    link: str
    reward_range: tuple[float, float]
    seed: int
    stacked: bool = False

    @property
    def n_deciders(self) -> int:
        """The number of deciders: the model and the experts."""
        return self.n_experts + 1

    @property
    def n_targets(self) -> int:
        """The number of targets: the rewards of the deciders, then the costs of the experts by resource."""
        return self.n_deciders + self.n_experts * self.n_resources

    def training_set(self) -> TrainingSet:
        """Return a training set for contexts and outcomes of this shape, still empty."""
        return TrainingSet(n_features=self.n_features, n_deciders=self.n_deciders, n_resources=self.n_resources)

    def expert_of(self, target: int) -> int:
        """Return the decider whose reward or cost a target is; 0 is the model."""
        if target < self.n_deciders:
            return target
        return (target - self.n_deciders) // self.n_resources + 1


class Embedder(Protocol):
    """A representation that maps contexts to views, and is retrained."""

    def transform(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts [n, d] to [n, views · width]; a row does not depend on the others."""
        ...

    def retrain(self, training_set: TrainingSet, epochs: int) -> None:
        """Train on the whole training set, for this many epochs."""
        ...

    def embed(self, training_set: TrainingSet, rows: Ints, view: int) -> Floats:
        """Return one view [rows, width] of observed tasks, for the linear systems."""
        ...

    def system(self, target: int) -> tuple[Floats, Floats] | None:
        """Return coefficients and inverse precision of a target; None if they are fitted to the training set."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned, as arrays for the state file."""
        ...

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`."""
        ...


class Embedding(Protocol):
    """The settings of a representation: a frozen dataclass.

    It may have three more members, which the service reads: `feature`, a key of `extras.REQUIREMENTS` ("networks" by
    default), `count_numbers(shape)`, the numbers that its embedder keeps, and `training_step(shape, n)`, the
    multiplications of a retraining on n tasks. The service takes more time than usual for granted without the last.
    """

    kind: ClassVar[str]
    frozen: ClassVar[bool]
    """Whether estimates change at a retraining only, and not with each observation."""

    @property
    def memory(self) -> int | None:
        """The number of tasks kept to retrain on; None for all."""
        ...

    @property
    def discount(self) -> float:
        """The factor, at each retraining, of what was learned from tasks that are no longer kept."""
        ...

    def width(self, shape: Shape) -> int:
        """Return the length of a view."""
        ...

    def views(self, shape: Shape) -> list[int]:
        """Return the view that each target reads."""
        ...

    def next_at(self, seen: int) -> int:
        """Return the number of observations at which it is retrained next, after `seen` of them."""
        ...

    def make(self, shape: Shape) -> Embedder:
        """Return the embedder, untrained."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        ...
