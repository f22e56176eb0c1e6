"""A time series in a bounded number of buckets, whose width doubles when there are too many."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Generic, TypeVar

from deferkit.serve.domain.money import MICRO

Row = TypeVar("Row")
MAX_BUCKETS = 2000  # buckets


class Series(Generic[Row]):
    """The figures at the end of each bucket in which something happened.

    Args:
        most: How many buckets there may be.

    >>> series = Series(most=3)
    >>> for second in range(6):
    ...     series.put(second * MICRO, second)
    >>> series.width, series.starts, series.rows
    (2000000, [0, 2000000, 4000000], [1, 3, 5])
    """

    def __init__(self, most: int = MAX_BUCKETS) -> None:
        self.most = most
        self.width = MICRO  # microseconds
        self.starts: list[int] = []  # of the buckets: multiples of the width
        self.rows: list[Row] = []

    def put(self, at: int, row: Row) -> None:
        """Set the figures at a time; those of an earlier time in the same bucket are replaced."""
        start = max(at - at % self.width, self.starts[-1] if self.starts else 0)  # clocks of owners differ
        if self.starts and start == self.starts[-1]:
            self.rows[-1] = row
            return
        self.starts.append(start)
        self.rows.append(row)
        while len(self.starts) > self.most:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        merged: dict[int, Row] = {}
        for start, row in zip(self.starts, self.rows, strict=True):
            merged[start - start % self.width] = row
        self.starts, self.rows = list(merged), list(merged.values())

    def spread(self, buckets: int) -> tuple[int, list[int], list[Row]]:
        """Resample to at most `buckets` contiguous buckets: return their width, starts, and figures at their ends.

        Args:
            buckets: How many at most, at least 1.
        """
        if not self.starts:
            return self.width, [], []
        width = self.width
        while (first := self.starts[0] - self.starts[0] % width) + width * buckets <= self.starts[-1]:
            width += self.width
        starts = list(range(first, self.starts[-1] + 1, width))
        return width, starts, [self.rows[bisect_right(self.starts, start + width - 1) - 1] for start in starts]

    def before(self, reached: Callable[[Row], bool]) -> tuple[int, Row] | None:
        """Bisect: return start and figures of the last bucket for which `reached` is false; None if there is none."""
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            if reached(self.rows[middle]):
                high = middle
            else:
                low = middle + 1
        return (self.starts[low - 1], self.rows[low - 1]) if low else None
