"""The context columns of a table: numbers, dates or categories, as they stand or as in another table."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.types import LARGEST
from deferkit.worlds.columns import first_wrong, is_number
from deferkit.worlds.dates import KINDS, Dates
from deferkit.worlds.identifiers import are_names, are_numbers_of_rows
from deferkit.worlds.notes import Notes, listed
from deferkit.worlds.numerals import NUMBERS_SHARE, Numerals

Floats = NDArray[np.float64]

MOST_LEVELS = 20  # of a category; the others are "other"
DATE_LIKE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d"
DIGITS_FIRST = r"^\P{L}*\d"  # a text that is nearly a number, such as "12 min"


class ContextColumns(NamedTuple):
    """The columns of contexts, for an encoder."""

    numbers: dict[str, Floats]  # NaN where one is missing
    categories: dict[str, list[str | None]]  # None where one is missing
    levels: dict[str, list[str]]  # of each category, the most frequent ones


class ContextReader:
    """Reads context columns: each is a number, a date or a category, or left out because it only names the task.

    With another table to be `like`, that one says which columns are kept, and what each of them is.
    """

    def __init__(self, numerals: Numerals, notes: Notes, like: "ContextReader | None" = None) -> None:
        self.numerals = numerals
        self.sheet = numerals.sheet
        self.notes = notes
        self.like = like
        self.found: ContextColumns = ContextColumns({}, {}, {} if like is None else dict(like.found.levels))
        self.kinds: dict[str, str] = {}  # of the columns that are kept: "numbers", "dates" or "texts"
        self.dates: dict[str, Dates] = {}

    def read(self, names: Sequence[str], keep: set[str]) -> ContextColumns:
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
        if not (self.found.numbers or self.found.categories):
            raise InvalidArgument(
                f"All context columns of {self.sheet.path} look like ids ({listed(names)}), and nothing is to be"
                " learned from those. One that is none is kept if --context names it."
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
        found = self.numerals.read(cells)
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
            if unknown and len(known) < MOST_LEVELS:
                self.notes.remark(
                    f"{unknown:,} cells of {name} in {self.sheet.path} have a level that is not in"
                    f" {self.like.sheet.path}: they are 'other'."
                )
            return
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
