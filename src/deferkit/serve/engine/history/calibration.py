"""Calibration of the estimates of a reward or cost: predicted against observed, in bins."""

import math
from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise

import msgspec

BINS = 10
MAX_PAIRS = 5000  # of each target, the latest: older estimates were made by a learner that knew less


class CalibrationBin(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of about the same prediction."""

    predicted: float  # their mean
    observed: float  # their mean
    error: float | None  # the standard error of what was observed; None of one task
    count: int


class Calibration:
    """The latest pairs of prediction and observation of one target.

    Args:
        kept: How many.
    """

    def __init__(self, kept: int = MAX_PAIRS) -> None:
        self._kept = kept
        self._pairs: OrderedDict[int, tuple[float, float]] = OrderedDict()  # by decision, the first to be known first

    def put(self, decision: int, predicted: float, observed: float) -> None:
        """Add what was observed of a decision, or replace it."""
        self._pairs[decision] = (predicted, observed)
        if len(self._pairs) > self._kept:
            self._pairs.popitem(last=False)

    def bins(self) -> list[CalibrationBin]:
        """Return the pairs in bins of equal count, by prediction.

        >>> calibration = Calibration()
        >>> for n in range(20):
        ...     calibration.put(n, n // 2, n)
        >>> calibration.bins()[9]
        CalibrationBin(predicted=9.0, observed=18.5, error=0.5, count=2)
        """
        pairs = sorted(self._pairs.values())
        edges = [round(i * len(pairs) / BINS) for i in range(BINS + 1)]
        return [bin_of(pairs[a:b]) for a, b in pairwise(edges) if b > a]


def bin_of(pairs: Iterable[tuple[float, float]]) -> CalibrationBin:
    """Return the means of some pairs."""
    predicted, observed = zip(*pairs, strict=True)
    n = len(observed)
    mean = math.fsum(observed) / n
    squares = math.fsum((value - mean) ** 2 for value in observed)
    error = math.sqrt(squares / (n - 1) / n) if n > 1 else None
    return CalibrationBin(predicted=math.fsum(predicted) / n, observed=mean, error=error, count=n)
