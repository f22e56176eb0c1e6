"""The real service, in a process of its own that does not outlive this one."""

import re
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

from deferkit.errors import DeferkitError

# The service stops when its input ends, so that it goes even if this process is killed.
SCRIPT = """
import os, signal, threading
def watch():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=watch, daemon=True).start()
from deferkit.cli import main
main()
"""
STOP_S = 15.0
LISTENS = re.compile(r"serves on (http://\S+),")


class ServiceProcess:
    """`deferkit serve` on a port of this machine; 0 takes a free one."""

    def __init__(self, store: str, log: Path, port: int = 0) -> None:
        self.log = log
        self.listens = False
        words = ["serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning", "--store", store]
        with log.open("wb") as errors:
            # a session of its own: Ctrl-C is for this process, which then stops the service in order
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def wait(self) -> str:
        """Return the URL as soon as the service listens."""
        if self.process.stdout is not None:
            for line in self.process.stdout:
                if found := LISTENS.search(line):
                    self.listens = True
                    return found[1]
        raise self.failure()

    def check(self) -> None:
        """Raise if the service is gone."""
        if self.process.poll() is not None:
            raise self.failure()

    def failure(self) -> DeferkitError:
        """Return an error with the exit code and last log lines of the service."""
        self.process.wait(STOP_S)
        said = " ".join(deque(self.log.read_text(errors="replace").splitlines(), maxlen=3))
        return DeferkitError(f"The service ended with code {self.process.returncode}. {said}".strip())

    def __enter__(self) -> "ServiceProcess":
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM if self.listens else signal.SIGKILL)  # it has done nothing yet
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
