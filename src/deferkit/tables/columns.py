"""Columns of a table: their roles, identifiers and contexts."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, closest
from deferkit.learn.encode import Encoder
from deferkit.tables.cells import KINDS, NUMBERS_SHARE, Dates, Notes, Numerals, join_first_names
from deferkit.tables.sheet import Sheet
from deferkit.types import LARGEST

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
                f" Its columns: {join_first_names(names)}. Another one is named with {option}."
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
                f" Its columns: {join_first_names(names)}. Name them with --context,"
                " as in --context 'age,country' or '*'."
            )
        chosen |= found
    return [name for name in names if name in chosen]


def find_named(sheet: Sheet, context: str) -> set[str]:
    """Return the columns that a list of names and globs calls by their names."""
    return set(sheet.frame.columns) & {context, *(part.strip() for part in context.split(","))}


def outcome(numerals: Numerals, notes: Notes, name: str, *, optional: bool, cost: bool = False) -> Floats:
    """Return a column of rewards or costs, NaN where one is missing and may be; raise at the first cell that is bad."""
    sheet = numerals.sheet
    cells = sheet.frame[name]
    if cells.dtype == pl.String:
        texts = cells if cost else without_truths(cells, notes)
        found = numerals.parse_column(texts)
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
        numbers, dates = numerals.parse_column(cells), Dates.of(cells)
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


MIN_ROWS = 20  # rows; in fewer ones any column may have values that all differ
DISTINCT = 0.95  # share of values that differ, from which on texts are names
DENSE = 1.1  # a range of at most so many whole numbers for each row is counted through
NAMED = re.compile(r"(^|[^a-zA-Z])(?i:id|uuid|guid)$|[a-z](Id|ID|UUID)$")  # customer_id, customerId


def are_names(texts: pl.Series) -> bool:
    """Whether nearly all texts of a column differ.

    >>> are_names(pl.Series([f"task {i}" for i in range(30)])), are_names(pl.Series(["a", "b"] * 15))
    (True, False)
    """
    some = texts.drop_nulls()
    return len(some) >= MIN_ROWS and some.n_unique() >= DISTINCT * len(some)


def are_prose(texts: pl.Series) -> bool:
    """Whether nearly all texts of a column differ, and have some words each.

    >>> are_prose(pl.Series([f"the parcel {i} never came" for i in range(30)])), are_prose(pl.Series(["a b c d"] * 30))
    (True, False)
    """
    words = texts.drop_nulls().str.count_matches(r"\p{L}+").mean()
    return are_names(texts) and isinstance(words, float) and words >= WORDS


def are_numbers_of_rows(name: str, column: NDArray[np.float64]) -> bool:
    """Whether a column of numbers counts rows, or is named as an id and has values that nearly all differ.

    >>> are_numbers_of_rows("x_n", np.arange(100.0, 130.0)), are_numbers_of_rows("x_size", np.arange(30.0) ** 2)
    (True, False)
    >>> are_numbers_of_rows("x_customer_id", np.arange(30.0) ** 2)
    True
    """
    some = column[~np.isnan(column)]
    if len(some) < MIN_ROWS or (some % 1 != 0).any():
        return False
    distinct = len(np.unique(some))
    if distinct == len(column) and np.ptp(some) + 1 <= DENSE * len(column):
        return True
    return bool(NAMED.search(name)) and distinct >= DISTINCT * len(some)


WORDS = 4  # of a cell on average, from which on different texts are prose and not names
MAX_LEVELS = 20  # of a category; the others are "other"
DATE_LIKE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d"
DIGITS_FIRST = r"^\P{L}*\d"  # a text that is nearly a number, such as "12 min"


class ContextColumns(NamedTuple):
    """The columns of contexts, for an encoder."""

    numbers: dict[str, Floats]  # NaN where one is missing
    categories: dict[str, list[str | None]]  # None where one is missing
    levels: dict[str, list[str]]  # of each category, the most frequent ones
    texts: dict[str, list[str | None]]  # None where one is missing

    @property
    def by_name(self) -> dict[str, Any]:
        """All columns by name."""
        return {**self.numbers, **self.categories, **self.texts}

    def encoder(self) -> Encoder:
        """Return an encoder for these columns, whose scales are not settled yet."""
        return Encoder(numbers=list(self.numbers), categories=self.levels, texts=list(self.texts))


class ContextReader:
    """Reads context columns: each is a number, a date or a category, or left out because it only names the task.

    With another table to be `like`, that one says which columns are kept, and what each of them is.
    """

    def __init__(self, numerals: Numerals, notes: Notes, like: "ContextReader | None" = None) -> None:
        self.numerals = numerals
        self.sheet = numerals.sheet
        self.notes = notes
        self.like = like
        self.found: ContextColumns = ContextColumns({}, {}, {} if like is None else dict(like.found.levels), {})
        self.kinds: dict[str, str] = {}  # of the columns that are kept: "numbers", "dates" or "texts"
        self.dates: dict[str, Dates] = {}

    def read_columns(self, names: Sequence[str], keep: set[str]) -> ContextColumns:
        """Return context columns; those in `keep` are not left out, whatever they look like.

        A column is one of numbers (or dates) if nearly all of its cells are: the others count as missing.
        """
        if self.like is not None:
            names = self._names_of(self.like, names)
            keep = set(names)
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
        if not self.found.by_name:
            raise InvalidArgument(
                f"All context columns of {self.sheet.path} look like ids ({join_first_names(names)}),"
                " and nothing is to be learned from those. A column that is not an id is kept if --context names it."
            )
        if self.like is not None:
            self._check_kinds(self.like)
        return self.found

    def _names_of(self, like: "ContextReader", names: Sequence[str]) -> list[str]:
        """Return the columns that the other table keeps; raise if only one of the two has a column."""
        ours, theirs = self.sheet.path, like.sheet.path
        for name in like.kinds:
            if name not in names:
                raise InvalidArgument(f"{ours} has no column {name!r}, which is part of the context in {theirs}.")
        for name in names:
            if name not in like.sheet.frame.columns:
                raise InvalidArgument(f"{theirs} has no column {name!r}, which is part of the context in {ours}.")
        return list(like.kinds)

    def _check_kinds(self, like: "ContextReader") -> None:
        for name, kind in like.kinds.items():
            if self.kinds[name] != kind:
                raise InvalidArgument(
                    f"The column {name!r} holds {kind} in {like.sheet.path}, but {self.kinds[name]} in"
                    f" {self.sheet.path}: it must be the same in both."
                )

    def _is_category_there(self, name: str) -> bool:
        return self.like is not None and self.like.kinds[name] == "texts"

    def _text(self, cells: pl.Series, keep: set[str]) -> None:
        found = self.numerals.parse_column(cells)
        some = len(cells) - cells.null_count()
        if self._is_category_there(cells.name):
            self._category(cells.name, cells)
        elif found.wrong == 0 or some - found.wrong >= NUMBERS_SHARE * some:
            found.note(cells, self.notes)
            self._note_wrong(cells, found.values, found.wrong, "number")
            self._number(cells, found.values, keep)
        # most texts are no dates, and one look at them is cheaper than three readings
        elif (
            int(cells.str.contains(DATE_LIKE).sum()) >= NUMBERS_SHARE * some
            and some - (dates := Dates.of(cells)).wrong >= NUMBERS_SHARE * some
        ):
            self._note_wrong(cells, dates.moments, dates.wrong, "date")
            self._date(cells, dates)
        elif are_prose(cells) if self.like is None else self.like.kinds[cells.name] == "prose":
            self.kinds[cells.name], self.found.texts[cells.name] = "prose", cells.to_list()
            self.notes.remark(f"{cells.name} is read as text: its words are hashed.")
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
            self.kinds[cells.name] = "numbers"

    def _date(self, cells: pl.Series, dates: Dates) -> None:
        numbers, categories = dates.features(cells.name, None if self.like is None else self.like.dates.get(cells.name))
        self.dates[cells.name] = dates
        self.found.numbers.update(numbers)
        for name, texts in categories.items():
            self._levels(name, pl.Series(name, texts, dtype=pl.String))
        self.kinds[cells.name] = "dates"
        hour, weekday = (", hour of day" if len(numbers) > 1 else ""), (", day of week" if categories else "")
        form = f" ({dates.form}, as in {cells.drop_nulls()[0]!r})" if dates.form else ""
        self.notes.remark(f"{cells.name} is read as dates{form}: days since the first one{weekday}{hour}.")

    def _category(self, name: str, texts: pl.Series) -> None:
        self.kinds[name] = "texts"
        self._levels(name, texts)

    def _levels(self, name: str, texts: pl.Series) -> None:
        if self.like is not None and name in self.found.levels:
            self.found.categories[name] = texts.to_list()
            known = self.found.levels[name]
            unknown = int((~texts.drop_nulls().is_in(known)).sum())
            if unknown and len(known) < MAX_LEVELS:
                self.notes.remark(
                    f"{unknown:,} cells of {name} in {self.sheet.path} have a level that is not in"
                    f" {self.like.sheet.path}: they are 'other'."
                )
            return
        counts = texts.drop_nulls().value_counts(sort=True).sort("count", name, descending=[True, False])
        self.found.categories[name] = texts.to_list()
        self.found.levels[name] = counts[name][:MAX_LEVELS].to_list()
        if counts.height > MAX_LEVELS:
            self.notes.remark(
                f"{name} has {counts.height:,} levels; all but the {MAX_LEVELS} most frequent are 'other'."
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
