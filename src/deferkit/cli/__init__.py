"""The command line."""

import sys

from deferkit.cli import reproduce, run, warm
from deferkit.cli.app import INTERRUPTED, app, aside
from deferkit.errors import DeferkitError

__all__ = ["app", "main", "reproduce", "run", "warm"]


def main() -> None:
    """Run the command line; a mistake of the user's gives one line, not a traceback."""
    try:
        app()
    except DeferkitError as error:
        aside.print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
