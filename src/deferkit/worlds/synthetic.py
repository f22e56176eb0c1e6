"""The synthetic tasks of Section 5.1: sparse binary contexts, linear or logistic rewards and costs, Gaussian noise."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import expected
from deferkit.types import is_whole
from deferkit.worlds.stream import Floats, Population, Stream

REGIMES = ("complementary", "dominant", "random")


@functools.lru_cache(maxsize=4)
def support(n_features: int, most_ones: int, decay: float) -> tuple[Floats, Floats]:
    """Return the normalised contexts with 1 to `most_ones` ones, and p(x) ∝ decay^(number of ones).

    The zero vector is left out: it has no direction to normalise.

    >>> contexts, probabilities = support(3, 2, 0.5)
    >>> contexts.shape, round(float(probabilities[0]), 3)
    ((6, 3), 0.222)
    """
    codes = np.arange(1, 1 << n_features, dtype=np.int64)
    bits = ((codes[:, None] >> np.arange(n_features)) & 1).astype(np.int8)
    ones = bits.sum(axis=1)
    bits, ones = bits[ones <= most_ones], ones[ones <= most_ones]
    weights = decay ** ones.astype(float)
    return bits / np.sqrt(ones)[:, None], weights / weights.sum()


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """The world of Section 5.1, to be drawn from with a seed.

    complementary: θ_h has half of its coordinates 1 and θ_m = 1 − θ_h. dominant: θ_h ~ [0, 1]^d, θ_m ~ [0, ½]^d.
    random: both from [0, 1]^d. The cost is w ~ [0, 1]^d, for each expert and resource; realised costs are cut at 0.

    >>> stream = Synthetic(horizon=100).draw(seed=0)
    >>> stream.contexts.shape, stream.rewards.shape, stream.costs.shape
    ((100, 20), (100, 2), (100, 1, 1))
    """

    regime: str = "complementary"
    horizon: int = 50_000
    n_features: int = 20
    most_ones: int = 8
    decay: float = 0.3
    noise: float = 0.1
    n_experts: int = 1
    n_resources: int = 1
    binary: bool = False
    """Rewards are 0 or 1 with probability 1/(1 + exp(−4·(xᵀθ − 1))) instead of xᵀθ plus noise."""

    def __post_init__(self) -> None:
        if self.regime not in REGIMES:
            raise expected("regime", "Synthetic", "one of " + ", ".join(map(repr, REGIMES)), self.regime)
        for name in ("horizon", "n_features", "most_ones", "n_experts", "n_resources"):
            value = getattr(self, name)
            if not is_whole(value, 1):
                raise expected(name, "Synthetic", "a whole number of at least 1", value)
        if self.n_features > 24:
            raise expected("n_features", "Synthetic", "at most 24, as all contexts are listed", self.n_features)
        if self.regime == "complementary" and self.n_experts > 1:
            raise expected("n_experts", "Synthetic", "1 in the complementary regime", self.n_experts)

    def draw(self, seed: int) -> Stream:
        """Return the stream of this seed: the same one for every policy."""
        parameters, tasks, noise = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
        contexts, probabilities = support(self.n_features, self.most_ones, self.decay)
        thetas, weights = self._parameters(parameters)
        rewards = contexts @ thetas.T
        if self.binary:
            rewards = 1.0 / (1.0 + np.exp(-4.0 * (rewards - 1.0)))
        costs = np.einsum("md,krd->mkr", contexts, weights)
        kind = tasks.choice(len(contexts), size=self.horizon, p=probabilities)
        if self.binary:
            realised = (noise.random((self.horizon, rewards.shape[1])) < rewards[kind]).astype(float)
        else:
            realised = rewards[kind] + self.noise * noise.standard_normal((self.horizon, rewards.shape[1]))
        spent = costs[kind] + self.noise * noise.standard_normal((self.horizon, *costs.shape[1:]))
        return Stream(
            contexts=np.ascontiguousarray(contexts[kind]),
            rewards=realised,
            costs=np.maximum(spent, 0.0),
            kind=kind,
            population=Population(probabilities, rewards, costs),
        )

    def _parameters(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return θ of the model and the experts, and w of each expert and resource."""
        d = self.n_features
        if self.regime == "complementary":
            human: NDArray[np.float64] = np.zeros(d)
            human[rng.permutation(d)[: d // 2]] = 1.0
            thetas = np.stack([1.0 - human, human])
        else:
            model = rng.uniform(0.0, 0.5 if self.regime == "dominant" else 1.0, d)
            thetas = np.stack([model, *rng.uniform(0.0, 1.0, (self.n_experts, d))])
        return thetas, rng.uniform(0.0, 1.0, (self.n_experts, self.n_resources, d))
