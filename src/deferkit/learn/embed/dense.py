"""The hidden layers of all networks, as one; plain matrix products train so small a thing fastest."""

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_shapes, count_of
from deferkit.learn.embed._passes import adam, bias_and_relu, hidden_rows, relu_and_concat, relu_gradient
from deferkit.learn.embed.training_set import Floats, Singles


class Parameters:
    """Arrays of single precision that lie in one vector, and Adam on it."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        ends = np.cumsum(sizes)
        self.vector, self.slope, self._mean, self._square = (np.zeros(ends[-1], dtype=np.float32) for _ in range(4))
        self.steps = 0
        parts = list(zip(shapes.items(), ends - sizes, ends, strict=True))
        self.values = {name: self.vector[a:b].reshape(shape) for (name, shape), a, b in parts}
        self.slopes = {name: self.slope[a:b].reshape(shape) for (name, shape), a, b in parts}

    def move(self, rate: float) -> None:
        """Take one step of Adam along the slopes."""
        self.steps += 1
        adam(self.vector, self.slope, self._mean, self._square, rate, self.steps)

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return values and what Adam remembers."""
        vectors = {"values": self.vector, "mean": self._mean, "square": self._square}
        return {name: v.astype(np.float64) for name, v in vectors.items()} | {"steps": np.array([float(self.steps)])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore what `state` returned."""
        for name, vector in (("values", self.vector), ("mean", self._mean), ("square", self._square)):
            check_shapes(saved, {name: vector.shape})
            vector[:] = saved[name]
        self.steps = count_of(saved["steps"])


class Dense:
    """One ReLU layer for each network; side by side they are one matrix."""

    def __init__(self, n_features: int, hidden: int, n_views: int, rng: np.random.Generator) -> None:
        self.shape = n_features, hidden, n_views
        self.parameters = Parameters({"weights": (n_features, n_views * hidden), "biases": (n_views * hidden,)})
        reach = 1.0 / np.sqrt(n_features)
        for values in self.parameters.values.values():
            values[:] = rng.uniform(-reach, reach, values.shape)
        self._stretch = np.float32(np.sqrt(n_features))  # contexts come within the unit ball; networks like 1
        self.read()

    def read(self) -> None:
        """Copy the weights to where contexts are represented, scaled so that views are of a context's size."""
        d, hidden, views = self.shape
        weights, biases = (self.parameters.values[name].astype(np.float64) for name in ("weights", "biases"))
        shrink = 1.0 / np.sqrt(hidden)
        by_view = weights.reshape(d, views, hidden).transpose(1, 0, 2)
        self.weights = np.ascontiguousarray(by_view) * (float(self._stretch) * shrink)
        self.biases = biases.reshape(views, hidden) * shrink

    def prepare(self, x: Floats) -> Singles:
        """Return contexts as training wants them."""
        return x.astype(np.float32) * self._stretch

    def forward(self, x: Singles) -> Singles:
        """Return the hidden units of a batch."""
        self._x = x
        self._units: Singles = x @ self.parameters.values["weights"]
        bias_and_relu(self._units, self.parameters.values["biases"])
        return self._units

    def backward(self, slope: Singles, rate: float) -> None:
        """Move the weights for the slope of the loss along the hidden units of the last batch."""
        slopes = self.parameters.slopes
        relu_gradient(slope, self._units, slopes["biases"])
        np.matmul(self._x.T, slope, out=slopes["weights"])
        self.parameters.move(rate)

    def rows(self, x: Floats, skip: bool, out: Floats) -> None:
        """Write the views of contexts, each row by itself."""
        hidden_rows(np.ascontiguousarray(x), self.weights, self.biases, skip, out)

    def view(self, x: Floats, view: int, skip: bool) -> Floats:
        """Return one network's view of many contexts."""
        product: Floats = x @ self.weights[view]
        if not skip:
            product += self.biases[view]
            return np.maximum(product, 0.0, out=product)
        out = np.empty((len(x), product.shape[1] + x.shape[1]))
        relu_and_concat(product, self.biases[view], np.ascontiguousarray(x), out)
        return out

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return all that was learned."""
        return self.parameters.state()

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore what `state` returned."""
        self.parameters.restore(saved)
        self.read()
