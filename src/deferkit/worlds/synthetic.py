"""The synthetic tasks of Section 5.1: sparse binary contexts, linear or logistic rewards and costs, Gaussian noise."""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr

from deferkit.errors import expected
from deferkit.types import AT_LEAST_ONE, FLAG
from deferkit.worlds.base import BaseWorld, Floats, Population, TaskStream, Truth, number_from, option

REGIMES = ("complementary", "dominant", "random")
LINKS = ("identity", "logistic")
MAX_LISTED = 1_000_000  # contexts; where there are more, as many as SAMPLE are drawn to stand for all
SAMPLE = 200_000
CHUNK = 10_000  # contexts drawn at once
STEEPNESS = 4.0  # logistic rewards have the coefficients 4·(θ − ½)


@functools.lru_cache(maxsize=4)
def support(n_features: int, most_ones: int, decay: float) -> tuple[Floats, Floats]:
    """Return the normalised contexts with 1 to `most_ones` ones, and p(x) ∝ decay^(number of ones).

    The zero vector is left out: it has no direction to normalise.

    >>> contexts, probabilities = support(3, 2, 0.5)
    >>> contexts.shape, round(float(probabilities[0]), 3)
    ((6, 3), 0.222)
    """
    codes = np.arange(1, 1 << n_features, dtype=np.uint32)
    ones = np.bitwise_count(codes)
    codes, ones = codes[ones <= most_ones], ones[ones <= most_ones].astype(float)
    bits = (codes[:, None] >> np.arange(n_features, dtype=np.uint32)) & 1
    weights = decay**ones
    return bits / np.sqrt(ones)[:, None], weights / weights.sum()


def sample(n: int, n_features: int, most_ones: int, decay: float, rng: np.random.Generator) -> Floats:
    """Return n contexts of the same distribution without listing it: first the number of ones, then their places.

    >>> sample(2, 100, 8, 0.3, np.random.default_rng(0)).shape
    (2, 100)
    """
    counts = np.arange(1, min(most_ones, n_features) + 1)
    logs = gammaln(n_features + 1) - gammaln(counts + 1) - gammaln(n_features - counts + 1) + counts * math.log(decay)
    weights = np.exp(logs - logs.max())
    ones = rng.choice(counts, size=n, p=weights / weights.sum())
    contexts = np.zeros((n, n_features))
    for start in range(0, n, CHUNK):
        part = contexts[start : start + CHUNK]
        places = rng.random(part.shape).argsort(axis=1)[:, : len(counts)]
        on = counts <= ones[start : start + CHUNK, None]  # the first k places of a row
        np.put_along_axis(part, places, on / np.sqrt(ones[start : start + CHUNK, None]), axis=1)
    return contexts


@dataclass(frozen=True, kw_only=True)
class Synthetic(BaseWorld):
    """The world of Section 5.1, to be drawn from with a seed.

    complementary: θ_h has half of its coordinates 1 and θ_m = 1 − θ_h. dominant: θ_h ~ [0, 1]^d, θ_m ~ [0, ½]^d.
    random: both from [0, 1]^d. The cost is w ~ [0, 1]^d, for each expert and resource; realised costs are cut at 0.

    >>> stream = Synthetic(horizon=100).draw(seed=0)
    >>> stream.contexts.shape, stream.rewards.shape, stream.costs.shape
    ((100, 20), (100, 2), (100, 1, 1))
    """

    regime: str = option("complementary", "How the deciders compare", choices=REGIMES, shown="{} regime")
    horizon: int = option(50_000, "T, the number of tasks", valid=AT_LEAST_ONE, shown="T = {:,}")
    n_features: int = option(20, "d, the length of a context", valid=AT_LEAST_ONE, flag="features", shown="d = {}")
    most_ones: int = option(8, "How many features of a context can be on", valid=AT_LEAST_ONE)
    decay: float = option(0.3, "λ: a context with k features on comes in proportion to λ^k", valid=number_from(1e-9))
    noise: float = option(0.1, "σ, the standard deviation of noise", valid=number_from(0.0), shown="σ = {:g}")
    n_experts: int = option(1, "Number of experts", valid=AT_LEAST_ONE, flag="experts")
    n_resources: int = option(1, "Number of resources, each with this budget", valid=AT_LEAST_ONE, flag="resources")
    link: str = option("identity", "Link of the rewards", choices=LINKS, shown="{} link")
    """"logistic": rewards are 0 or 1, with probability 1/(1 + exp(−xᵀθ')) and θ' = 4·(θ − ½); costs stay linear."""
    scaled: bool = option(False, "Divide θ and w by √most_ones, so that all means are in [0, 1]", valid=FLAG)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regime == "complementary" and self.n_experts > 1:
            raise expected("n_experts", "Synthetic", "1 in the complementary regime", self.n_experts)

    @property
    def listed(self) -> bool:
        """Whether there are few enough contexts to list them all, so that OPT is exact."""
        most = min(self.most_ones, self.n_features)
        return self.n_features <= 24 and sum(math.comb(self.n_features, k) for k in range(1, most + 1)) <= MAX_LISTED

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed: the same one for every policy."""
        self.check_seed(seed)
        parameters, tasks, noise = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
        thetas, weights = self._parameters(parameters)
        if self.listed:
            contexts, probabilities = support(self.n_features, self.most_ones, self.decay)
            population = Population(probabilities, *self._means(contexts, thetas, weights))
            kind = tasks.choice(len(contexts), size=self.horizon, p=probabilities)
            x, rewards, costs = contexts[kind], population.rewards[kind], population.costs[kind]
        else:
            shape = self.n_features, self.most_ones, self.decay
            kind = None
            x = sample(self.horizon, *shape, tasks)
            rewards, costs = self._means(x, thetas, weights)
            others = sample(SAMPLE, *shape, tasks)
            population = Population(np.full(SAMPLE, 1 / SAMPLE), *self._means(others, thetas, weights))
        linear = self._linear_costs(x, weights)
        return TaskStream(
            contexts=np.ascontiguousarray(x),
            rewards=self._realise(rewards, noise),
            costs=np.maximum(linear + self.noise * noise.standard_normal(linear.shape), 0.0),
            link=self.link,
            noise=self.noise,
            truth=Truth(population, kind, rewards, costs, thetas, weights),
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
        weights = rng.uniform(0.0, 1.0, (self.n_experts, self.n_resources, d))
        size = math.sqrt(min(self.most_ones, d)) if self.scaled else 1.0
        if self.link == "logistic":
            return STEEPNESS * (thetas - 0.5), weights / size
        return thetas / size, weights / size

    def _linear_costs(self, contexts: Floats, weights: Floats) -> Floats:
        costs = contexts @ weights.reshape(-1, self.n_features).T
        return np.asarray(costs.reshape(-1, *weights.shape[:2]))

    def _means(self, contexts: Floats, thetas: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return the expected rewards and costs of contexts; the mean of a cost that is cut at 0 is more than xᵀw."""
        rewards = contexts @ thetas.T
        if self.link == "logistic":
            rewards = 1.0 / (1.0 + np.exp(-rewards))
        costs = self._linear_costs(contexts, weights)
        if self.noise > 0:
            z = costs / self.noise
            costs = costs * ndtr(z) + self.noise * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return rewards, costs

    def _realise(self, rewards: Floats, rng: np.random.Generator) -> Floats:
        if self.link == "logistic":
            return (rng.random(rewards.shape) < rewards).astype(float)
        return rewards + self.noise * rng.standard_normal(rewards.shape)
