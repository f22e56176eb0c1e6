"""The command line, as a user runs it in a process of its own, or within this one, which is faster."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deferkit.cli import main

SCRIPT = "from deferkit.cli import main; main()"


def deferkit(
    *words: str, cwd: Path | None = None, timeout_s: float = 300, setup: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a process of its own, after some statements of Python."""
    return subprocess.run(
        [sys.executable, "-c", f"{setup}; {SCRIPT}", *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80"},
    )


class Said(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    error: str


Runner = Callable[..., Said]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Runner]:
    """Runs commands in this process."""
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["deferkit", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        code = left.value.code
        return Said(code if isinstance(code, int) else 0, *capfd.readouterr())

    yield run
    signal.signal(signal.SIGTERM, before)
