"""Reading cells: numerals, dates, and notes on what was converted."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.tables.sheet import Sheet

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


MAX_NAMED = 12  # columns that a sentence lists


def join_first_names(names: Sequence[str]) -> str:
    """Return names as a list that fits a sentence.

    >>> join_first_names(["a", "b"]), join_first_names([str(i) for i in range(14)])[-13:]
    ('a, b', '11 and 2 more')
    """
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


class Conversion(NamedTuple):
    """Columns that were converted in the same way, and one of their cells."""

    columns: list[str]
    cell: str
    value: str


class Notes:
    """Collects remarks and conversions while a table is read.

    >>> notes = Notes()
    >>> notes.convert("per cent become fractions", "x_share", "12 %", "0.12")
    >>> notes.convert("per cent become fractions", "cost", "7%", "0.07")
    >>> notes.remark("x_id is left out.")
    >>> notes.lines()
    ["x_share, cost: per cent become fractions ('12 %' is 0.12).", 'x_id is left out.']
    """

    def __init__(self) -> None:
        self._conversions: dict[str, Conversion] = {}
        self._remarks: list[str] = []

    def convert(self, kind: str, column: str, cell: str, value: str) -> None:
        """Note that the cells of a column were converted, such as this one to this value."""
        self._conversions.setdefault(kind, Conversion([], cell, value)).columns.append(column)

    def remark(self, line: str) -> None:
        """Note a line as it is."""
        self._remarks.append(line)

    def lines(self) -> list[str]:
        """Return all notes, a line for each; conversions first."""
        converted = [
            f"{join_first_names(found.columns)}: {kind} ({found.cell!r} is {found.value})."
            for kind, found in self._conversions.items()
        ]
        return converted + self._remarks


NUMBERS_SHARE = 0.9  # of the cells of a context that must be numbers, for the others to count as missing
GAP = "[ \u00a0\u202f\u2009'’]"  # between thousands, beside point and comma
GAPPED = rf"^[+-]?[1-9]\d{{0,2}}(?:{GAP}\d{{3}})+(?:[.,]\d*)?$"
PERCENT = r"\s*%$"
POINT_GROUPED = r"^[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?$"  # 1,234.5
COMMA_GROUPED = r"^[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d*)?$"  # 1.234,5
COMMA_PLAIN = r"^[+-]?\d*(?:,\d*)?(?:[eE][+-]?\d+)?$"  # 1234,5
GROUPED_ONLY = r"^[+-]?[1-9]\d{0,2}(?:[.,]\d{3})+$"  # 1.234: a decimal or a thousand


class Numbers(NamedTuple):
    """A column of texts as numbers."""

    values: pl.Series  # null where a cell is missing or not a number
    wrong: int  # cells that are not numbers
    kinds: tuple[str, ...]  # of conversion
    at: int  # a cell that was converted

    def note(self, cells: pl.Series, notes: Notes) -> None:
        """Note which conversion was made, if one was."""
        if self.kinds:
            value = self.values[self.at]
            shown = f"{value:.15g}"
            notes.convert(", ".join(self.kinds), cells.name, cells[self.at], shown)


class Numerals:
    """Reads the number columns of a sheet.

    A column has decimal points or decimal commas, whichever makes numbers of more of its cells. Where both do ("1,234",
    "1.234"), the other columns of the sheet decide; then a comma between digits is a decimal one if semicolons
    separate the cells, else one of thousands, and a point is a decimal one.

    >>> sheet = Sheet("tasks.csv", pl.DataFrame({"a": ["1.234,5", "7"], "b": ["1.234", "20"]}), pl.Series([2, 3]))
    >>> [Numerals(sheet).parse_column(sheet.frame[name]).values.to_list() for name in "ab"]
    [[1234.5, 7.0], [1234.0, 20.0]]
    """

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet

    @cached_property
    def decimal(self) -> str:
        """The decimal sign of all columns that leave no doubt: "," or "."; "" if there is none, or there are both."""
        texts = [column for column in self.sheet.frame if column.dtype == pl.String]
        signs = {decimal_sign(column) for column in texts} - {""}
        return signs.pop() if len(signs) == 1 else ""

    def parse_column(self, cells: pl.Series) -> Numbers:
        """Return a column of texts as numbers, or raise if it mixes ways of writing them."""
        plain = cells.cast(pl.Float64, strict=False)
        if plain.null_count() == cells.null_count() and not (only_grouped(cells) and self.decimal == ","):
            return Numbers(plain, 0, (), 0)
        bare = without_signs(cells)
        by_point, by_comma = with_point(bare), with_comma(bare)
        comma = self._is_comma(bare, by_point, by_comma)
        values = by_comma if comma else by_point
        some = len(cells) - cells.null_count()
        enough = some - (values.null_count() - cells.null_count()) >= NUMBERS_SHARE * some
        self._check_decimals(cells, by_point, by_comma)
        percent = cells.str.contains(PERCENT) & values.is_not_null()
        if percent.any():
            if enough:
                self._check_percent(cells, values, percent)
            values = pl.select(pl.when(percent).then(values / 100).otherwise(values)).to_series()
        kinds, at = conversions(cells, values, comma=comma)
        return Numbers(values.alias(cells.name), values.null_count() - cells.null_count(), kinds, at)

    def _is_comma(self, bare: pl.Series, by_point: pl.Series, by_comma: pl.Series) -> bool:
        if by_point.null_count() != by_comma.null_count():
            return by_comma.null_count() < by_point.null_count()
        if by_point.equals(by_comma) or by_point.null_count() == len(bare):
            return False
        if self.decimal:
            return self.decimal == ","
        return self.sheet.separator == ";" and bool(bare.str.contains(",", literal=True).any())

    def _check_decimals(self, cells: pl.Series, by_point: pl.Series, by_comma: pl.Series) -> None:
        points, commas = by_point.is_not_null() & by_comma.is_null(), by_comma.is_not_null() & by_point.is_null()
        some = len(cells) - cells.null_count()
        numbers = int((by_point.is_not_null() | by_comma.is_not_null()).sum())
        if points.any() and commas.any() and numbers >= NUMBERS_SHARE * some:
            raise self._mixture_error(cells, "decimal points and decimal commas", points, commas)

    def _check_percent(self, cells: pl.Series, values: pl.Series, percent: pl.Series) -> None:
        bare = values.is_not_null() & ~percent & (values != 0)
        if bare.any():
            raise self._mixture_error(cells, "numbers with and without a percent sign", percent, bare)

    def _mixture_error(self, cells: pl.Series, what: str, one: pl.Series, other: pl.Series) -> InvalidArgument:
        shown = [f"{cells[at]!r} in row {self.sheet.rows[at]}" for at in (one.arg_max() or 0, other.arg_max() or 0)]
        return InvalidArgument(
            f"The column {cells.name!r} of {self.sheet.path} mixes {what} ({shown[0]}, {shown[1]}). Write all alike."
        )


def without_signs(cells: pl.Series) -> pl.Series:
    """Return cells without percent signs and gaps between thousands, with a plain minus."""
    bare = cells.str.replace(PERCENT, "").str.replace("^−", "-")
    tight = bare.str.replace_all(GAP, "")
    return pl.select(pl.when(bare.str.contains(GAPPED)).then(tight).otherwise(bare)).to_series()


def with_point(bare: pl.Series) -> pl.Series:
    """Return the numbers of cells whose decimal sign is a point; null where there is none."""
    grouped = bare.str.contains(POINT_GROUPED)
    texts = pl.select(pl.when(grouped).then(bare.str.replace_all(",", "", literal=True)).otherwise(bare)).to_series()
    return texts.cast(pl.Float64, strict=False)


def with_comma(bare: pl.Series) -> pl.Series:
    """Return the numbers of cells whose decimal sign is a comma; null where there is none."""
    grouped = bare.str.contains(COMMA_GROUPED)
    fits = grouped | bare.str.contains(COMMA_PLAIN)
    pointed = bare.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    texts = pl.select(pl.when(fits).then(pointed)).to_series()
    return texts.cast(pl.Float64, strict=False)


def only_grouped(cells: pl.Series) -> bool:
    """Whether some cells have a point, and each of these might be one of thousands."""
    dotted = cells.str.contains(".", literal=True)
    return bool(dotted.any()) and bool((~dotted | cells.str.contains(GROUPED_ONLY)).all())


def decimal_sign(cells: pl.Series) -> str:
    """Return the decimal sign of a column of numbers if there can be no other, else ""."""
    bare = without_signs(cells)
    by_point, by_comma = with_point(bare), with_comma(bare)
    some = len(cells) - cells.null_count()
    point, comma = len(cells) - by_point.null_count(), len(cells) - by_comma.null_count()
    if point == comma or max(point, comma) < NUMBERS_SHARE * some:
        return ""
    return "." if point > comma else ","


def conversions(cells: pl.Series, values: pl.Series, *, comma: bool) -> tuple[tuple[str, ...], int]:
    """Return in which ways cells were converted, and the place of an example."""
    bare = without_signs(cells)
    number = values.is_not_null()
    ways = {
        "decimal commas": bare.str.contains(",", literal=True) & comma,
        "thousands separators": bare.str.contains(COMMA_GROUPED if comma else POINT_GROUPED)
        | cells.str.contains(GAPPED.removesuffix("$") + r"(?:\s*%)?$"),
        "per cent become fractions": cells.str.contains(PERCENT),
        "long minus signs": cells.str.starts_with("−"),
    }
    used = {kind: (found & number).fill_null(value=False) for kind, found in ways.items()}
    used = {kind: found for kind, found in used.items() if found.any()}
    if not used:
        return (), 0
    # thousands are the most doubtful, so that an example should show them
    weights = {kind: 2 if kind == "thousands separators" else 1 for kind in used}
    scores = sum(
        (found.cast(pl.Int64) * weights[kind] for kind, found in used.items()), start=pl.Series([0] * len(cells))
    )
    return tuple(used), int(scores.arg_max() or 0)
