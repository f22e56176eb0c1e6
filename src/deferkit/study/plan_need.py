"""The smallest budget that gains a share, on a measured curve, and where to measure next to know it better."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deferkit.study.slopes import crossing, reached_at

LEVELS = (90.0, 95.0, 99.0)  # per cent
TIGHT = 0.02  # of a needed budget: how far the measured budgets around it may be apart
CLOSE_SHARE = 0.02  # per cent of reviewing everything: budgets that are nearer to each other than this are the same
BESIDE = 0.4  # of TIGHT: how far on either side of a needed budget is measured next


class Need(NamedTuple):
    """The smallest budget that gains a share; all None where no budget does."""

    level: float  # per cent
    budget: float | None
    share: float | None  # the budget in per cent of what asking about every task costs
    asked: float | None
    asked_pct: float | None
    price: float | None
    budget_min: float | None  # over orders, each with its own curve; None unless every order gets there
    budget_max: float | None
    below: float | None  # the measured budgets that it lies between
    above: float | None


def nothing(level: float) -> Need:
    """Return that no budget gains so much."""
    return Need(level, *[None] * (len(Need._fields) - 1))


class Measured(NamedTuple):
    """A curve as it was measured: means over orders, and each order by itself."""

    budgets: Sequence[float]
    shares: Sequence[float]
    gained: Sequence[float]
    asked: Sequence[float]
    asked_pct: Sequence[float]
    prices: Sequence[float | None]
    orders: Sequence[tuple[Sequence[float], Sequence[float]]]  # budgets and gained of each


def need(level: float, curve: Measured, whole: float | None, wholes: Sequence[float]) -> Need:
    """Return the smallest budget that gains `level` per cent of `whole`, and of each order's own whole."""
    budget = None if whole is None else crossing(curve.budgets, curve.gained, level / 100 * whole)
    if whole is None or budget is None:
        return nothing(level)
    apart = [
        crossing(budgets, gained, level / 100 * top)
        for (budgets, gained), top in zip(curve.orders, wholes, strict=True)
    ]
    found = [each for each in apart if each is not None]
    least, most = (min(found), max(found)) if len(found) == len(apart) else (None, None)
    here = int(np.searchsorted(curve.budgets, budget, side="right")) - 1
    share, asked, asked_pct = (
        float(np.interp(budget, curve.budgets, values)) for values in (curve.shares, curve.asked, curve.asked_pct)
    )
    at = reached_at(curve.gained, level / 100 * whole)
    below, above = curve.budgets[max(0, (at or 0) - 1)], curve.budgets[at or 0]
    return Need(level, budget, share, asked, asked_pct, curve.prices[here], least, most, below, above)


def next_shares(found: Need, everything: float, *, halve: bool) -> list[float]:
    """Return the budgets to measure next, in per cent of everything, until those around a needed one are close.

    Two closely around it, or, to `halve` what lies between the two that are known, the middle.

    >>> found = nothing(90.0)._replace(budget=30.0, share=30.0, below=20.0, above=40.0)
    >>> next_shares(found, 100.0, halve=False), next_shares(found, 100.0, halve=True)
    ([29.76, 30.24], [30.0])
    >>> next_shares(found._replace(below=29.9, above=30.1), 100.0, halve=False)
    []
    """
    if found.budget is None or found.share is None or found.below is None or found.above is None or everything <= 0:
        return []
    low, high = 100 * found.below / everything, 100 * found.above / everything
    if high - low <= max(TIGHT * high, CLOSE_SHARE):
        return []
    middle = (low + high) / 2
    beside = BESIDE * TIGHT * found.share
    wanted = [middle] if halve else [found.share - beside, found.share + beside]
    inside = [share for share in wanted if low + CLOSE_SHARE / 2 < share < high - CLOSE_SHARE / 2]
    return [float(f"{share:.5g}") for share in inside or [middle]]
