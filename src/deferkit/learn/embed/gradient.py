"""NeuralUCB and NeuralTS, for comparison: networks predict, and their gradients give the widths.

The prediction is f(x) and its width √(g(x)ᵀZ⁻¹g(x)), with the gradient g of f and a diagonal Z = λI + Σ g·gᵀ over what
was observed (Zhou, Li & Gu 2020; Zhang et al. 2021). Prediction and width are the two numbers of a view that no linear
layer is fitted to: the coefficients are (1, 0), the inverse precision is diag(0, 1). Price and budget are the same as
for every other learner. Both change when the network is retrained, not in between.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deferkit.extras import needs
from deferkit.learn.consistency import check_shapes
from deferkit.learn.embed._passes import gradient_rows
from deferkit.learn.embed.embedding import Embedder, Shape
from deferkit.learn.embed.networks import Networks
from deferkit.learn.embed.neural import NETWORK, NeuralEmbedding, Schedule, as_schedule, next_in
from deferkit.learn.embed.training_set import Floats, Ints, TrainingSet
from deferkit.types import FINITE_ABOVE_0, check_fields

COEFFICIENTS = np.array([1.0, 0.0])
INVERSE = np.diag([0.0, 1.0])


@dataclass(frozen=True, kw_only=True)
class GradientEmbedding:
    """Predictions of networks with the widths of NeuralUCB, or of NeuralTS with `Exploration.thompson()`.

    Needs `pip install 'deferkit[networks]'`.

    Args:
        hidden: The number of hidden units of each network; 50 by default. There is a network for each reward and cost.
        learning_rate: The learning rate of Adam; 5e-4 by default.
        batch: The number of tasks in a mini-batch; 500 by default.
        every: Observations between two retrainings of one epoch each: a number, or pairs (from which observation on,
            every how many). By default every 10, and every 100 from observation 4,000 on.
        ridge: λ of the curvature Z, above 0; 1 by default.
        memory: The number of tasks kept to retrain on; None (default) keeps all. Z is that of the kept tasks.

    Raises:
        InvalidArgument: If an argument is of the wrong type or out of range.

    >>> GradientEmbedding().next_at(seen=25)
    30
    """

    kind: ClassVar[str] = "gradient"
    frozen: ClassVar[bool] = True

    hidden: int = 50
    learning_rate: float = 5e-4
    batch: int = 500
    every: Schedule = ((0, 10), (4_000, 100))
    ridge: float = 1.0

    memory: int | None = None

    discount: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_fields(self, NETWORK | {"ridge": FINITE_ABOVE_0})
        object.__setattr__(self, "every", as_schedule(self.every, "GradientEmbedding"))

    @property
    def network(self) -> NeuralEmbedding:
        """The settings of the networks."""
        return NeuralEmbedding(
            hidden=self.hidden, learning_rate=self.learning_rate, batch=self.batch, every=self.every, skip=False
        )

    def width(self, _shape: Shape) -> int:
        """Return the length of a view: a prediction and its width."""
        return 2

    def views(self, shape: Shape) -> list[int]:
        """Return a view of its own for each target."""
        return list(range(shape.n_targets))

    def next_at(self, seen: int) -> int:
        """Return the number of observations at which the networks are retrained next."""
        return next_in(self.every, seen)

    def count_numbers(self, shape: Shape) -> int:
        """Return the number of numbers in the networks and their curvature."""
        return 2 * self.network.count_numbers(shape)

    def training_step(self, shape: Shape, n: int) -> int:
        """Return the multiplications of an epoch on n tasks, and of the curvature."""
        return 2 * self.network.training_step(shape, n)

    def make(self, shape: Shape) -> Embedder:
        """Return the networks, untrained."""
        needs("networks")
        return Gradients(self, shape)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values; without a memory they are those of state files before it."""
        given = asdict(self)
        if self.memory is None:
            del given["memory"]
        return {"kind": self.kind, **given}


