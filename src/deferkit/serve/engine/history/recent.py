"""A reply that was made a moment ago: under heavy traffic it does for others who ask for the same."""

import time
from typing import Generic, TypeVar

Value = TypeVar("Value")
RECENT_S = 0.5
HEAVY = 50  # records since: with fewer, those who have just changed something see it at once


class Recent(Generic[Value]):
    """The last value, as long as it is recent and the log grows fast.

    >>> recent = Recent()
    >>> recent.put(100, "a")
    >>> recent.get(100), recent.get(101), recent.get(100 + HEAVY)
    (None, None, 'a')
    """

    def __init__(self) -> None:
        self._kept: tuple[float, int, Value] | None = None

    def put(self, records: int, value: Value) -> None:
        """Keep what was made when the log had so many records."""
        self._kept = time.monotonic(), records, value

    def get(self, records: int) -> Value | None:
        """Return the value if it does for a log of so many records; else None."""
        if self._kept is None:
            return None
        at, before, value = self._kept
        return value if records - before >= HEAVY and time.monotonic() - at < RECENT_S else None
