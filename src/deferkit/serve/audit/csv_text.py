"""CSV for spreadsheets: cells that a spreadsheet would take for a formula are made text."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from deferkit.serve.domain.money import MICRO

Cell = str | int | float | Decimal | None
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
ROWS = 500  # in one piece


def cell(value: Cell) -> Cell:
    """Return a value as a cell; a text that begins like a formula gets an apostrophe before it, a number none.

    >>> cell("=1+1"), cell("-5"), cell(-5), cell("5 - 3")
    ("'=1+1", "'-5", -5, '5 - 3')
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def pieces(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    r"""Yield a table as CSV, in pieces.

    Parameters
    ----------
    header
        Names of the columns.
    rows
        Cells in the order of the columns; None is empty.

    >>> list(pieces(["a", "b"], [["=x", -1.5], ["y, z", None]]))
    [b"a,b\r\n'=x,-1.5\r\n", b'"y, z",\r\n']
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    for number, row in enumerate(rows):
        writer.writerow([cell(value) for value in row])
        if number % ROWS == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    if rest := text.getvalue():
        yield rest.encode()


def time_of(micros: int) -> str:
    """Return a time as text.

    >>> time_of(1_700_000_000_250_000)
    '2023-11-14T22:13:20.250000Z'
    """
    return f"{datetime.fromtimestamp(micros / MICRO, UTC):%Y-%m-%dT%H:%M:%S}.{micros % MICRO:06}Z"


def amount_of(micro: int | None) -> Decimal | None:
    """Return micro-units as a number that is written exactly; None as None.

    >>> str(amount_of(1_500_000)), str(amount_of(-9_007_199_254_740_993))
    ('1.500000', '-9007199254.740993')
    """
    return None if micro is None else Decimal(micro).scaleb(-6)