class Gradients:
    """The networks of a `GradientEmbedding`, with the curvature Z of each."""

    def __init__(self, settings: GradientEmbedding, shape: Shape) -> None:
        self.networks = Networks(settings.network, shape)
        self.ridge = float(settings.ridge)
        self.shape = shape
        squashed = [int(self.networks.squashed and target < shape.n_deciders) for target in range(shape.n_targets)]
        self.squashed = np.array(squashed, dtype=np.int64)
        hidden, d, n = settings.hidden, shape.n_features, shape.n_targets
        shapes = {"first": (n, d, hidden), "bias": (n, hidden), "head": (n, hidden), "offset": (n,)}
        self.curvature = {name: np.full(size, self.ridge) for name, size in shapes.items()}
        self._copy_weights()

    def _copy_weights(self) -> None:
        """Copy the weights, with all scaling undone."""
        hidden = self.networks.settings.hidden
        grow = float(np.sqrt(hidden))
        self.weights, self.biases = self.networks.body.weights * grow, self.networks.body.biases * grow
        heads = {name: values.astype(np.float64) for name, values in self.networks.heads.values.items()}
        unit = self.networks.units
        whole = heads["weights"].reshape(self.shape.n_targets, -1, hidden)
        self.heads = np.stack([whole[g, g] for g in range(self.shape.n_targets)]) * unit[:, None]
        self.offsets = heads["biases"] * unit

    def transform(self, x: Floats, out: Floats) -> None:
        """Write prediction and width of every network."""
        z = self.curvature
        gradient_rows(
            np.ascontiguousarray(x),
            self.weights,
            self.biases,
            self.heads,
            self.offsets,
            self.squashed,
            z["first"],
            z["bias"],
            z["head"],
            z["offset"],
            np.empty(self.weights.shape[2]),
            out,
        )

    def retrain(self, training_set: TrainingSet, epochs: int) -> None:
        """Train the networks, and recompute Z with their gradients."""
        self.networks.retrain(training_set, epochs)
        self._copy_weights()
        for g in range(self.shape.n_targets):
            rows, _ = training_set.select_labelled(g)
            x = training_set.x[rows]
            units, shown = self._predict(x, g)
            slope = shown * (1.0 - shown) if self.squashed[g] else np.ones(len(rows))
            on = (units > 0) * (slope**2)[:, None]
            heads = self.heads[g] ** 2
            self.curvature["first"][g] = self.ridge + (x**2).T @ on * heads
            self.curvature["bias"][g] = self.ridge + on.sum(axis=0) * heads
            self.curvature["head"][g] = self.ridge + (units**2 * (slope**2)[:, None]).sum(axis=0)
            self.curvature["offset"][g] = self.ridge + (slope**2).sum()

    def embed(self, training_set: TrainingSet, rows: Ints, view: int) -> Floats:
        """Return predictions of one network for observed tasks, with widths of 0: their decisions are made."""
        out = np.zeros((len(rows), 2))
        out[:, 0] = self._predict(training_set.x[rows], view)[1]
        return out

    def _predict(self, x: Floats, g: int) -> tuple[Floats, Floats]:
        """Return the hidden units and the predictions of one network."""
        units = np.maximum(x @ self.weights[g] + self.biases[g], 0.0)
        said = units @ self.heads[g] + self.offsets[g]
        return units, 0.5 * (1.0 + np.tanh(0.5 * said)) if self.squashed[g] else said

    def system(self, _target: int) -> tuple[Floats, Floats]:
        """Return the system by which prediction and width are passed through."""
        return COEFFICIENTS, INVERSE

    def state(self) -> dict[str, NDArray[Any]]:
        """Return weights and curvatures."""
        return self.networks.state() | {f"curvature {name}": array for name, array in self.curvature.items()}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`."""
        prefix = "curvature "
        check_shapes(saved, {prefix + name: array.shape for name, array in self.curvature.items()})
        self.curvature = {name: saved[prefix + name].copy() for name in self.curvature}
        self.networks.restore({name: array for name, array in saved.items() if not name.startswith(prefix)})
        self._copy_weights()
