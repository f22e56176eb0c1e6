"""A stand-in for the time that a person took, where it was recorded but not handed on."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from deferkit.worlds.task_stream import Floats

MEAN_S, MEDIAN_S, VARIATION = 4.92, 2.40, 4.695
"""Of the times that were recorded for ImageNet16H; VARIATION is standard deviation / mean."""

# A log-normal body, and a break for one trial in 76. Given the two spreads, the other three numbers follow from the
# three figures above: P(t ≤ median) = ½, E t and E t², with breaks that no body reaches.
BODY_MEDIAN_S, BODY_SPREAD = 2.3761, 0.6
BREAK_RATE, BREAK_MEDIAN_S, BREAK_SPREAD = 0.013156, 123.47, 0.7

# What the body depends on, so that there is something to learn, in units of its own noise.
PERSON, DIFFICULTY, WRONG = 0.5, 0.3, 0.4
SEED = 16


def quantiles(n: int, median: float, spread: float) -> Floats:
    """Return n evenly spaced quantiles of a log-normal: its moments without the luck of a draw.

    >>> quantiles(3, 2.0, 0.5).round(2)
    array([1.23, 2.  , 3.24])
    """
    return np.asarray(median * np.exp(spread * ndtri((np.arange(n) + 0.5) / n)))


def stand_in(person: NDArray[np.int64], difficulty: Floats, wrong: NDArray[np.bool_]) -> Floats:
    """Return seconds for each trial: slower people, harder pictures and wrong answers take longer; breaks anybody.

    `difficulty` has mean 0 and standard deviation 1. The draw is fixed: the times are part of the data set.

    >>> times = stand_in(np.arange(29_000) // 200, np.zeros(29_000), np.zeros(29_000, dtype=bool))
    >>> round(float(times.mean()), 1), round(float(np.median(times)), 1), round(float(times.std() / times.mean()), 1)
    (4.9, 2.4, 4.7)
    """
    rng = np.random.default_rng(SEED)
    n = len(person)
    slow = PERSON * rng.standard_normal(int(person.max()) + 1)[person] + DIFFICULTY * difficulty + WRONG * wrong
    times = np.empty(n)
    times[np.argsort(slow + rng.standard_normal(n))] = quantiles(n, BODY_MEDIAN_S, BODY_SPREAD)
    breaks = round(BREAK_RATE * n)
    times[rng.permutation(n)[:breaks]] += quantiles(breaks, BREAK_MEDIAN_S, BREAK_SPREAD)
    return times
