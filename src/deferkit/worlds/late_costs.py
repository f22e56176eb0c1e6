"""Reviews whose outcomes come late, and whose costs may have a heavy tail: what holds keep back matters here."""

import math
from dataclasses import dataclass

import numpy as np

from deferkit.errors import expected
from deferkit.types import is_number, is_whole
from deferkit.worlds.arrivals import VALUES
from deferkit.worlds.base_world import BaseWorld
from deferkit.worlds.known_values import with_known_values, with_truth
from deferkit.worlds.option import check_choices, option
from deferkit.worlds.synthetic import REGIMES, Synthetic
from deferkit.worlds.task_stream import Floats, TaskStream

TAILS = ("none", "heavy")
SPREAD = 1.0  # σ of the logarithm of a heavy-tailed cost
HUGE, HUGE_SHARE = 207.0, 1e-3  # times the usual cost, and how often


def heavy_factors(n: int, rng: np.random.Generator) -> Floats:
    """Return what costs are multiplied by: log-normal with mean 1, and very much once in a thousand."""
    factors = np.exp(SPREAD * rng.standard_normal(n) - SPREAD**2 / 2)
    return np.asarray(np.minimum(np.where(rng.random(n) < HUGE_SHARE, HUGE, factors), HUGE))


@dataclass(frozen=True, kw_only=True)
class LateCosts(BaseWorld):
    """Synthetic tasks whose outcomes come late, to be drawn from with a seed.

    >>> stream = LateCosts(horizon=100, late=0.1).draw(seed=0)
    >>> stream.n_tasks, stream.delay
    (100, 10)
    """

    regime: str = option("dominant", "How the deciders compare", choices=REGIMES, shown="{} regime")
    horizon: int = option(4_000, "T, the number of tasks", shown="T = {:,}")
    tail: str = option("heavy", "Whether a few reviews cost very much", choices=TAILS)
    late: float = option(0.02, "After which share of the tasks an outcome comes", shown="{:g} late")
    values: str = option("learned", "Whether rewards and costs are known beforehand", choices=VALUES, shown="{} values")

    def __post_init__(self) -> None:
        check_choices(self)
        if not is_whole(self.horizon, 10):
            raise expected("horizon", "LateCosts", "a whole number of at least 10", self.horizon)
        if not is_number(self.late) or not 0 <= self.late <= 1:
            raise expected("late", "LateCosts", "a share from 0 to 1", self.late)

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed: the same one for every policy."""
        self.check_seed(seed)
        world = Synthetic(regime=self.regime, horizon=int(self.horizon))
        stream = world.draw(seed)._replace(delay=math.floor(self.late * self.horizon + 1e-9))
        if self.tail == "heavy":
            rewards, costs = stream.known()
            factors = heavy_factors(int(self.horizon), np.random.default_rng([seed, 5]))
            mean = (1 - HUGE_SHARE) + HUGE_SHARE * HUGE
            realised = np.ascontiguousarray(costs * factors[:, None, None])
            stream = with_truth(stream._replace(costs=realised), rewards, costs * mean)
        return with_known_values(stream) if self.values == "known" else stream
