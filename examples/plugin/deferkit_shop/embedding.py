"""An embedding: the context with the products of all pairs of its features."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.training_set import Floats, Ints, TrainingSet


class ProductFeatures:
    """Nothing is learned here: the estimates learn on these features as they do on contexts."""

    def transform(self, x: Floats, out: Floats) -> None:
        """Write contexts [n, d] and their products."""
        first, second = np.triu_indices(x.shape[1])
        out[:, : x.shape[1]] = x
        out[:, x.shape[1] : x.shape[1] + len(first)] = x[:, first] * x[:, second]

    def retrain(self, training_set: TrainingSet, epochs: int) -> None:
        """Nothing is trained."""

    def embed(self, training_set: TrainingSet, rows: Ints, view: int) -> Floats:
        """Return the features of observed tasks."""
        x = training_set.x[rows]
        out = np.zeros((len(x), x.shape[1] + x.shape[1] * (x.shape[1] + 1) // 2))
        self.transform(x, out)
        return out

    def system(self, target: int) -> None:
        """The linear layer is fitted to the training set."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing was learned."""
        return {}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Nothing is restored."""


@dataclass(frozen=True, kw_only=True)
class Products:
    """The context with the products of all pairs of its features, for estimates that are quadratic in it."""

    kind: ClassVar[str] = "products"
    frozen: ClassVar[bool] = False
    first: int = 64
    memory: int | None = None
    discount: float = 0.5

    def width(self, shape: Shape) -> int:
        """Return the number of features: d of the context, and one for each pair."""
        return shape.n_features + shape.n_features * (shape.n_features + 1) // 2

    def views(self, shape: Shape) -> list[int]:
        """Return one view for all rewards and costs."""
        return [0] * shape.n_targets

    def next_at(self, seen: int) -> int:
        """Return when the linear layer is fitted anew: each time that there is twice as much."""
        return max(self.first, 2 * seen)

    def make(self, shape: Shape) -> ProductFeatures:
        """Return the embedder."""
        del shape
        return ProductFeatures()

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {"kind": self.kind, "first": self.first, "memory": self.memory, "discount": self.discount}
