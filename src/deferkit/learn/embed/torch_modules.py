"""Torch modules of the user in place of the hidden layers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.learn.embed.boosting import OneThread
from deferkit.learn.embed.training_set import Floats, Singles

ADAM_STATE = ("exp_avg", "exp_avg_sq", "step")  # of each parameter


def limit_torch() -> Callable[[], None]:
    """Limit torch to one thread; return a function that restores the limit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    return lambda: torch.set_num_threads(before)


one_torch_thread = OneThread(limit_torch)


class TorchModules:
    """A module for each network. Contexts are transformed one by one: batches would differ in the last bit."""

    def __init__(
        self, make: Callable[[int], Any], n_features: int, hidden: int, n_views: int, rate: float, seed: int
    ) -> None:
        self.hidden = hidden
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.bodies = [make(n_features) for _ in range(n_views)]
        self._check(n_features)
        self._parameters = [p for body in self.bodies for p in body.parameters() if p.requires_grad]
        self._seed, self._batches = seed, 0
        self._adam = torch.optim.Adam(self._parameters, lr=rate) if self._parameters else None

    def _check(self, n_features: int) -> None:
        got: Any = type(self.bodies[0]).__name__
        if isinstance(self.bodies[0], torch.nn.Module):
            self.bodies[0].eval()
            with torch.no_grad():
                out = self.bodies[0](torch.zeros(2, n_features))
            got = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        if got != (2, self.hidden):
            raise InvalidArgument(
                f"The 'module' of a NeuralEmbedding must make torch Modules that turn [2, {n_features}] into"
                f" [2, {self.hidden}], its 'hidden'. Got {got} instead."
            )

    def prepare(self, x: Floats) -> Singles:
        """Return contexts in single precision."""
        return x.astype(np.float32)

    def forward(self, x: Singles) -> Singles:
        """Return the hidden units of a batch."""
        with one_torch_thread(), torch.random.fork_rng():
            # for dropout: a random stream for each batch, so that a replay draws the same
            torch.manual_seed(hash((self._seed, self._batches)))
            self._batches += 1
            for body in self.bodies:
                body.train()
            self._units = torch.cat([body(torch.from_numpy(x)) for body in self.bodies], dim=1)
        return np.asarray(self._units.detach().numpy())

    def backward(self, gradient: Singles, _rate: float) -> None:
        """Update the weights by the gradient of the loss with respect to the hidden units of the last batch."""
        if self._adam is not None and self._units.requires_grad:
            with one_torch_thread():
                self._adam.zero_grad(set_to_none=True)
                self._units.backward(torch.from_numpy(gradient))  # type: ignore[no-untyped-call]
                self._adam.step()

    def copy_weights(self) -> None:
        """Do nothing: `rows` and `view` use the modules themselves."""

    def rows(self, x: Floats, skip: bool, out: Floats) -> None:
        """Write the views of contexts, each row by itself."""
        width = out.shape[1] // len(self.bodies)
        for row in range(len(x)):
            for view in range(len(self.bodies)):
                first = view * width
                out[row, first : first + width] = self.view(x[row : row + 1], view, skip)[0]

    def view(self, x: Floats, view: int, skip: bool) -> Floats:
        """Return one network's view of many contexts, scaled to about the norm of a context."""
        body = self.bodies[view]
        body.eval()
        with torch.no_grad(), one_torch_thread():
            units: Floats = body(torch.from_numpy(x.astype(np.float32))).double().numpy()
        units = units / np.sqrt(self.hidden)
        return np.concatenate([units, x], axis=1) if skip else units

    def _tensors(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for i, body in enumerate(self.bodies):
            result |= {f"body {i}.{name}": tensor for name, tensor in body.state_dict().items()}
        for i, parameter in enumerate(self._parameters):
            if self._adam is not None and parameter in self._adam.state:
                result |= {f"adam {i}.{name}": self._adam.state[parameter][name] for name in ADAM_STATE}
        return result

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the saved arrays by name."""
        arrays = {name: tensor.detach().double().numpy().copy() for name, tensor in self._tensors().items()}
        return arrays | {"batches": np.array([float(self._batches)])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`; raise ValueError if the modules differ."""
        if self._adam is not None and any(name.startswith("adam ") for name in saved):
            for i, parameter in enumerate(self._parameters):
                if f"adam {i}.step" in saved:
                    blank = torch.zeros_like(parameter), torch.zeros_like(parameter), torch.zeros(())
                    self._adam.state[parameter] = dict(zip(ADAM_STATE, blank, strict=True))
        tensors = self._tensors()
        self._batches = int(saved["batches"][0])
        if set(tensors) != set(saved) - {"batches"}:
            raise ValueError("its modules are not those that were saved")
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(torch.from_numpy(saved[name].copy()).reshape(tensor.shape))
