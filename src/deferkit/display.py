"""Tables and numbers as people read them, in terminals and notebooks."""

import math
from collections.abc import Iterable, Sequence
from html import escape

Cells = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The head of a table, and its rows."""


def number(mean: float | None, digits: int, sd: float | None = None) -> str:
    """Return a mean, and the standard deviation over trials if it is given.

    >>> number(2.0, 1, 1.0), number(None, 1)
    ('2.0 ± 1.0', '–')
    """
    if mean is None or math.isnan(mean):
        return "–"
    text = short(mean, digits)
    return text if sd is None else f"{text} ± {short(sd, digits)}"


def short(value: float, digits: int) -> str:
    """Return a number that fits a column: millions and more in three digits, with a letter or a power of ten.

    >>> short(7_541_230.0, 0), short(1234.5, 1), short(3.2e51, 0), short(-0.01, 0)
    ('7.54M', '1,234.5', '3.2e+51', '0')
    """
    for letter, unit in (("", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{letter}" if letter else f"{value:.2g}"
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def text_table(cells: Cells, n_texts: int = 1) -> str:
    """Return a table as lines of text: the first `n_texts` columns flush left, numbers flush right.

    >>> print(text_table((["policy", "reward"], [["default", "12"], ["opt", "9"]])))
    policy   reward
    default      12
    opt           9
    """
    head, rows = cells
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = (
        "  ".join(f"{cell:{'<' if i < n_texts else '>'}{widths[i]}}" for i, cell in enumerate(row)).rstrip()
        for row in (head, *rows)
    )
    return "\n".join(lines)


def html_table(cells: Cells, n_texts: int = 1) -> str:
    """Return a table as HTML, with the look of the notebook that shows it.

    >>> html_table((["who"], [["<a>"]]))[-63:]
    '<td style="text-align:left">&lt;a&gt;</td></tr></tbody></table>'
    """
    head, rows = cells

    def row_of(row: Sequence[str], tag: str) -> str:
        sides = ("left" if i < n_texts else "right" for i in range(len(row)))
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for side, cell in zip(sides, row, strict=True)
        )

    body = "".join(f"<tr>{row_of(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{row_of(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def html_block(title: str, *parts: str, remarks: Iterable[str] = ()) -> str:
    """Return an object as HTML for a notebook: a title, parts that are HTML, and remarks that are text."""
    said = "".join(f"<p>{escape(each)}</p>" for each in remarks)
    return f'<div style="max-width:60em"><p><b>{escape(title)}</b></p>{"".join(parts)}{said}</div>'
