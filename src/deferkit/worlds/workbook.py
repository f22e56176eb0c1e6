"""The first sheet of an Excel workbook (.xlsx)."""

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from deferkit.errors import InvalidArgument
from deferkit.extras import needs


class Workbook(NamedTuple):
    """The columns of the first sheet of a workbook."""

    names: list[str]
    columns: list[pl.Series]
    first: int  # the number of the row below the header
    remark: str


def read_xlsx(path: str) -> Workbook:
    """Return the columns of the first sheet; empty rows above the header and empty columns are passed over.

    A column whose cells are all numbers, all true or false or all dates keeps its kind; every other one is of texts.
    """
    needs("xlsx")
    import python_calamine  # noqa: PLC0415 - an extra

    try:
        with python_calamine.load_workbook(path) as book:
            names = book.sheet_names
            rows: list[list[Any]] = book.get_sheet_by_index(0).to_python(skip_empty_area=False)
    except (OSError, python_calamine.CalamineError) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        raise InvalidArgument(f"{path} cannot be read as an Excel workbook: {said}.") from error
    head = next((i for i, row in enumerate(rows) if not is_blank(row)), len(rows))
    if head == len(rows):
        raise InvalidArgument(f"{path} is empty: its first sheet, {names[0]!r}, has no cells.")
    columns = list(zip(*rows[head:], strict=True))
    kept = [column for column in columns if not is_blank(column)]
    titles = [text_of(column[0]) or "" for column in kept]
    series = [series_of(column[1:]) for column in kept]
    more = f"{path} has {len(names)} sheets; the first, {names[0]!r}, is read." if len(names) > 1 else ""
    return Workbook(titles, series, head + 2, more)


def is_blank(cells: Sequence[Any]) -> bool:
    """Whether there is nothing in any of these cells."""
    return all(cell == "" for cell in cells)


def series_of(cells: Sequence[Any]) -> pl.Series:
    """Return a column of cells as numbers, truths, dates or texts.

    >>> series_of([1.0, ""]).to_list(), series_of([1.0, "x", True]).to_list()
    ([1.0, None], ['1', 'x', 'true'])
    """
    there = [cell for cell in cells if cell != ""]
    if there and all(isinstance(cell, bool) for cell in there):
        return pl.Series([None if cell == "" else cell for cell in cells], dtype=pl.Boolean)
    if there and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in there):
        return pl.Series([None if cell == "" else float(cell) for cell in cells], dtype=pl.Float64)
    if there and all(isinstance(cell, datetime.date) for cell in there):  # a datetime is one too
        return pl.Series([None if cell == "" else moment_of(cell) for cell in cells], dtype=pl.Datetime("us"))
    return pl.Series([text_of(cell) for cell in cells], dtype=pl.String)


def moment_of(cell: datetime.date) -> datetime.datetime:
    """Return a date as midnight, and a moment as it is."""
    return cell if isinstance(cell, datetime.datetime) else datetime.datetime.combine(cell, datetime.time())


def text_of(cell: Any) -> str | None:
    """Return a cell as a text, as a spreadsheet would export it; None if there is nothing in it.

    >>> text_of(3.0), text_of(0.25), text_of(True), text_of(" a "), text_of("")
    ('3', '0.25', 'true', 'a', None)
    """
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip() or None
