"""How long work shows itself: what is done, how fast, how long it still takes."""

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from deferkit.cli.app import aside


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
