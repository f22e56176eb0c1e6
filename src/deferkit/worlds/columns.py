"""Which columns of a table are meant; what its outcomes are, and the order of its tasks."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, closest
from deferkit.types import LARGEST
from deferkit.worlds.dates import KINDS, Dates
from deferkit.worlds.notes import Notes, listed
from deferkit.worlds.numerals import Numerals
from deferkit.worlds.sheet import Sheet

Floats = NDArray[np.float64]

YES = ("true", "yes", "y", "t", "ja", "j", "oui", "si", "sí", "right", "correct", "wahr", "richtig", "vrai")
NO = ("false", "no", "n", "f", "nein", "non", "wrong", "incorrect", "falsch", "faux")
TRUTHS = dict.fromkeys(YES, "1") | dict.fromkeys(NO, "0")  # how people and programs write the 1 and 0 of a reward


def check_columns(sheet: Sheet, needed: dict[str, str]) -> None:
    """Raise if there is no column for one of these parameters."""
    names = sheet.frame.columns
    for parameter, name in needed.items():
        if name not in names:
            others = [each for each in names if each not in needed.values()]
            option = "--" + parameter.replace("'s ", "-")
            raise InvalidArgument(
                f"{sheet.path} has no column {name!r} for the {parameter}.{closest(name, others)}"
                f" Its columns: {listed(names)}. Another one is named with {option}."
            )


def pick(sheet: Sheet, context: str, outcomes: Sequence[str]) -> list[str]:
    """Return the context columns that a comma-separated list of names and globs stands for, in the file's order.

    Outcomes are never part of a context: a glob passes them over, a name is an error.
    """
    names = sheet.frame.columns
    chosen: set[str] = set()
    for pattern in [context] if context in names else [part.strip() for part in context.split(",")]:
        if pattern in outcomes:
            raise InvalidArgument(f"The column {pattern!r} of {sheet.path} is an outcome and cannot be a context too.")
        found = {pattern} & set(names) or {name for name in names if fnmatchcase(name, pattern)} - set(outcomes)
        if not found:
            raise InvalidArgument(
                f"No column of {sheet.path} matches the context {pattern!r}.{closest(pattern, names)}"
                f" Its columns: {listed(names)}. Name them with --context, as in --context 'age,country' or '*'."
            )
        chosen |= found
    return [name for name in names if name in chosen]


def named(sheet: Sheet, context: str) -> set[str]:
    """Return the columns that a list of names and globs calls by their names."""
    return set(sheet.frame.columns) & {context, *(part.strip() for part in context.split(","))}


def outcome(numerals: Numerals, notes: Notes, name: str, *, optional: bool, cost: bool = False) -> Floats:
    """Return a column of rewards or costs, NaN where one is missing and may be; raise at the first cell that is bad."""
    sheet = numerals.sheet
    cells = sheet.frame[name]
    if cells.dtype == pl.String:
        texts = cells if cost else without_truths(cells, notes)
        found = numerals.read(texts)
        if found.wrong:
            raise not_a_number(sheet, cells, found.values, reward=not cost)
        found.note(texts, notes)
        numbers = found.values
    elif is_number(cells.dtype) or (cells.dtype == pl.Boolean and not cost):
        numbers = cells.cast(pl.Float64)
    else:
        raise InvalidArgument(f"The column {name!r} of {sheet.path} must hold numbers. It holds {cells.dtype}.")
    column: Floats = numbers.fill_null(np.nan).to_numpy().astype(np.float64)
    missing = np.isnan(column)
    kinds = {"infinite or too large": np.abs(column) > LARGEST, "below 0": (column < 0) & cost}
    kinds["missing"] = missing & (not optional)
    for kind, wrong in kinds.items():
        if wrong.any():
            at = int(wrong.argmax())
            value = f" ({cells[at]})" if kind != "missing" else ""
            raise InvalidArgument(f"The {name} in row {sheet.rows[at]} of {sheet.path} is {kind}{value}.")
    return column


def is_number(kind: pl.DataType) -> bool:
    """Whether a column of this kind holds numbers."""
    return kind.is_numeric()


def without_truths(cells: pl.Series, notes: Notes) -> pl.Series:
    """Return the texts of rewards with 1 and 0 in place of yes and no in a few languages."""
    lower = cells.str.to_lowercase()
    is_word = lower.is_in(list(TRUTHS)).fill_null(value=False)
    if not is_word.any():
        return cells
    word = lower[int(is_word.arg_max() or 0)]
    notes.convert("yes and no become 1 and 0", cells.name, word, TRUTHS[word])
    digits = pl.when(is_word).then(lower.replace(TRUTHS)).otherwise(cells)
    return pl.select(digits.alias(cells.name)).to_series()


def not_a_number(sheet: Sheet, cells: pl.Series, numbers: pl.Series, *, reward: bool) -> InvalidArgument:
    """Return the error for the first cell that is not a number."""
    at = first_wrong(cells, numbers)
    said = f"The {cells.name} in row {sheet.rows[at]} of {sheet.path} is {cells[at]!r}, which is not a number"
    if reward and numbers.null_count() == len(numbers):
        said += " (nor yes or no, true or false, right or wrong)"
    return InvalidArgument(f"{said}.")


def first_wrong(cells: pl.Series, converted: pl.Series) -> int:
    """Return the place of the first cell that could not be converted."""
    return int((cells.is_not_null() & converted.is_null()).arg_max() or 0)


def times_of(numerals: Numerals, notes: Notes, name: str) -> NDArray[np.float64]:
    """Return the times in a column: dates as seconds since 1970 by the clock of the table, numbers as they are."""
    sheet = numerals.sheet
    cells = sheet.frame[name]
    if cells.dtype.is_float():
        cells = cells.fill_nan(None)
    if cells.null_count():
        at = int(cells.is_null().arg_max() or 0)
        raise InvalidArgument(f"The {name} in row {sheet.rows[at]} of {sheet.path} is missing: --time needs all.")
    if cells.dtype == pl.String:
        numbers, dates = numerals.read(cells), Dates.of(cells)
        if numbers.wrong and dates.wrong:
            at = first_wrong(cells, dates.moments)
            raise InvalidArgument(
                f"The {name} in row {sheet.rows[at]} of {sheet.path} is {cells[at]!r}, which is neither a date nor a"
                " number."
            )
        moments, form = (dates.moments, dates.form) if numbers.wrong else (numbers.values, "numbers")
        notes.remark(f"Tasks come in the order of {name} ({form}, as in {cells[0]!r}).")
        cells = moments
    elif not (is_number(cells.dtype) or cells.dtype in KINDS):
        raise InvalidArgument(f"The column {name!r} of {sheet.path} is {cells.dtype}; a time is a date or a number.")
    if is_number(cells.dtype):
        return cells.cast(pl.Float64).to_numpy()
    return Dates.of(cells).moments.to_physical().cast(pl.Float64).to_numpy() / 1e6
