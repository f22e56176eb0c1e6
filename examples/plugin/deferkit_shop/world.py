"""A world: returned parcels of a shop. A model says what each is worth; a clerk looks at some of them."""

from dataclasses import dataclass

import numpy as np

from deferkit.errors import expected
from deferkit.types import is_whole
from deferkit.worlds.base import BaseWorld, TaskStream, option


@dataclass(frozen=True, kw_only=True)
class Shop(BaseWorld):
    """Returned parcels: on some shelves the model is a guess, and the clerk is right nearly always."""

    horizon: int = option(2_000, "T, the number of parcels", shown="T = {:,}")
    shelves: int = option(6, "how many kinds of goods there are")

    def __post_init__(self) -> None:
        for name in ("horizon", "shelves"):
            if not is_whole(getattr(self, name), 1):
                raise expected(name, "Shop", "a whole number of at least 1", getattr(self, name))

    def draw(self, seed: int) -> TaskStream:
        """Return the parcels of this seed."""
        self.check_seed(seed)
        rng = np.random.default_rng([seed, 2026])
        shelf = rng.integers(self.shelves, size=self.horizon)
        wear = rng.random(self.horizon)
        model = 0.55 + 0.4 * (shelf / max(1, self.shelves - 1)) * (1 - wear)
        clerk = np.full(self.horizon, 0.95)
        rewards = (np.column_stack([model, clerk]) > rng.random((self.horizon, 2))).astype(float)
        minutes = np.round(1 + 2 * wear + rng.exponential(0.5, self.horizon), 2)
        contexts = np.column_stack([np.eye(self.shelves)[shelf], wear])
        return TaskStream(contexts, rewards, minutes[:, None, None], link="logistic", remark="made-up parcels")
