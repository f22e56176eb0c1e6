"""Dates and times in a table: as moments to sort by, and as features of a context."""

import math
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CLOCK = r"(?:,?[T ]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?\s*([AaPp][Mm])?\s*(Z|[+-]\d{2}:?\d{2})?)?$"
YEAR_FIRST = r"^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})" + CLOCK
YEAR_LAST = r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})" + CLOCK
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
KINDS = (pl.Date, pl.Datetime)


class Dates(NamedTuple):
    """A column of moments, and how its texts were understood."""

    moments: pl.Series  # Datetime without a time zone, null where one is missing or not a date
    wrong: int  # cells that are not dates
    form: str  # such as "day/month/year", "" if there was nothing to understand

    @classmethod
    def of(cls, cells: pl.Series) -> "Dates":
        """Return the moments of a column of dates or of texts.

        >>> Dates.of(pl.Series(["24.12.2024 18:30", "1.1.2025"])).moments.dt.to_string("%F %R").to_list()
        ['2024-12-24 18:30', '2025-01-01 00:00']
        """
        if cells.dtype != pl.String:
            local = cells.dt.replace_time_zone(None) if cells.dtype == pl.Datetime else cells
            return cls(local.cast(pl.Datetime("us")), 0, "")
        first = moments(cells, YEAR_FIRST, ("year", "month", "day"))
        readings = {"year-month-day": first}
        if first.null_count() > cells.null_count():
            # day.month is how it is written with points; with slashes both are, and what cannot be decided is US
            points = bool(cells.str.contains(r"^\d{1,2}[.-]").any())
            orders = ("day", "month", "year"), ("month", "day", "year")
            for order in orders if points else orders[::-1]:
                readings["/".join(order)] = moments(cells, YEAR_LAST, order)
        form = min(readings, key=lambda each: readings[each].null_count())  # the first of equals
        found = readings[form]
        return cls(found, found.null_count() - cells.null_count(), form)

    def features(self, name: str, like: "Dates | None" = None) -> tuple[dict[str, Floats], dict[str, list[str | None]]]:
        """Return numbers and categories that tell when it was.

        Days since the first moment, the day of the week, and the hour as a point on a circle (23:00 is near 1:00),
        each if it varies. With other dates to be `like`, those say which is the first moment, and what varies.
        """
        like = self if like is None else like
        days = (self.moments - like.moments.min()).dt.total_microseconds() / 86_400e6
        numbers = {f"{name} days": days.cast(pl.Float64).fill_null(math.nan).to_numpy().astype(np.float64)}
        categories: dict[str, list[str | None]] = {}
        hours, theirs = self.hours(), like.hours()
        if len(np.unique(theirs[~np.isnan(theirs)])) > 1:
            numbers[f"{name} hour sin"] = np.sin(2 * np.pi * hours)
            numbers[f"{name} hour cos"] = np.cos(2 * np.pi * hours)
        weekdays = self.moments.dt.weekday()
        if like.moments.dt.weekday().drop_nulls().n_unique() > 1:
            categories[f"{name} weekday"] = [None if day is None else WEEKDAYS[day - 1] for day in weekdays]
        return numbers, categories

    def hours(self) -> Floats:
        """Return the time of day as a share of the day, NaN where a moment is missing."""
        passed = (self.moments - self.moments.dt.truncate("1d")).dt.total_microseconds() / 86_400e6
        return passed.cast(pl.Float64).fill_null(math.nan).to_numpy().astype(np.float64)


def moments(cells: pl.Series, pattern: str, order: tuple[str, str, str]) -> pl.Series:
    """Return the moments of texts; null where one does not fit, or there is no such day."""
    names = [*order, "hour", "minute", "second", "fraction", "half", "zone"]
    parts = cells.str.extract_groups(pattern).struct.rename_fields(names).struct.unnest()
    hour = pl.col("hour").cast(pl.Int64).fill_null(0)
    half = pl.col("half").str.to_lowercase()
    hour = pl.when(half.is_null()).then(hour).otherwise(hour % 12 + pl.when(half == "pm").then(12).otherwise(0))
    two = [pl.col(name).str.zfill(2) for name in ("month", "day")]
    clock = [pl.col(name).fill_null("00") for name in ("minute", "second")]
    fraction = pl.col("fraction").fill_null("0").str.pad_end(6, "0")
    text = pl.format("{}-{}-{} {}:{}:{}.{}", pl.col("year"), *two, hour.cast(pl.String).str.zfill(2), *clock, fraction)
    zone = pl.col("zone").replace("Z", "+00:00").str.replace(":", "", literal=True)
    minutes = zone.str.slice(1, 2).cast(pl.Int64) * 60 + zone.str.slice(3, 2).cast(pl.Int64)
    offset = pl.when(zone.str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    moment = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.6f", strict=False, time_unit="us")
    return parts.select((moment - pl.duration(minutes=offset)).alias("moment")).to_series()
