"""What the columns of a table mean: outcomes are numbers, contexts are numbers or categories."""

import difflib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.types import LARGEST
from deferkit.worlds.sheet import Sheet

Floats = NDArray[np.float64]

MOST_LEVELS = 20  # of a category; the others are "other"
NUMBERS_SHARE = 0.9  # of the cells of a context that must be numbers, for the others to count as missing
DECIMAL_COMMA = r"^[+-]?\d*,\d+$"
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"
TRUTHS = {"true": "1", "false": "0"}  # how other programs write the 1 and 0 of a reward
MOST_NAMED = 12  # columns that an error lists


class Contexts(NamedTuple):
    """The columns of contexts, for an encoder."""

    numbers: dict[str, Floats]  # NaN where one is missing
    categories: dict[str, list[str | None]]  # None where one is missing
    levels: dict[str, list[str]]  # of each category, the most frequent ones
    remarks: list[str]


def closest(name: str, names: Iterable[str]) -> str:
    """Return a question with the most similar of these names, or nothing.

    >>> closest("model_rewrad", ["model_reward", "cost"]), closest("size", ["cost"])
    (" Did you mean 'model_reward'?", '')
    """
    by_lower = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""


def listed(names: Sequence[str]) -> str:
    """Return names as a list that fits a sentence."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


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


def outcome(sheet: Sheet, name: str, *, optional: bool, cost: bool = False) -> Floats:
    """Return a column of rewards or costs, NaN where one is missing and may be; raise at the first cell that is bad."""
    cells = sheet.frame[name]
    if cells.dtype == pl.String and not cost:
        lower = cells.str.to_lowercase()
        cells = pl.select(pl.when(lower.is_in(list(TRUTHS))).then(lower.replace(TRUTHS)).otherwise(cells)).to_series()
    elif not (cells.dtype == pl.String or is_number(cells.dtype) or (cells.dtype == pl.Boolean and not cost)):
        raise InvalidArgument(f"The column {name!r} of {sheet.path} must hold numbers. It holds {cells.dtype}.")
    numbers = cells.cast(pl.Float64, strict=False)
    if numbers.null_count() > cells.null_count():
        raise not_a_number(sheet, name, cells, numbers)
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


def not_a_number(sheet: Sheet, name: str, cells: pl.Series, numbers: pl.Series) -> InvalidArgument:
    """Return the error for the first cell that is not a number."""
    at = int((cells.is_not_null() & numbers.is_null()).arg_max() or 0)
    said = f"The {name} in row {sheet.rows[at]} of {sheet.path} is {cells[at]!r}, which is not a number."
    if re.match(THOUSANDS, cells[at]):
        said += " Thousands need no comma."
    elif re.match(DECIMAL_COMMA, cells[at]):
        said += " Decimals need a point, not a comma."
    elif str(cells[at]).lower() in ("yes", "no", "right", "wrong", "correct", "incorrect", "y", "n"):
        said += " A reward is a number: 1 or 0, or true or false."
    return InvalidArgument(said)


def contexts(sheet: Sheet, names: Sequence[str]) -> Contexts:
    """Return context columns: a number if (nearly) all of its cells are numbers, else a category.

    Of a column that is nearly all numbers the other cells count as missing, and that is remarked on.
    """
    found = Contexts({}, {}, {}, [])
    for name in names:
        cells = sheet.frame[name]
        kind = cells.dtype
        if is_number(kind) or (kind == pl.String and nearly_numbers(sheet, cells, found.remarks)):
            column = cells.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().astype(np.float64)
            wrong = np.abs(column) > LARGEST
            if wrong.any():
                at = int(wrong.argmax())
                raise InvalidArgument(
                    f"The {name} in row {sheet.rows[at]} of {sheet.path} is infinite or too large ({cells[at]})."
                )
            found.numbers[name] = column
        elif kind in (pl.String, pl.Boolean, pl.Categorical, pl.Enum) or kind == pl.Null:
            texts = cells.cast(pl.String)
            counts = texts.drop_nulls().value_counts(sort=True).sort("count", name, descending=[True, False])
            found.categories[name] = texts.to_list()
            found.levels[name] = counts[name][:MOST_LEVELS].to_list()
            if counts.height > MOST_LEVELS:
                found.remarks.append(
                    f"{name} has {counts.height:,} levels; all but the {MOST_LEVELS} most frequent are 'other'."
                )
        else:
            raise InvalidArgument(f"The column {name!r} of {sheet.path} is {kind}; a context is a number or a text.")
    return found


def nearly_numbers(sheet: Sheet, cells: pl.Series, remarks: list[str]) -> bool:
    """Whether a column of texts is one of numbers; say so if that is not clear."""
    numbers = cells.cast(pl.Float64, strict=False)
    some = len(cells) - cells.null_count()
    wrong = numbers.null_count() - cells.null_count()
    if wrong == 0:
        return True
    if cells.str.contains(DECIMAL_COMMA).sum() == wrong:
        raise not_a_number(sheet, cells.name, cells, numbers)
    if wrong == some:
        return False
    at = int((cells.is_not_null() & numbers.is_null()).arg_max() or 0)
    example = f"{cells[at]!r} in row {sheet.rows[at]}"
    if some - wrong < NUMBERS_SHARE * some:
        remarks.append(f"{cells.name} is taken as a category: some of it is numbers, some is not ({example}).")
        return False
    cells_are = "1 cell is" if wrong == 1 else f"{wrong:,} cells are"
    remarks.append(f"{cells_are} not a number in {cells.name} ({example}) and counted as missing.")
    return True
