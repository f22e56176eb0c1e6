"""Notes on how a table was read: each kind of conversion is told once, with its columns and an example."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_NAMED = 12  # columns that a sentence lists


def listed(names: Sequence[str]) -> str:
    """Return names as a list that fits a sentence.

    >>> listed(["a", "b"]), listed([str(i) for i in range(14)])[-13:]
    ('a, b', '11 and 2 more')
    """
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


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
            f"{listed(found.columns)}: {kind} ({found.cell!r} is {found.value})."
            for kind, found in self._conversions.items()
        ]
        return converted + self._remarks
