"""Times and periods of budgets: fixed lengths, and calendar days, weeks and months in a time zone.

Times are seconds since 1970 (UTC). Only the standard library is used: a `Budget` is checked where numpy is missing too.
"""

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from deferkit.errors import InvalidArgument, expected

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

CALENDAR = ("day", "week", "month")
UNITS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
LENGTH = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d|w)", re.ASCII)
SHORTEST = 60.0  # seconds of a period
LONGEST = 2_500_000 * 86_400.0  # seconds of a period, some 6,800 years: one that begins now must end before LATEST
EARLIEST, LATEST = -62_135_596_800.0, 253_370_764_800.0  # the years 1 and 9999, within which calendars work
TICKS, EXACT_UNTIL = 2.0**22, 2.0**31  # before 2038 a double has 2^-22 seconds exactly
START_OF_TIME = -1e18  # before any time: the clock of a learner without decisions
ONE_OF = "a length such as '7d' or '12h', a timedelta, 'day', 'week' or 'month'"


def as_seconds(name: str, owner: str, at: object) -> float:
    """Return a time as seconds since 1970.

    Args:
        name: The argument, for the error message.
        owner: What it is an argument of.
        at: A number of seconds, or a datetime with a time zone.

    Raises:
        InvalidArgument: If it is neither, or not within the years 1 to 9999.

    >>> as_seconds("at", "Deferrer", datetime(1970, 1, 2, tzinfo=UTC))
    86400.0
    """
    if isinstance(at, datetime) and at.tzinfo is not None and at.utcoffset() is not None:
        at = at.timestamp()
    try:
        seconds = math.nan if isinstance(at, (bool, str, datetime, date)) else float(at)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not EARLIEST <= seconds <= LATEST:
        raise expected(name, owner, "seconds since 1970, or a datetime with a time zone", at)
    return seconds


def show_time(seconds: float) -> str:
    """Return a time to be read by people.

    >>> show_time(86_400.0)
    '1970-01-02 00:00 UTC'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


class Schedule(NamedTuple):
    """The periods of a renewing budget.

    Attributes:
        unit: "day", "week" or "month"; None for periods of a fixed length.
        length: The length of a period in seconds; 0 for calendar periods.
        zone: The time zone of calendar periods.
        start: The start of the first period; None for the calendar period, or the time, of the first task.
    """

    unit: str | None
    length: float
    zone: str
    start: float | None

    @classmethod
    def of(cls, every: object, zone: str | None, start: float | None) -> "Schedule":
        """Return the periods that the arguments of a `Budget` describe.

        Raises:
            InvalidArgument: If a period is shorter than a minute or too long, or a word or a time zone is unknown.

        >>> Schedule.of("7d", None, None).length
        604800.0
        """
        if isinstance(every, str) and every in CALENDAR:
            return cls(every, 0.0, check_zone("UTC" if zone is None else zone), start)
        if isinstance(every, timedelta):
            length = every.total_seconds()
        elif isinstance(every, str) and (found := LENGTH.fullmatch(every)):
            length = float(found[1]) * UNITS[found[2]]
        else:
            raise expected("every", "Budget", ONE_OF, every)
        if length < SHORTEST:
            raise expected("every", "Budget", "at least a minute", every)
        if length > LONGEST:
            raise expected("every", "Budget", f"at most {LONGEST / UNITS['d']:,.0f} days", every)
        if zone is not None:
            raise expected("zone", "Budget", "left out unless `every` is 'day', 'week' or 'month'", zone)
        return cls(None, length, "UTC", start)

    def containing(self, at: float) -> tuple[float, float]:
        """Return start and end of the period that a time lies in. It must not be before `start`.

        >>> Schedule.of("12h", None, 0.0).containing(50_000.0)
        (43200.0, 86400.0)
        """
        if self.unit is None:
            first = at if self.start is None else self.start
            begun = first + math.floor((at - first) / self.length) * self.length
            return begun, begun + self.length
        day = datetime.fromtimestamp(at, time_zone(self.zone)).date()
        begun = self._midnight(first_day(day, self.unit))
        return begun if self.start is None else max(begun, self.start), self.following(at)

    def following(self, at: float) -> float:
        """Return the end of the period that contains a time, or of the one that starts then."""
        if self.unit is None:
            return at + self.length
        day = datetime.fromtimestamp(at, time_zone(self.zone)).date()
        return self._midnight(first_day_after(day, self.unit))

    def latest(self, start: float, at: float, most: int) -> tuple[int, float]:
        """Return the number of periods from `start` that end up to a time, and the end of the last of them.

        No more than `most` are counted.

        >>> Schedule.of("12h", None, 0.0).latest(0.0, 100_000.0, most=9)
        (2, 86400.0)
        """
        n, first, length = 0, start * TICKS, self.length * TICKS
        if self.unit is None and first.is_integer() and length.is_integer() and EARLIEST <= start <= at < EXACT_UNTIL:
            n = max(0, min(most, (math.floor(at * TICKS) - int(first)) // int(length)))
            return n, (int(first) + n * int(length)) / TICKS  # as below, where no sum is rounded
        while n < most and (end := self.following(start)) <= at:
            n, start = n + 1, end
        return n, start

    def _midnight(self, day: date) -> float:
        # where clocks skip midnight, this is the moment at which they do; where it comes twice, the first time
        return datetime(day.year, day.month, day.day, tzinfo=time_zone(self.zone)).timestamp()


def first_day(day: date, unit: str) -> date:
    """Return the first day of the calendar period that a day lies in; weeks start on Monday.

    >>> first_day(date(2024, 2, 29), "week")
    datetime.date(2024, 2, 26)
    """
    if unit == "month":
        return day.replace(day=1)
    return day - timedelta(days=day.weekday()) if unit == "week" else day


def first_day_after(day: date, unit: str) -> date:
    """Return the first day of the calendar period after that of a day.

    >>> first_day_after(date(2024, 2, 29), "month")
    datetime.date(2024, 3, 1)
    """
    longest = {"day": 1, "week": 7, "month": 31}[unit]
    return first_day(first_day(day, unit) + timedelta(days=longest), unit)


def time_zone(name: str) -> "ZoneInfo":
    """Return a time zone."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - for calendar periods only: it looks for files when it is imported

    return ZoneInfo(name)


def check_zone(zone: object) -> str:
    """Return the name of a time zone; raise if there is no such zone.

    >>> check_zone("Europe/Berlin")
    'Europe/Berlin'
    """
    try:
        return time_zone(zone).key  # type: ignore[arg-type]
    except (ValueError, TypeError, OSError, KeyError, AttributeError):  # ZoneInfoNotFoundError is a KeyError
        raise InvalidArgument(
            f"The 'zone' of a Budget must be the name of a time zone, such as 'Europe/Berlin'. Got {zone!r} instead."
        ) from None
