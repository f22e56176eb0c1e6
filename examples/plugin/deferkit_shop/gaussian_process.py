"""An embedding: a Gaussian process, by features of which the linear layer of the learner is its posterior.

For inducing points Z and the kernel k(x, x′) = exp(−|x − x′|²/2ℓ²), the features φ(x) = L⁻¹ k(Z, x) with
L Lᵀ = k(Z, Z) have φ(x)ᵀφ(x′) ≈ k(x, x′), exactly so at Z (Nyström). Ridge regression on them is then the posterior
mean of a Gaussian process, and the width of an estimate its standard deviation in units of the noise. The context
stands beside them: before the first fit, and for linear trends.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import expected
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.training_set import Floats, Ints, TrainingSet
from deferkit.types import is_number, is_whole

JITTER = 1e-6  # added to the diagonal of k(Z, Z), which equal inducing points make singular


class NystromFeatures:
    """The inducing points, drawn from the training set at each retraining."""

    def __init__(self, settings: "GaussianProcess", shape: Shape) -> None:
        self.settings = settings
        self.shape = shape
        self.trained = 0  # retrainings so far
        self.length = 1.0
        self.points: Floats = np.zeros((0, shape.n_features))
        self.whiten: Floats = np.zeros((0, 0))  # L⁻¹

    def transform(self, x: Floats, out: Floats) -> None:
        """Write contexts [n, d] and their features; row by row, so that a row has the same bits in any company."""
        d, m = self.shape.n_features, len(self.points)
        out[:, :d] = x
        out[:, d:] = 0.0
        for row, features in zip(x, out, strict=True):
            kernel = np.exp(-((self.points - row) ** 2).sum(axis=1) / (2.0 * self.length**2))
            features[d : d + m] = (self.whiten * kernel).sum(axis=1)

    def retrain(self, training_set: TrainingSet, epochs: int) -> None:
        """Draw inducing points; the length scale is the median of their distances, unless it is given."""
        del epochs
        x = training_set.x
        rng = np.random.default_rng([self.shape.seed, self.trained])
        self.trained += 1
        self.points = x[np.sort(rng.choice(len(x), min(len(x), self.settings.inducing), replace=False))].copy()
        squares = ((self.points[:, None] - self.points) ** 2).sum(axis=2)
        median = float(np.sqrt(np.median(squares[squares > 0.0]))) if squares.any() else 1.0
        self.length = self.settings.length or median
        kernel = np.exp(-squares / (2.0 * self.length**2)) + JITTER * np.eye(len(squares))
        self.whiten = np.linalg.inv(np.linalg.cholesky(kernel))

    def embed(self, training_set: TrainingSet, rows: Ints, view: int) -> Floats:
        """Return the features of observed tasks, by matrix products."""
        del view
        x = training_set.x[rows]
        squares = (x**2).sum(axis=1)[:, None] + (self.points**2).sum(axis=1) - 2.0 * x @ self.points.T
        kernel = np.exp(-np.maximum(squares, 0.0) / (2.0 * self.length**2))
        empty = np.zeros((len(x), self.settings.inducing - len(self.points)))
        return np.concatenate([x, kernel @ self.whiten.T, empty], axis=1)

    def system(self, target: int) -> None:
        """The linear layer is fitted to the training set."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned."""
        counts = {"trained": np.array([float(self.trained)]), "length": np.array([self.length])}
        return {"points": self.points, "whiten": self.whiten, **counts}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""
        m = len(saved["points"])
        shapes = {"points": (m, self.shape.n_features), "whiten": (m, m), "trained": (1,), "length": (1,)}
        finite = all(np.isfinite(saved[name]).all() for name in shapes)
        if m > self.settings.inducing or not finite or any(saved[name].shape != shapes[name] for name in shapes):
            raise ValueError("the inducing points are not those of these settings")
        self.points, self.whiten = saved["points"].copy(), saved["whiten"].copy()
        self.trained, self.length = int(saved["trained"][0]), float(saved["length"][0])


@dataclass(frozen=True, kw_only=True)
class GaussianProcess:
    """A Gaussian process with a squared exponential kernel beside a linear one.

    Args:
        inducing: The number of inducing points; 50 by default.
        length: The length scale ℓ; None (default) for the median distance of inducing points.
        first: The number of observations before they are first drawn, 20 by default; then at each doubling.
        memory: The number of tasks kept; None (default) keeps all.
        discount: The factor, at each retraining, of what was learned from older tasks; 0.5 by default.
    """

    kind: ClassVar[str] = "gaussian-process"
    frozen: ClassVar[bool] = False

    inducing: int = 50
    length: float | None = None
    first: int = 20
    memory: int | None = None
    discount: float = 0.5

    def __post_init__(self) -> None:
        for name in ("inducing", "first"):
            if not is_whole(getattr(self, name), 1):
                raise expected(name, "GaussianProcess", "a whole number of at least 1", getattr(self, name))
        if self.length is not None and not (is_number(self.length) and 0 < self.length < 1e9):
            raise expected("length", "GaussianProcess", "None or a number above 0", self.length)
        if self.memory is not None and not is_whole(self.memory, 1):
            raise expected("memory", "GaussianProcess", "None or a whole number of at least 1", self.memory)
        if not (is_number(self.discount) and 0 <= self.discount <= 1):
            raise expected("discount", "GaussianProcess", "a number from 0 to 1", self.discount)

    def width(self, shape: Shape) -> int:
        """Return the length of the view: the context, and a feature for each inducing point."""
        return shape.n_features + self.inducing

    def views(self, shape: Shape) -> list[int]:
        """Return one view for all rewards and costs."""
        return [0] * shape.n_targets

    def next_at(self, seen: int) -> int:
        """Return the number of observations at which inducing points are drawn next."""
        return max(self.first, 2 * seen)

    def make(self, shape: Shape) -> NystromFeatures:
        """Return the embedder, without inducing points."""
        return NystromFeatures(self, shape)

    def count_numbers(self, shape: Shape) -> int:
        """Return the number of numbers in inducing points and L⁻¹, for the limits of the service."""
        return self.inducing * (self.inducing + shape.n_features)

    def training_step(self, shape: Shape, n: int) -> int:
        """Return the multiplications of a retraining on n tasks, for the limits of the service."""
        return self.inducing**2 * (self.inducing + shape.n_features) + n * self.inducing * shape.n_features

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {"kind": self.kind, **asdict(self)}
