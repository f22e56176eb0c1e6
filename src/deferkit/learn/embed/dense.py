"""The hidden layers of all networks as one matrix, trained by plain matrix products, which is fastest at this size."""

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_shapes, count_of
from deferkit.learn.embed._passes import adam, bias_and_relu, hidden_rows, relu_and_concat, relu_gradient
from deferkit.learn.embed.training_set import Floats, Singles


class Parameters:
    """Arrays of single precision in one vector, with their gradients and the moments of Adam."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        ends = np.cumsum(sizes)
        self.vector, self.gradient, self._mean, self._square = (np.zeros(ends[-1], dtype=np.float32) for _ in range(4))
        self.steps = 0
        parts = list(zip(shapes.items(), ends - sizes, ends, strict=True))
        self.values = {name: self.vector[a:b].reshape(shape) for (name, shape), a, b in parts}
        self.gradients = {name: self.gradient[a:b].reshape(shape) for (name, shape), a, b in parts}

    def adam_step(self, rate: float) -> None:
        """Take one step of Adam along the gradients."""
        self.steps += 1
        adam(self.vector, self.gradient, self._mean, self._square, rate, self.steps)

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the saved arrays by name."""
        vectors = {"values": self.vector, "mean": self._mean, "square": self._square}
        return {name: v.astype(np.float64) for name, v in vectors.items()} | {"steps": np.array([float(self.steps)])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`."""
        for name, vector in (("values", self.vector), ("mean", self._mean), ("square", self._square)):
            check_shapes(saved, {name: vector.shape})
            vector[:] = saved[name]
        self.steps = count_of(saved["steps"])


class Dense:
    """One ReLU layer for each network; side by side they are one matrix."""

    def __init__(self, n_features: int, hidden: int, n_views: int, rng: np.random.Generator) -> None:
        self.shape = n_features, hidden, n_views
        self.parameters = Parameters({"weights": (n_features, n_views * hidden), "biases": (n_views * hidden,)})
        bound = 1.0 / np.sqrt(n_features)
        for values in self.parameters.values.values():
            values[:] = rng.uniform(-bound, bound, values.shape)
        self._input_scale = np.float32(np.sqrt(n_features))  # from the unit ball to features of about 1
        self.copy_weights()

    def copy_weights(self) -> None:
        """Copy the weights for `rows` and `view`, scaled so that views have about the norm of a context."""
        d, hidden, views = self.shape
        weights, biases = (self.parameters.values[name].astype(np.float64) for name in ("weights", "biases"))
        shrink = 1.0 / np.sqrt(hidden)
        by_view = weights.reshape(d, views, hidden).transpose(1, 0, 2)
        self.weights = np.ascontiguousarray(by_view) * (float(self._input_scale) * shrink)
        self.biases = biases.reshape(views, hidden) * shrink

    def prepare(self, x: Floats) -> Singles:
        """Return contexts in the precision and scale of the training."""
        return x.astype(np.float32) * self._input_scale

    def forward(self, x: Singles) -> Singles:
        """Return the hidden units of a batch."""
        self._x = x
        self._units: Singles = x @ self.parameters.values["weights"]
        bias_and_relu(self._units, self.parameters.values["biases"])
        return self._units

    def backward(self, gradient: Singles, rate: float) -> None:
        """Update the weights by the gradient of the loss with respect to the hidden units of the last batch."""
        gradients = self.parameters.gradients
        relu_gradient(gradient, self._units, gradients["biases"])
        np.matmul(self._x.T, gradient, out=gradients["weights"])
        self.parameters.adam_step(rate)

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
        """Return the saved arrays by name."""
        return self.parameters.state()

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`."""
        self.parameters.restore(saved)
        self.copy_weights()
