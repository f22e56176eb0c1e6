"""The command `deferkit`. It stands outside the package, so that Ctrl-C is quiet before the package is imported."""

import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C ends the process at once while `deferkit` is imported."""
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from deferkit.cli import main as run_command_line  # noqa: PLC0415 - only now that Ctrl-C gives no traceback

    signal.signal(signal.SIGINT, before)
    run_command_line()
