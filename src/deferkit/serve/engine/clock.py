"""A monotonic clock, and its start time, which ignores large jumps of the machine's clock."""

import time
from typing import NamedTuple

from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.engine import process_identity
from deferkit.serve.storage.store import Store
from deferkit.serve.structured_logs import logger

NANOSECONDS = 1000  # of a microsecond


class Clock:
    """Counts from a start time, by the machine's monotonic clock.

    >>> clock = Clock(5_000_000)
    >>> 5_000_000 <= clock.now() < 6_000_000
    True
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._began = time.monotonic_ns()

    def now(self) -> int:
        """Return the time in microseconds."""
        return self._start + (time.monotonic_ns() - self._began) // NANOSECONDS


class StartTime(NamedTuple):
    """The start time of the clock of a service, in microseconds."""

    at: int
    jump: int  # of the machine's clock since an earlier start, where it is not followed; else 0


def start_time(store: Store, *, max_jump_s: float) -> StartTime:
    """Return the wall clock of the database or machine, corrected for a jump of more than `max_jump_s`.

    The uptime of a machine does not depend on its wall clock. Both were stored at an earlier start in the same boot,
    so that a wall clock that was set can be distinguished from a service that was off. After a reboot the wall clock
    is trusted. With `max_jump_s` 0 any jump is followed. The result is later than every record of the logs.
    """
    wall, now = store.database.now(), process_identity.uptime()
    if now is None:
        return StartTime(max(store.last_time() + 1, wall), 0)
    boot, uptime = now
    before = store.clock(boot)
    expected = wall if before is None else before[0] + uptime - before[1]
    jump = wall - expected
    if max_jump_s and abs(jump) > max_jump_s * MICRO:
        logger.error(
            "the clock has jumped and is not followed: set it right, or start with --max-clock-jump-s 0 to follow it",
            extra={"jump_s": jump / MICRO},
        )
        return StartTime(max(store.last_time() + 1, expected), jump)
    try:
        store.put_clock(boot, wall, uptime)
    except StoreFailed as error:  # a full disk: the earlier reading serves as well
        logger.warning("the clock reading was not stored", extra={"error": str(error)})
    return StartTime(max(store.last_time() + 1, wall), 0)
