"""A short-lived cache of one reply, which is used under heavy traffic only."""

import time
from typing import Generic, TypeVar

Value = TypeVar("Value")
MAX_AGE_S = 0.5
MIN_NEW_RECORDS = 50  # since the value was cached: with fewer, callers see their own changes at once


class Recent(Generic[Value]):
    """Caches the last value while it is recent and the log grows fast.

    >>> recent = Recent()
    >>> recent.put(100, "a")
    >>> recent.get(100), recent.get(101), recent.get(100 + MIN_NEW_RECORDS)
    (None, None, 'a')
    """

    def __init__(self) -> None:
        self._kept: tuple[float, int, Value] | None = None

    def put(self, records: int, value: Value) -> None:
        """Cache a value that was computed when the log had `records` records."""
        self._kept = time.monotonic(), records, value

    def get(self, records: int) -> Value | None:
        """Return the cached value if it is recent and the log has grown by `MIN_NEW_RECORDS`; else None."""
        if self._kept is None:
            return None
        at, before, value = self._kept
        return value if records - before >= MIN_NEW_RECORDS and time.monotonic() - at < MAX_AGE_S else None
