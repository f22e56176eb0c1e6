"""Periods of budgets: fixed lengths, and calendar days, weeks and months across changes of clocks and leap years."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit import Budget, Deferrer, InvalidArgument
from deferkit.periods import LATEST, Schedule

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "America/Havana", "Pacific/Apia", "Asia/Kathmandu")
HOUR, DAY = 3_600.0, 86_400.0


def at(zone: str, *when: int) -> float:
    return datetime(*when, tzinfo=ZoneInfo(zone)).timestamp()  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("unit", "zone", "time", "start", "hours"),
    [
        ("day", "Europe/Berlin", (2026, 3, 29, 12), (2026, 3, 29), 23),  # clocks go forward
        ("day", "Europe/Berlin", (2026, 10, 25, 12), (2026, 10, 25), 25),  # and back
        ("week", "Europe/Berlin", (2026, 3, 29, 23), (2026, 3, 23), 7 * 24 - 1),
        ("week", "Europe/Berlin", (2026, 10, 19), (2026, 10, 19), 7 * 24 + 1),
        ("month", "America/New_York", (2024, 2, 29, 23), (2024, 2, 1), 29 * 24),  # a leap year
        ("month", "America/New_York", (2023, 2, 28, 23), (2023, 2, 1), 28 * 24),
        ("month", "America/New_York", (2024, 3, 31), (2024, 3, 1), 31 * 24 - 1),
        ("day", "UTC", (2024, 2, 29), (2024, 2, 29), 24),
        ("month", "UTC", (2025, 12, 31, 23), (2025, 12, 1), 31 * 24),
    ],
)
def test_calendar_periods_by_hand(
    unit: str, zone: str, time: tuple[int, ...], start: tuple[int, ...], hours: int
) -> None:
    begun, end = Schedule.of(unit, zone, None).containing(at(zone, *time))
    assert begun == at(zone, *start)
    assert end - begun == hours * HOUR


def test_where_clocks_skip_midnight_the_day_begins_when_they_do() -> None:
    """In Havana the clocks went from 00:00 to 01:00 on 8 March 2026: that day had 23 hours."""
    cuba = Schedule.of("day", "America/Havana", None)
    start, end = cuba.containing(at("America/Havana", 2026, 3, 8, 12))
    assert datetime.fromtimestamp(start, ZoneInfo("America/Havana")).hour == 1
    assert end - start == 23 * HOUR
    assert cuba.containing(start) == (start, end)
    assert cuba.following(start - 1) == start


every = st.sampled_from(["day", "week", "month", "7d", "36h", "90min", "1w"])


@given(every, st.sampled_from(ZONES), st.floats(0, 4e9))
def test_periods_follow_each_other_without_gaps(unit: str, zone: str, time: float) -> None:
    calendar = unit in ("day", "week", "month")
    schedule = Schedule.of(unit, zone if calendar else None, None if calendar else 0.0)
    start, end = schedule.containing(time)
    assert start <= time < end
    assert schedule.containing(start) == (start, end)
    assert schedule.containing(end) == (end, schedule.following(end))
    if calendar:
        begins = datetime.fromtimestamp(end, ZoneInfo(zone))
        assert unit != "week" or begins.weekday() == 0
        assert unit != "month" or begins.day == 1


def test_fixed_periods_count_from_their_start_or_the_first_task() -> None:
    assert Schedule.of("7d", None, 100.0).containing(100 + 15 * DAY) == (100 + 14 * DAY, 100 + 21 * DAY)
    assert Schedule.of(timedelta(hours=2), None, None).containing(50.0) == (50.0, 50.0 + 2 * HOUR)
    assert Budget(1, every=timedelta(days=1)) == Budget(1, every="86400s")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": "0d"}, "'every' of a Budget must be at least a minute. Got '0d'"),
        ({"every": "-1d"}, "a length such as '7d' or '12h', a timedelta, 'day', 'week' or 'month'. Got '-1d'"),
        ({"every": timedelta(days=-1)}, "at least a minute"),
        ({"every": timedelta(0)}, "at least a minute"),
        ({"every": "99999999999d"}, "'every' of a Budget must be at most 2,500,000 days. Got '99999999999d' instead."),
        ({"every": "2500001d"}, "at most 2,500,000 days"),
        ({"every": "9" * 400 + "w"}, "at most 2,500,000 days"),
        ({"every": timedelta.max}, "at most 2,500,000 days"),
        ({"every": "fortnight"}, "a length such as '7d'"),
        ({"every": 7}, "a length such as '7d'"),
        (
            {"every": "day", "zone": "Europe/Atlantis"},
            "the name of a time zone, such as 'Europe/Berlin'. Got 'Europe/At",
        ),
        ({"every": "day", "zone": "../etc/passwd"}, "the name of a time zone"),
        ({"every": "day", "zone": 3}, "the name of a time zone"),
        (
            {"every": "7d", "zone": "UTC"},
            "'zone' of a Budget must be left out unless `every` is 'day', 'week' or 'month'",
        ),
        ({"every": "7d", "carry": -1}, "'carry' of a Budget must be a number of at least 0"),
        ({"every": "7d", "carry": math.nan}, "'carry' of a Budget must be a number of at least 0"),
        ({"every": "7d", "horizon": 5}, "'every' of a Budget must be left out where `horizon` is given"),
        ({"every": "7d", "until": 5}, "'every' of a Budget must be left out where `until` is given"),
        ({"until": datetime(2026, 1, 1)}, "'until' of a Budget must be seconds since 1970, or a datetime with a time"),
        ({"until": "2026-01-01"}, "seconds since 1970, or a datetime with a time zone"),
        ({"until": math.inf}, "seconds since 1970, or a datetime with a time zone"),
        ({"until": True}, "seconds since 1970, or a datetime with a time zone"),
        ({"until": 5, "carry": 1}, "'carry' of a Budget must be left out without `every`"),
        ({"until": 5, "zone": "UTC"}, "'zone' of a Budget must be left out without `every`"),
        ({"horizon": 5, "start": 1}, "'start' of a Budget must be left out without `every`"),
        ({"horizon": 5, "hold": 0}, "'hold' of a Budget must be 'auto' or a finite number above 0"),
        ({"horizon": 5, "hold": "some"}, "'hold' of a Budget must be 'auto' or a finite number above 0"),
        ({"horizon": 5, "limit": math.inf}, "'limit' of a Budget must be a finite number above 0"),
        ({"total": math.inf, "every": "7d"}, "'total' of a Budget must be finite with `every`"),
    ],
)
def test_bad_periods(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Budget(given.pop("total", 10), **given)
    assert message in str(caught.value)


def test_the_longest_period_can_be_decided_in() -> None:
    """It ends before the year 9999, up to which times are accepted."""
    learner = Deferrer(n_features=1, budget=Budget(5, every="2500000d", max_cost=1))
    now = datetime(2100, 1, 1, tzinfo=UTC)
    learner.decide([1.0], at=now)
    assert Schedule.of("2500000d", None, None).containing(now.timestamp())[1] < LATEST


def test_a_datetime_is_its_moment() -> None:
    local = datetime(2026, 3, 31, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert Budget(5, until=local) == Budget(5, until=local.astimezone(UTC)) == Budget(5, until=local.timestamp())


def test_a_task_that_comes_after_thousands_of_empty_periods_is_decided() -> None:
    """Nothing is left of the tasks that came before, so that none are expected in a period."""
    deferrer = Deferrer(n_features=1, budget=Budget(3, every="1h", max_cost=1))
    for hour in (0.0, 1.5, 5_000.0):
        assert deferrer.decide([1.0], at=hour * 3600.0).budget_left == 3.0
    assert deferrer.summary().periods["cost"].tasks_left >= 1.0
