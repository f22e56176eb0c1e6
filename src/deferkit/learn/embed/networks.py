"""The embedder of a `NeuralEmbedding`: hidden layers, and on top of them a head for each reward and cost.

All networks get the same mini-batch, so that three networks are trained as one with a hidden layer three times as wide,
of which each head reads its own third: one matrix product instead of three. The result is the same, because Adam treats
every weight separately.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_shapes, count_of, join_parts, part_of
from deferkit.learn.embed.dense import Dense, Parameters
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.training_set import Floats, Ints, Singles, TrainingSet
from deferkit.learn.links import link_named

MAX_TRAINED = 1e15  # absolute value of a response, so that its square is finite in single precision


class Networks:
    """Networks that predict rewards and costs; their hidden layers are the views."""

    def __init__(self, settings: NeuralEmbedding, shape: Shape) -> None:
        self.settings = settings
        self.shape = shape
        view_of = settings.views(shape)
        views, hidden, targets = max(view_of) + 1, settings.hidden, shape.n_targets
        self.trained = 0  # retrainings so far
        self.units = np.ones(targets)  # of responses: 1 for a reward, the mean for a cost
        rng = np.random.default_rng(shape.seed)
        self.body: Any
        if settings.module is None:
            self.body = Dense(shape.n_features, hidden, views, rng)
        else:
            from deferkit.learn.embed.torch_modules import TorchModules  # noqa: PLC0415 - torch is an extra

            rate = settings.learning_rate
            self.body = TorchModules(settings.module, shape.n_features, hidden, views, rate, shape.seed)
        self.heads = Parameters({"weights": (targets, views * hidden), "biases": (targets,)})
        self.mask = np.zeros((targets, views * hidden), dtype=np.float32)  # each head reads the units of its network
        for target, view in enumerate(view_of):
            self.mask[target, view * hidden : (view + 1) * hidden] = 1.0
        bound = 1.0 / np.sqrt(hidden)
        for name, values in self.heads.values.items():
            values[:] = rng.uniform(-bound, bound, values.shape) * (self.mask if name == "weights" else 1.0)
        self.likelihood = link_named(shape.link).is_probability
        self.squashed = not self.likelihood and shape.reward_range[0] >= 0 and shape.reward_range[1] <= 1

    def transform(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts, each row by itself."""
        self.body.rows(x, self.settings.skip, out)

    def embed(self, training_set: TrainingSet, rows: Ints, view: int) -> Floats:
        """Return one view of observed tasks, with the current networks."""
        x = training_set.x if len(rows) == training_set.n else training_set.x[rows]
        seen: Floats = self.body.view(x, view, self.settings.skip)
        return seen

    def system(self, _target: int) -> None:
        """Return None: every system is fitted to the training set."""
        return

    def retrain(self, training_set: TrainingSet, epochs: int) -> None:
        """Train for this many epochs of Adam on all tasks with a known outcome."""
        y = np.zeros((training_set.n, self.shape.n_targets), dtype=np.float32)
        known = np.zeros((training_set.n, self.shape.n_targets), dtype=np.float32)
        for target in range(self.shape.n_targets):
            rows, values = training_set.select_labelled(target)
            if target >= self.shape.n_deciders and len(values):
                self.units[target] = float(values.mean()) or 1.0
            y[rows, target] = np.clip(values / self.units[target], -MAX_TRAINED, MAX_TRAINED)
            known[rows, target] = 1.0
        rows = np.flatnonzero(known.any(axis=1))
        # a random stream for each retraining: nothing to save, and a replay draws the same batches
        rng = np.random.default_rng([self.shape.seed, self.trained])
        self.trained += 1
        x = self.body.prepare(training_set.x)
        for _ in range(epochs):
            order = rng.permutation(rows)
            for start in range(0, len(order), self.settings.batch):
                batch = order[start : start + self.settings.batch]
                self._step(x[batch], y[batch], known[batch])
        self.body.copy_weights()

    def _step(self, x: Singles, y: Singles, known: Singles) -> None:
        """Take one step of Adam on a mini-batch; the loss of each head is the mean over known outcomes."""
        weights, biases = self.heads.values["weights"], self.heads.values["biases"]
        units = self.body.forward(x)
        out = units @ weights.T
        out += biases
        gradient = self.loss_gradient(out, y)
        gradient *= known / np.maximum(known.sum(axis=0), np.float32(1.0))
        inner = gradient @ weights
        np.matmul(gradient.T, units, out=self.heads.gradients["weights"])
        self.heads.gradients["weights"] *= self.mask
        gradient.sum(axis=0, out=self.heads.gradients["biases"])
        self.heads.adam_step(self.settings.learning_rate)
        self.body.backward(inner, self.settings.learning_rate)

    def loss_gradient(self, out: Singles, y: Singles) -> Singles:
        """Return the gradient of the loss with respect to the output of the heads.

        The loss is the squared error, behind a sigmoid for rewards within [0, 1]; cross-entropy for a logistic link.
        """
        gradient: Singles = out - y
        rewards = slice(0, self.shape.n_deciders)
        if self.likelihood or self.squashed:
            shown = 1.0 / (1.0 + np.exp(-np.clip(out[:, rewards], -30, 30)))
            gradient[:, rewards] = shown - y[:, rewards]
        if self.likelihood:
            gradient[:, self.shape.n_deciders :] *= 2
            return gradient
        if self.squashed:
            gradient[:, rewards] *= shown * (1.0 - shown)
        gradient *= 2
        return gradient

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name."""
        counts = {"trained": np.array([float(self.trained)]), "units": self.units}
        return counts | join_parts({"heads": self.heads.state(), "body": self.body.state()})

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`."""
        check_shapes(saved, {"units": self.units.shape})
        self.trained, self.units = count_of(saved["trained"]), saved["units"].copy()
        self.heads.restore(part_of(saved, "heads"))
        self.body.restore(part_of(saved, "body"))
