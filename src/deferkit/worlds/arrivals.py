"""Tasks that come at times: fourteen weeks with office hours, bursts, growth or a sudden step.

A thousand tasks come in a week, unless said otherwise. Values and costs are those of the synthetic world whose human is
better than the model.
"""

from dataclasses import dataclass

import numpy as np

from deferkit.worlds.base_world import BaseWorld
from deferkit.worlds.known_values import with_known_values, with_truth
from deferkit.worlds.option import check_choices, option
from deferkit.worlds.synthetic import Synthetic
from deferkit.worlds.task_stream import Floats, TaskStream

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
    """Return how many tasks are expected in each hour of all weeks.

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
    values: str = option("learned", "Whether rewards and costs are known beforehand", choices=VALUES, shown="{} values")

    def __post_init__(self) -> None:
        check_choices(self)

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
