"""`deferkit serve` in a process of its own, as a user starts it."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from deferkit import Client
from tests.command_line import SCRIPT

PATIENCE_S = 120  # a machine may be busy


class Started:
    """A service on a file; it can be killed and started again on the same port."""

    def __init__(self, store: Path, *words: str) -> None:
        self.store = store
        self.words = words
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start, and wait until it listens."""
        command = [sys.executable, "-c", SCRIPT, "serve", "--store", str(self.store), "--port", str(self.port)]
        with self.store.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen([*command, *self.words], stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"on (http://[0-9.]+:(\d+)),", line)
        assert found, f"{line!r}\n{self.store.with_suffix('.log').read_text()}"
        self.url, self.port = found[1], int(found[2])

    def client(self, policy: str, **given: object) -> Client:
        """Return a client that does not give up easily."""
        return Client(self.url, policy=policy, **{"total_s": PATIENCE_S, **given})  # type: ignore[arg-type]

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> "Started":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGKILL)


def left_over(word: str) -> list[str]:
    """Return the processes whose command line has a word; waits a little for those that are about to end."""
    for _ in range(100):
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in line:
                found.append(line)
        if not found:
            break
        time.sleep(0.1)
    return found
