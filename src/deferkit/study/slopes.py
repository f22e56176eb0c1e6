"""Curves through noisy points: values that never fall, slopes that never rise, where a level is reached."""

from collections.abc import Sequence

import numpy as np

TOLERANCE = 1e-9  # what sums of rewards lose to rounding, of their size


def pooled(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nearest values that never fall: neighbours that do are pooled into their weighted mean.

    >>> pooled([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0])
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values, weights, strict=True):
        mean, heavy, count = float(value), float(weight), 1
        while pools and pools[-1][0] > mean:
            other, more, n = pools.pop()
            mean, heavy, count = (other * more + mean * heavy) / (more + heavy), more + heavy, count + n
        pools.append((mean, heavy, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def slopes(budgets: Sequence[float], rewards: Sequence[float]) -> list[float]:
    """Return what a unit of budget brings between each two points: never more than before it, never below 0.

    These are the slopes of the lowest curve above all points that bends down only. What lies on it can be had: by
    taking one of two budgets at random, or for a part of the time each.

    >>> slopes([0.0, 1.0, 2.0, 4.0], [0.0, 1.0, 3.0, 2.0])
    [1.5, 1.5, 0.0]
    """
    widths = np.diff(np.asarray(budgets, dtype=float))
    rises = np.diff(np.asarray(rewards, dtype=float)) / widths
    return [max(0.0, -slope) for slope in pooled((-rises).tolist(), widths.tolist())]


def rising_of(gained: Sequence[float]) -> list[float]:
    """Return a curve that never falls: more budget does no harm, and what looks so is chance.

    >>> rising_of([0.0, 3.0, 2.0])
    [0.0, 2.5, 2.5]
    """
    return pooled(gained, [1.0] * len(gained))


def crossing(budgets: Sequence[float], gained: Sequence[float], level: float) -> float | None:
    """Return the smallest budget that gains so much, on straight lines between points; None if none does.

    >>> crossing([0.0, 10.0, 20.0], [0.0, 8.0, 10.0], 9.0), crossing([0.0, 10.0], [0.0, 8.0], 9.0)
    (15.0, None)
    """
    i = reached_at(gained, level)
    if i is None or i == 0:
        return None if i is None else float(budgets[0])
    rising = rising_of(gained)
    part = (min(level, rising[i]) - rising[i - 1]) / (rising[i] - rising[i - 1])
    return float(budgets[i - 1] + part * (budgets[i] - budgets[i - 1]))


def reached_at(gained: Sequence[float], level: float) -> int | None:
    """Return the place of the first point of the rising curve that gains so much; None if none does.

    >>> reached_at([0.0, 8.0, 10.0], 9.0), reached_at([0.0, 8.0], 9.0)
    (2, None)
    """
    # what a sum of rewards loses to rounding shall not make a level unreachable
    enough = level - TOLERANCE * abs(level)
    return next((i for i, reached in enumerate(rising_of(gained)) if reached >= enough), None)
