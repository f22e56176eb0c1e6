"""The command line."""

import io
import signal
import sys
from types import FrameType

from deferkit.cli import demo, keys, plan, replay, reproduce, run, serve, warm
from deferkit.cli.app import INTERRUPTED, app, aside
from deferkit.errors import DeferkitError

__all__ = ["app", "demo", "keys", "main", "plan", "replay", "reproduce", "run", "serve", "warm"]


def main() -> None:
    """Run the command line; a mistake of the user's gives one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ± shall still show the numbers
    signal.signal(signal.SIGTERM, terminated)
    try:
        app()
    except (DeferkitError, OSError) as error:
        fail(str(error))
    except MemoryError:
        fail("There is not enough memory for that many tasks.")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def fail(sentence: str) -> None:
    """Say what is wrong in one line, and leave."""
    aside.print("error:", style="red", end=" ")
    aside.print(sentence, markup=False, highlight=False, soft_wrap=True)
    sys.exit(2)


def terminated(number: int, _: FrameType | None) -> None:
    """Leave in order when the process is told to, so that its workers leave too."""
    sys.exit(128 + number)
