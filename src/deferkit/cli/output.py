"""Progress and tables in the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from deferkit.cli.app import aside, console


class RateColumn(ProgressColumn):
    """Shows how many are done in a second."""

    def render(self, task: Task) -> Text:
        """Return the rate as text."""
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


def bar() -> Progress:
    """Return a progress bar with rate and time left; it shows itself on a terminal only."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=aside,
        transient=True,
        disable=not aside.is_terminal,
    )


WIDEST = 1000


def plain_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return an empty table: columns of text, then columns of numbers."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def show_whole(table: Table) -> None:
    """Print a table with all its numbers, also where a line is too short for them."""
    natural = console.measure(table, options=console.options.update(width=WIDEST)).maximum
    (console if natural <= console.width else Console(width=natural)).print(table)
