"""Arrivals of tasks, late costs and values that are known in advance."""

import math
from dataclasses import dataclass

import numpy as np

from deferkit.types import at_least, number
from deferkit.worlds.base import BaseWorld, Floats, PastTasks, Population, TaskStream, Truth, option
from deferkit.worlds.synthetic import REGIMES, Synthetic

LABELS = 8_000  # tasks without noise, which a learner is told before the stream: it knows all values from then on


def with_truth(stream: TaskStream, rewards: Floats, costs: Floats) -> TaskStream:
    """Return a stream with other expected rewards [n, 2] and costs [n, 1, 1]: the tasks are their own population."""
    n = stream.n_tasks
    population = Population(np.full(n, 1 / n), rewards, costs)
    empty = np.zeros((0, stream.contexts.shape[1]))
    return stream._replace(truth=Truth(population, np.arange(n), rewards, costs, empty, empty[None]))


def with_known_values(stream: TaskStream) -> TaskStream:
    """Return the same tasks whose context is the expected gain and cost of asking, with labels to learn that from.

    The rewards that come are the expected ones, less those of the model; costs stay as they came.
    """
    rewards, costs = stream.known()
    gain, cost = rewards[:, 1] - rewards[:, 0], costs[:, 0, 0]
    contexts = np.ascontiguousarray(np.stack([gain, cost], axis=1))
    known = np.stack([np.zeros(len(gain)), gain], axis=1)
    some = np.arange(LABELS) % stream.n_tasks
    past = PastTasks(contexts[some], known[some], cost[some])
    return with_truth(stream._replace(contexts=contexts, rewards=known, past=past), known, costs)


HOUR = 3_600.0  # seconds
WEEK = 168  # hours
WEEKS = 14
TASKS = 1_000  # in a week
BURST, BURST_HOURS = 5, 6  # a burst is so many times the usual rate, for so long; one comes in a week on average
GROWTH, GROWTH_NOISE = 1.05, 0.2  # of the level from week to week
STEP_WEEK, STEP = 6, 2
WEEKEND, WEEKEND_GAIN = 120, 1.5  # hour of the week from which asking gains so many times as much
PATTERNS = ("flat", "office", "bursts", "growth", "step", "all", "weekend")
VALUES = ("learned", "known")


def office_hours() -> Floats:
    """Return the rate in each hour of a week, 1 on average: most tasks come during the day, few at the weekend.

    >>> office_hours().shape, round(float(office_hours().mean()), 6)
    ((168,), 1.0)
    """
    day = np.array([0.2] * 6 + [1.0] * 3 + [2.2] * 8 + [1.0] * 5 + [0.2] * 2)
    week = np.concatenate([day * (1.0 if k < 5 else 0.3) for k in range(7)])
    return np.asarray(week / week.mean())


def hourly_rates(pattern: str, rng: np.random.Generator) -> Floats:
    """Return the expected number of tasks in each hour of all weeks.

    >>> hourly_rates("flat", np.random.default_rng(0)).sum().round()
    np.float64(14000.0)
    """
    rates = np.full(WEEKS * WEEK, TASKS / WEEK)
    if pattern != "flat":
        rates = np.tile(office_hours(), WEEKS) * (TASKS / WEEK)
    if pattern in ("bursts", "all"):
        for _ in range(rng.poisson(WEEKS)):
            start = rng.integers(0, WEEKS * WEEK - BURST_HOURS)
            rates[start : start + BURST_HOURS] *= BURST
    if pattern in ("growth", "all"):
        noise = np.exp(GROWTH_NOISE * rng.standard_normal(WEEKS) - GROWTH_NOISE**2 / 2)
        rates = rates * np.repeat(GROWTH ** np.arange(WEEKS) * noise, WEEK)
    if pattern == "step":
        rates[STEP_WEEK * WEEK :] *= STEP
    return rates


@dataclass(frozen=True, kw_only=True)
class Arrivals(BaseWorld):
    """Fourteen weeks of tasks, to be drawn from with a seed.

    flat: at an even rate. office: during office hours. bursts: also five times as many for six hours, once a week.
    growth: 5 % more every week, with noise. step: twice as many from the seventh week on. all: bursts and growth.
    weekend: office hours, and asking gains half as much again at weekends.

    >>> stream = Arrivals(pattern="office").draw(seed=0)
    >>> stream.contexts.shape[1], bool((np.diff(stream.times) >= 0).all())
    (20, True)
    """

    pattern: str = option("office", "When tasks come", choices=PATTERNS, shown="{}")
    values: str = option("learned", "Whether rewards and costs are known in advance", choices=VALUES, shown="{} values")

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed: the same one for every policy."""
        self.check_seed(seed)
        rng = np.random.default_rng([seed, 77])
        counts = rng.poisson(hourly_rates(self.pattern, rng))
        hours = np.sort(np.concatenate([hour + rng.random(n) for hour, n in enumerate(counts)]))
        world = Synthetic(regime="dominant", horizon=max(len(hours), 10))
        stream = world.draw(seed)._replace(times=hours * HOUR)
        if self.pattern == "weekend":
            stream = more_at_weekends(stream, hours % WEEK >= WEEKEND)
        return with_known_values(stream) if self.values == "known" else stream


def more_at_weekends(stream: TaskStream, weekend: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> TaskStream:
    """Return the stream with half as much more to gain at weekends, which contexts show: their features come twice."""
    expected, costs = stream.known()
    factor = np.where(weekend, WEEKEND_GAIN - 1.0, 0.0)
    rewards = expected.copy()
    rewards[:, 1] += factor * (expected[:, 1] - expected[:, 0])
    contexts = np.ascontiguousarray(np.concatenate([stream.contexts, stream.contexts * weekend[:, None]], axis=1))
    realised = stream.rewards + (rewards - expected)
    return with_truth(stream._replace(contexts=contexts, rewards=realised), rewards, costs)


TAILS = ("none", "heavy")
SHARE = number("a share from 0 to 1", lambda value: 0 <= value <= 1)
SPREAD = 1.0  # σ of the logarithm of a heavy-tailed cost
HUGE, HUGE_SHARE = 207.0, 1e-3  # times the usual cost, and how often


def heavy_factors(n: int, rng: np.random.Generator) -> Floats:
    """Return factors of costs: log-normal with mean 1, and very large once in a thousand."""
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
    horizon: int = option(4_000, "T, the number of tasks", valid=at_least(10), shown="T = {:,}")
    tail: str = option("heavy", "Whether a few reviews cost very much", choices=TAILS)
    late: float = option(0.02, "After which share of the tasks an outcome comes", valid=SHARE, shown="{:g} late")
    values: str = option("learned", "Whether rewards and costs are known in advance", choices=VALUES, shown="{} values")

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
