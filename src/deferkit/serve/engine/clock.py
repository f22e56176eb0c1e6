"""A monotonic clock, and the time that it starts from."""

import time
from typing import NamedTuple

from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.engine import process_identity
from deferkit.serve.storage.store import Store
from deferkit.serve.structured_logs import logger

MICROSECONDS = 1000  # of nanoseconds


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
        return self._start + (time.monotonic_ns() - self._began) // MICROSECONDS


class StartTime(NamedTuple):
    """The time that a service begins to count from, in microseconds."""

    at: int
    jump: int  # of the machine's clock since an earlier start, if that is not followed


def start_time(store: Store, *, max_jump_s: float) -> StartTime:
    """Return the time of the database or machine, or what it would be without a jump of more than `max_jump_s`.

    A machine counts for how long it has run, whatever its clock is set to. With what both said at an earlier start in
    the same boot, a clock that was set is told from a service that was off. Nothing is known after a reboot: the clock
    is believed then. 0 follows any jump. Time never goes back behind the logs.
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
    except StoreFailed as error:  # a full disk: the earlier one is as good
        logger.warning("what the clock says was not kept", extra={"error": str(error)})
    return StartTime(max(store.last_time() + 1, wall), 0)
