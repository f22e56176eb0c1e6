"""The command line; all but `main` needs typer and rich."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from deferkit.errors import DeferkitError, MissingExtra
from deferkit.extras import needs

__all__ = ["main"]

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130  # exit codes; the first if only some policies failed


def main() -> None:
    """Run the command line; a mistake of the user's gives one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ± shall still show the numbers
    signal.signal(signal.SIGTERM, handle_signal)
    try:
        with interrupt_ends_process():
            needs("cli")
    except MissingExtra as error:
        print("error:", error, file=sys.stderr)
        sys.exit(MISTAKE)
    try:
        with interrupt_ends_process():
            app = application(sys.argv[1:])
        app()
    except (DeferkitError, OSError) as error:
        fail(str(error))
    except MemoryError:
        fail("There is not enough memory for that many tasks.")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def application(words: Sequence[str]) -> Callable[[], None]:
    """Return the command line with the command that is named first, or with all where none is.

    A service need not load what studies are made with.
    """
    from deferkit.cli.app import COMMANDS, add_command, add_commands, app  # noqa: PLC0415 - needs the extra

    if not words or words[0] not in COMMANDS:
        return add_commands()
    add_command(words[0])
    return app


@contextmanager
def interrupt_ends_process() -> Iterator[None]:
    """End the process at once on Ctrl-C: raised in the middle of an import, the exception may be lost or printed."""
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def fail(sentence: str) -> None:
    """Print an error in one line, and exit."""
    from deferkit.cli.app import aside  # noqa: PLC0415 - needs the extra

    aside.print("error:", style="red", end=" ")
    aside.print(sentence, markup=False, soft_wrap=True)
    sys.exit(MISTAKE)


def handle_signal(number: int, _: FrameType | None) -> None:
    """Leave in order when the process is told to, so that its workers leave too."""
    sys.exit(128 + number)
