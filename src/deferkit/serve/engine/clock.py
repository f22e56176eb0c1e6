"""A clock that never goes back and never jumps, whatever is done to the machine's."""

import time

MICROSECONDS = 1000  # of nanoseconds


class Clock:
    """Counts on from where it was started, by the machine's monotonic clock.

    >>> clock = Clock(5_000_000)
    >>> 5_000_000 <= clock.now() < 6_000_000
    True
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._began = time.monotonic_ns()

    def now(self) -> int:
        """Return the time in microseconds."""
        return self._start + (time.monotonic_ns() - self._began) // MICROSECONDS
