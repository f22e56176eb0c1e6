"""Worlds that drift: what the model and the human earn depends on a phase that moves while the tasks come.

Coefficients are cos(φ_t)·A + sin(φ_t)·B: at φ = 0 they are A, at φ = π/2 they are B, at φ = π they are −A. Contexts and
costs do not drift, so that a rule which does not know the phase is judged fairly by the mean over all phases.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import expected
from deferkit.types import AT_LEAST_ONE, at_least
from deferkit.worlds.base import BaseWorld, Floats, Population, TaskStream, Truth, number_from, option

FAMILIES = ("lin", "cat")
KINDS = ("none", "abrupt", "gradual", "seasonal", "recurring")
SEASONS = 4  # full turns of a seasonal stream
PIECES = 8  # of a recurring stream: A, B, A, B, …
ROLE = {"lin": 1, "cat": 2}  # second number of the seed, so that the families do not share random numbers

SPREAD, COST_SPREAD = 0.5, 0.2  # of u·θ and u·w in the linear world, over contexts
UNIT = 1.732  # √3, rounded: a uniform number on (−1, 1) has variance 1/3
MIN_COST, COST_NOISE = 0.2, 0.2
OTHERS = 4  # numbers of a table that mean nothing
LOG_COST_MEAN, LOG_COST_SD = -0.08, 0.4  # a log-normal factor with mean 1
AVERAGED = 200  # phases that the mean over time is taken of, where there are more


def phases(kind: str, horizon: int) -> Floats:
    """Return the phase φ_t of every task, an angle.

    none: 0. abrupt: π/2 from the middle on. gradual: from 0 to π. seasonal: four full turns. recurring: 0 and π/2 in
    turns, eight pieces.

    >>> phases("abrupt", 4), phases("gradual", 4)
    (array([0.        , 0.        , 1.57079633, 1.57079633]), array([0.        , 0.78539816, 1.57079633, 2.35619449]))
    """
    t = np.arange(horizon)
    if kind == "none":
        return np.zeros(horizon)
    if kind == "abrupt":
        return np.where(t < horizon // 2, 0.0, np.pi / 2)
    if kind == "gradual":
        return np.asarray(np.pi * t / horizon)
    if kind == "seasonal":
        return np.asarray(2 * np.pi * t / (horizon / SEASONS))
    return np.where((t // max(horizon // PIECES, 1)) % 2 == 0, 0.0, np.pi / 2)


@dataclass(frozen=True, kw_only=True)
class Drift(BaseWorld):
    """Streams whose rewards drift, to be drawn from with a seed.

    lin: x = (1, u) with u uniform on (−1, 1)^(d − 1); rewards ½ + u·θ(φ) + σ·N(0, 1), costs max(.2, 1 + u·w + .2·N).
    cat: a table with 0/1 rewards: a category (one-hot), a severity s, a confidence q of the model, four numbers that
    mean nothing. The log-odds of the model are .8 + α + 3β·(s − ½) + 2·(q − ½), those of the human the same without
    q; α and β belong to the category and drift. Costs grow with s and are log-normal around their mean.

    >>> stream = Drift(kind="seasonal", horizon=400).draw(seed=0)
    >>> stream.contexts.shape, stream.rewards.shape, stream.link
    ((400, 20), (400, 2), 'identity')
    >>> Drift(family="cat", horizon=400).draw(seed=0).contexts.shape
    (400, 15)
    """

    family: str = option("lin", "Linear rewards, or a table of categories with 0/1 rewards", choices=FAMILIES)
    kind: str = option("abrupt", "How rewards drift", choices=KINDS)
    horizon: int = option(20_000, "T, the number of tasks", valid=AT_LEAST_ONE, shown="T = {:,}")
    n_features: int = option(20, "d, the length of a context", valid=at_least(2), flag="features", shown="d = {}")
    """Of the linear world; its leading 1 is included."""
    noise: float = option(0.3, "σ, the standard deviation of noise", valid=number_from(0.0), shown="σ = {:g}")
    """Of the linear world."""
    n_categories: int = option(8, "Number of categories of the table", valid=AT_LEAST_ONE, flag="categories")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_categories",) if self.family == "lin" else ("n_features", "noise"):
            if getattr(self, name) != getattr(type(self), name):
                raise expected(name, "Drift", f"left out in the family {self.family!r}", getattr(self, name))

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed.

        Streams of different kinds have the same contexts, coefficients and noise: only the phase differs.
        """
        self.check_seed(seed)
        rng = np.random.default_rng([int(seed), ROLE[self.family]])
        return self._linear(rng) if self.family == "lin" else self._table(rng)

    def _linear(self, rng: np.random.Generator) -> TaskStream:
        n, free = self.horizon, self.n_features - 1
        u = rng.uniform(-1, 1, (n, free))
        first, second = (rng.standard_normal((2, free)) * SPREAD / np.sqrt(free) * UNIT for _ in range(2))
        weights = rng.standard_normal(free) * COST_SPREAD / np.sqrt(free) * UNIT
        phase = phases(self.kind, n)[:, None]
        rewards = np.column_stack(
            [0.5 + (u * (np.cos(phase) * first[i] + np.sin(phase) * second[i])).sum(axis=1) for i in (0, 1)]
        )
        costs = np.maximum(MIN_COST, 1 + u @ weights)
        noise = rng.standard_normal((3, n))
        # full turns cancel; what rounding leaves of them is no knowledge
        mean = np.round(np.cos(phase).mean(), 12) * first + np.round(np.sin(phase).mean(), 12) * second
        return TaskStream(
            contexts=np.hstack([np.ones((n, 1)), u]),
            rewards=rewards + self.noise * noise[:2].T,
            costs=np.maximum(MIN_COST, costs + COST_NOISE * noise[2])[:, None, None],
            noise=self.noise,
            truth=truth_of(
                rewards,
                costs,
                averaged=0.5 + u @ mean.T,
                thetas=np.column_stack([np.full(2, 0.5), mean]),
                weights=np.concatenate([[1.0], weights]),
            ),
        )

    def _table(self, rng: np.random.Generator) -> TaskStream:
        n, categories = self.horizon, self.n_categories
        category = rng.integers(0, categories, n)
        severity, confidence = rng.random(n), rng.random(n)
        others = rng.random((n, OTHERS))
        first, second = (rng.standard_normal((4, categories)) for _ in range(2))
        one_hot = np.eye(categories)[category]
        contexts = np.hstack([np.ones((n, 1)), one_hot, severity[:, None], confidence[:, None], others])

        def means(phase: Floats | float) -> Floats:
            """Return the expected rewards [n, 2] at a phase, or with a phase for each task."""
            of = np.cos(phase) * first[:, category] + np.sin(phase) * second[:, category]
            model = chance(0.8 + of[0] + 3 * of[1] * (severity - 0.5) + 2 * (confidence - 0.5))
            return np.column_stack([model, chance(0.8 + of[2] + 3 * of[3] * (severity - 0.5))])

        phase = phases(self.kind, n)
        rewards = means(phase[None])
        costs = 0.5 + severity + 0.5 * (category % 2)
        costs = costs / costs.mean()
        drawn = rng.random((2, n))
        factor = rng.lognormal(LOG_COST_MEAN, LOG_COST_SD, n)
        averaged = np.zeros((n, 2))
        for angle, share in spread_out(phase):
            averaged += share * means(angle)
        unknown = np.full(contexts.shape[1], np.nan)  # the rewards are not linear in the context
        return TaskStream(
            contexts=contexts,
            rewards=(rewards > drawn.T).astype(float),
            costs=(costs * factor)[:, None, None],
            link="logistic",
            truth=truth_of(rewards, costs, averaged=averaged, thetas=np.stack([unknown, unknown]), weights=unknown),
        )


def chance(log_odds: Floats) -> Floats:
    """Return the probability that has these log-odds."""
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def spread_out(phase: Floats) -> list[tuple[float, float]]:
    """Return phases and their shares of the time: all of them, or where there are many, as many as stand for all.

    >>> spread_out(phases("recurring", 80))
    [(0.0, 0.5), (1.5707963267948966, 0.5)]
    """
    values, counts = np.unique(phase, return_counts=True)
    if len(values) <= AVERAGED:
        return [(float(value), float(count) / len(phase)) for value, count in zip(values, counts, strict=True)]
    middles: NDArray[np.int64] = ((np.arange(AVERAGED) + 0.5) / AVERAGED * len(phase)).astype(np.int64)
    return [(float(value), 1 / AVERAGED) for value in phase[middles]]


def truth_of(rewards: Floats, costs: Floats, *, averaged: Floats, thetas: Floats, weights: Floats) -> Truth:
    """Return the truth of a stream in which every task is a context of its own."""
    n = len(rewards)
    population = Population(np.full(n, 1 / n), rewards, costs[:, None, None])
    return Truth(population, np.arange(n), rewards, population.costs, thetas, weights[None, None], averaged=averaged)
