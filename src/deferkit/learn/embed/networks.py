"""The networks themselves, trained by torch.

All networks see the same mini-batch, so that three of them are one: a hidden layer three times as wide, of which each
output sees its own third. One matrix product instead of three, and Adam, which treats every weight apart, cannot tell.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.past import Floats, Ints, Past
from deferkit.learn.forward import hidden_rows

try:
    import torch
    from torch import nn
except ImportError as error:
    raise InvalidArgument("A NeuralEmbedding needs torch: pip install 'deferkit[neural]'.") from error

SLOT_NAMES = ("exp_avg", "exp_avg_sq", "step")  # what Adam remembers of a parameter


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: these networks are small, and sums must come in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Networks:
    """Bodies from contexts to hidden units, heads from hidden units to predictions."""

    def __init__(self, settings: NeuralEmbedding, shape: Shape) -> None:
        self.settings = settings
        self.shape = shape
        self.view_of = settings.views(shape)
        self.n_views = max(self.view_of) + 1
        self.trained = 0  # retrainings so far
        self.cost_unit = 1.0
        self._own = settings.module is not None
        hidden, d = settings.hidden, shape.n_features
        # contexts come within the unit ball; networks like numbers near 1
        self._stretch = 1.0 if self._own else float(np.sqrt(d))
        with torch.random.fork_rng(), one_thread():
            torch.manual_seed(shape.seed)
            if settings.module is not None:
                self.bodies = [settings.module(d) for _ in range(self.n_views)]
                self._check_bodies()
            else:
                self.bodies = [nn.Linear(d, self.n_views * hidden)]
            self.heads = nn.Linear(self.n_views * hidden, shape.n_targets)
            # each output sees the units of its own network, and is drawn as if there were no others
            self.mask = torch.zeros(shape.n_targets, self.n_views * hidden)
            for target, view in enumerate(self.view_of):
                self.mask[target, view * hidden : (view + 1) * hidden] = 1.0
            with torch.no_grad():
                self.heads.weight.mul_(self.mask * float(np.sqrt(self.n_views)))
        self.parameters = [p for body in self.bodies for p in body.parameters()] + list(self.heads.parameters())
        self.adam = torch.optim.Adam(self.parameters, lr=settings.learning_rate, fused=True)
        bounded = shape.reward_range[0] >= 0 and shape.reward_range[1] <= 1
        self._likelihood = shape.link == "logistic"
        self._squashed = bounded and not self._likelihood
        self._read()

    def _check_bodies(self) -> None:
        with torch.no_grad():
            out = self.bodies[0](torch.zeros(2, self.shape.n_features))
        if not isinstance(out, torch.Tensor) or tuple(out.shape) != (2, self.settings.hidden):
            got = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
            raise InvalidArgument(
                f"The 'module' of a NeuralEmbedding must turn [2, {self.shape.n_features}] into"
                f" [2, {self.settings.hidden}], its 'hidden'. Got {got} instead."
            )

    def _read(self) -> None:
        """Copy the weights to where the compiled rows look for them, scaled so that views are of a context's size."""
        if self._own:
            return
        hidden, d, shrink = self.settings.hidden, self.shape.n_features, 1.0 / np.sqrt(self.settings.hidden)
        body = self.bodies[0]
        weights = body.weight.detach().double().numpy().reshape(self.n_views, hidden, d)
        self.weights = np.ascontiguousarray(weights.transpose(0, 2, 1)) * (self._stretch * shrink)
        self.biases = body.bias.detach().double().numpy().reshape(self.n_views, hidden) * shrink

    def _body(self, x: "torch.Tensor") -> "torch.Tensor":
        if self._own:
            return torch.cat([body(x) for body in self.bodies], dim=1)
        return torch.relu(self.bodies[0](x))

    def transform(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts; a module of the user's takes one row at a time, for the sake of the last bit."""
        if not self._own:
            hidden_rows(x, self.weights, self.biases, int(self.settings.skip), out)
            return
        for row in range(len(x)):
            for view in range(self.n_views):
                out[row, view * self._width : (view + 1) * self._width] = self._own_view(x[row : row + 1], view)

    @property
    def _width(self) -> int:
        return self.settings.width(self.shape)

    def _own_view(self, x: Floats, view: int) -> Floats:
        body = self.bodies[view]
        body.eval()
        with torch.no_grad(), one_thread():
            units = body(torch.from_numpy(x.astype(np.float32))).double().numpy()
        parts = [units / np.sqrt(self.settings.hidden), x] if self.settings.skip else [units]
        return np.concatenate(parts, axis=1)

    def embed(self, past: Past, rows: Ints, view: int) -> Floats:
        """Return one view of tasks of the past, with the networks of now."""
        x = past.x if len(rows) == past.n else past.x[rows]
        if self._own:
            return self._own_view(x, view)
        hidden = self.settings.hidden
        units = x @ self.weights[view]
        units += self.biases[view]
        if not self.settings.skip:
            return np.maximum(units, 0.0, out=units)
        out = np.empty((len(rows), self._width))
        np.maximum(units, 0.0, out=out[:, :hidden])
        out[:, hidden:] = x
        return out

    def system(self, _target: int) -> None:
        """Return nothing: every system is fitted to the past."""
        return

    def retrain(self, past: Past, epochs: int) -> None:
        """Take this many epochs of Adam over all tasks of which something is known."""
        y = np.zeros((past.n, self.shape.n_targets), dtype=np.float32)
        known = np.zeros((past.n, self.shape.n_targets), dtype=np.float32)
        for target in range(self.shape.n_targets):
            rows, values = past.labelled(target)
            y[rows, target] = values
            known[rows, target] = 1.0
        costs = slice(self.shape.n_deciders, None)
        if known[:, costs].any():
            self.cost_unit = float(y[:, costs].sum() / known[:, costs].sum()) or 1.0
            y[:, costs] /= self.cost_unit
        rows = np.flatnonzero(known.any(axis=1))
        # a stream of its own for each retraining: nothing to save, and a replay draws the same batches
        rng = np.random.default_rng([self.shape.seed, self.trained])
        self.trained += 1
        for body in self.bodies:
            body.train()
        x = (past.x * self._stretch).astype(np.float32)
        with one_thread():
            for _ in range(epochs):
                order = rng.permutation(rows)
                for start in range(0, len(order), self.settings.batch):
                    batch = order[start : start + self.settings.batch]
                    self._step(*(torch.from_numpy(part[batch]) for part in (x, y, known)))
        self._read()

    def _step(self, x: "torch.Tensor", y: "torch.Tensor", known: "torch.Tensor") -> None:
        """Take one step of Adam on a mini-batch; the loss of each output is its mean over what is known."""
        deciders = self.shape.n_deciders
        out = torch.addmm(self.heads.bias, self._body(x), (self.heads.weight * self.mask).T)
        weight = known / known.sum(dim=0).clamp_(min=1.0)
        rewards, costs = out[:, :deciders], out[:, deciders:]
        if self._likelihood:
            reward_loss = nn.functional.binary_cross_entropy_with_logits(
                rewards, y[:, :deciders], weight[:, :deciders], reduction="sum"
            )
        else:
            shown = torch.sigmoid(rewards) if self._squashed else rewards
            reward_loss = ((shown - y[:, :deciders]).square_() * weight[:, :deciders]).sum()
        loss = reward_loss + ((costs - y[:, deciders:]).square_() * weight[:, deciders:]).sum()
        self.adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.adam.step()

    def _tensors(self) -> dict[str, "torch.Tensor"]:
        """Return all tensors that are state, by name."""
        result = {f"heads.{name}": tensor for name, tensor in self.heads.state_dict().items()}
        for i, body in enumerate(self.bodies):
            result |= {f"body {i}.{name}": tensor for name, tensor in body.state_dict().items()}
        for i, parameter in enumerate(self.parameters):
            if self.trained:
                result |= {f"adam {i}.{name}": self.adam.state[parameter][name] for name in SLOT_NAMES}
        return result

    def state(self) -> dict[str, NDArray[Any]]:
        """Return weights, what Adam remembers, and the count of retrainings."""
        arrays: dict[str, NDArray[Any]] = {
            name: tensor.detach().double().numpy().copy() for name, tensor in self._tensors().items()
        }
        return arrays | {"trained": np.array([self.trained]), "cost_unit": np.array([self.cost_unit])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Be what `state` was asked for."""
        self.trained, self.cost_unit = int(saved["trained"][0]), float(saved["cost_unit"][0])
        if self.trained:
            for parameter in self.parameters:
                zeros = (torch.zeros_like(parameter) for _ in range(2))
                slots = dict(zip(SLOT_NAMES, (*zeros, torch.zeros(())), strict=True))
                self.adam.state[parameter] = slots
        tensors = self._tensors()
        if set(tensors) != set(saved) - {"trained", "cost_unit"}:
            raise ValueError("its networks are not those that were saved")
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(torch.from_numpy(saved[name].copy()))
        self._read()
