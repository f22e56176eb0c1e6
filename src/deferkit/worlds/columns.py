"""What the columns of a table mean: outcomes are numbers, contexts are numbers, dates or categories."""

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.types import LARGEST
from deferkit.worlds.dates import KINDS, Dates
from deferkit.worlds.identifiers import are_names, are_numbers_of_rows
from deferkit.worlds.notes import Notes, listed
from deferkit.worlds.numerals import NUMBERS_SHARE, Numerals
from deferkit.worlds.sheet import Sheet

Floats = NDArray[np.float64]

MOST_LEVELS = 20  # of a category; the others are "other"
YES = ("true", "yes", "y", "t", "ja", "j", "oui", "si", "sí", "right", "correct", "wahr", "richtig", "vrai")
NO = ("false", "no", "n", "f", "nein", "non", "wrong", "incorrect", "falsch", "faux")
TRUTHS = dict.fromkeys(YES, "1") | dict.fromkeys(NO, "0")  # how people and programs write the 1 and 0 of a reward
DATE_LIKE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d"
DIGITS_FIRST = r"^\P{L}*\d"  # a text that is nearly a number, such as "12 min"


class Contexts(NamedTuple):
    """The columns of contexts, for an encoder."""

    numbers: dict[str, Floats]  # NaN where one is missing
    categories: dict[str, list[str | None]]  # None where one is missing
    levels: dict[str, list[str]]  # of each category, the most frequent ones


def closest(name: str, names: Iterable[str]) -> str:
    """Return a question with the most similar of these names, or nothing.

    >>> closest("model_rewrad", ["model_reward", "cost"]), closest("size", ["cost"])
    (" Did you mean 'model_reward'?", '')
    """
    by_lower = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""


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


class ContextReader:
    """Reads context columns: each is a number, a date or a category, or left out because it only names the task."""

    def __init__(self, numerals: Numerals, notes: Notes) -> None:
        self.numerals = numerals
        self.sheet = numerals.sheet
        self.notes = notes
        self.found = Contexts({}, {}, {})

    def read(self, names: Sequence[str], keep: set[str]) -> Contexts:
        """Return context columns; those in `keep` are not left out, whatever they look like.

        A column is one of numbers (or dates) if nearly all of its cells are: the others count as missing.
        """
        for name in names:
            cells = self.sheet.frame[name]
            kind = cells.dtype
            if is_number(kind):
                self._number(cells, cells.cast(pl.Float64), keep)
            elif kind in KINDS or kind == pl.String:
                self._text(cells, keep) if kind == pl.String else self._date(cells, Dates.of(cells))
            elif kind in (pl.Boolean, pl.Categorical, pl.Enum) or kind == pl.Null:
                self._category(name, cells.cast(pl.String))
            else:
                raise InvalidArgument(
                    f"The column {name!r} of {self.sheet.path} is {kind}; a context is a number or a text."
                )
        if not (self.found.numbers or self.found.categories):
            raise InvalidArgument(
                f"All context columns of {self.sheet.path} look like ids ({listed(names)}), and nothing is to be"
                " learned from those. One that is none is kept if --context names it."
            )
        return self.found

    def _text(self, cells: pl.Series, keep: set[str]) -> None:
        found = self.numerals.read(cells)
        some = len(cells) - cells.null_count()
        if found.wrong == 0 or some - found.wrong >= NUMBERS_SHARE * some:
            found.note(cells, self.notes)
            self._note_wrong(cells, found.values, found.wrong, "number")
            self._number(cells, found.values, keep)
            return
        # most texts are no dates, and one look at them is cheaper than three readings
        likely = int(cells.str.contains(DATE_LIKE).sum()) >= NUMBERS_SHARE * some
        if likely and some - (dates := Dates.of(cells)).wrong >= NUMBERS_SHARE * some:
            self._note_wrong(cells, dates.moments, dates.wrong, "date")
            self._date(cells, dates)
        elif cells.name not in keep and are_names(cells):
            self._leave_out(cells.name, f"nearly all of its {some:,} texts differ")
        else:
            self._note_category(cells, found.values, found.wrong)
            self._category(cells.name, cells)

    def _number(self, cells: pl.Series, numbers: pl.Series, keep: set[str]) -> None:
        column = numbers.fill_null(np.nan).to_numpy().astype(np.float64)
        wrong = np.abs(column) > LARGEST
        if wrong.any():
            at = int(wrong.argmax())
            raise InvalidArgument(
                f"The {cells.name} in row {self.sheet.rows[at]} of {self.sheet.path} is infinite or too large"
                f" ({cells[at]})."
            )
        if cells.name not in keep and are_numbers_of_rows(cells.name, column):
            self._leave_out(cells.name, "whole numbers, a different one in (nearly) each row")
        else:
            self.found.numbers[cells.name] = column

    def _date(self, cells: pl.Series, dates: Dates) -> None:
        numbers, categories = dates.features(cells.name)
        self.found.numbers.update(numbers)
        for name, texts in categories.items():
            self._category(name, pl.Series(name, texts, dtype=pl.String))
        hour, weekday = (", hour of day" if len(numbers) > 1 else ""), (", day of week" if categories else "")
        form = f" ({dates.form}, as in {cells.drop_nulls()[0]!r})" if dates.form else ""
        self.notes.remark(f"{cells.name} is read as dates{form}: days since the first one{weekday}{hour}.")

    def _category(self, name: str, texts: pl.Series) -> None:
        counts = texts.drop_nulls().value_counts(sort=True).sort("count", name, descending=[True, False])
        self.found.categories[name] = texts.to_list()
        self.found.levels[name] = counts[name][:MOST_LEVELS].to_list()
        if counts.height > MOST_LEVELS:
            self.notes.remark(
                f"{name} has {counts.height:,} levels; all but the {MOST_LEVELS} most frequent are 'other'."
            )

    def _leave_out(self, name: str, why: str) -> None:
        self.notes.remark(f"{name} is left out as an id: {why}. It is kept if --context names it.")

    def _note_wrong(self, cells: pl.Series, converted: pl.Series, wrong: int, what: str) -> None:
        if wrong:
            at = first_wrong(cells, converted)
            cells_are = "1 cell is" if wrong == 1 else f"{wrong:,} cells are"
            self.notes.remark(
                f"{cells_are} not a {what} in {cells.name} ({cells[at]!r} in row {self.sheet.rows[at]}) and counted as"
                " missing."
            )

    def _note_category(self, cells: pl.Series, numbers: pl.Series, wrong: int) -> None:
        some = len(cells) - cells.null_count()
        at = first_wrong(cells, numbers)
        example = f"({cells[at]!r} in row {self.sheet.rows[at]})"
        if wrong < some:
            self.notes.remark(f"{cells.name} is taken as a category: some of it is numbers, some is not {example}.")
        elif int(cells.str.contains(DIGITS_FIRST).sum()) >= NUMBERS_SHARE * some > 0:
            self.notes.remark(f"{cells.name} is taken as a category: its cells are not numbers {example}.")


def order_of(numerals: Numerals, notes: Notes, name: str) -> NDArray[np.int64]:
    """Return the order of rows by a column of dates or numbers, rows of the same moment as in the file."""
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
    return np.argsort(cells.to_physical().to_numpy(), kind="stable")
