"""A process that has everything loaded, and forks services: a start takes a fraction of a second, not seconds.

What it forks are real processes, each a group of its own, that run the command line. It reads orders, a line of JSON
each, and answers with a line. When its input ends, so do all that it has started.
"""

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

from deferkit import cli
from deferkit.serve.http import server
from tests.serve.processes import sabotage

assert server  # loaded here, once, for all
DIE_WITH_PARENT = 1
ALONE = "from deferkit.cli import main; main()"


def fork(order: dict[str, Any]) -> int:
    """Start a service; return its id."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child does it too: whoever comes first
            os.setpgid(pid, pid)
        return pid
    try:
        become(order)
    finally:
        os._exit(70)


def become(order: dict[str, Any]) -> NoReturn:
    """Be the service that was ordered."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    with contextlib.suppress(AttributeError):  # Linux can see to it that nothing outlives the nursery
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.register(signal.SIGUSR1)  # says where a service is that does not get on
    arguments = order["arguments"]
    if order["alone"]:
        os.execv(sys.executable, [sys.executable, "-c", ALONE, *arguments])
    for name, given in order["first"].items():
        getattr(sabotage, name)(given)
    sys.argv = ["deferkit", *arguments]
    code = 0
    try:
        cli.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait(pid: int, seconds: float) -> int | None:
    """Return the exit code of a process, negative if a signal ended it; None if it goes on."""
    until = time.monotonic() + seconds
    parent = os.getppid()
    while os.getppid() == parent:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.005)
    raise SystemExit("The tests have ended.")


def main() -> None:
    """Take orders until there are no more."""
    alive: set[int] = set()
    try:
        gc.freeze()  # or a service would copy all of this memory when it first looks for cycles
        print(json.dumps("ready"), flush=True)
        for line in iter(sys.stdin.buffer.readline, b""):
            print(json.dumps(obey(json.loads(line), alive)), flush=True)
    finally:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def obey(order: dict[str, Any], alive: set[int]) -> int | None:
    """Start a service and return its id, or wait for one and return its exit code."""
    if "wait" not in order:
        pid = fork(order)
        alive.add(pid)
        return pid
    code = wait(order["wait"], order["seconds"])
    if code is not None:
        alive.discard(order["wait"])
    return code


if __name__ == "__main__":
    main()
