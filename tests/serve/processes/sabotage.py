"""What may be done to a service before it starts: a wrong clock, a death at a given statement."""

import os
import signal
import time
from typing import Any

import apsw
import psycopg

from deferkit.serve.storage.postgres import Postgres


def clock(seconds: float) -> None:
    """Let the clocks of the machine and of the server be wrong by this much."""
    right, right_ns, server = time.time, time.time_ns, Postgres.now
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)
    Postgres.now = lambda database: server(database) + int(seconds * 1e6)  # type: ignore[assignment,method-assign]


def death(statement: int) -> None:
    """Die, as by kill -9, right before the process's n-th statement of SQL."""
    left = statement

    def count(*_: Any) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def watch(connection: apsw.Connection) -> None:
        connection.exec_trace = count

    apsw.connection_hooks.append(watch)
    for name in ("execute", "executemany"):
        before = getattr(psycopg.Cursor, name)
        setattr(psycopg.Cursor, name, lambda *given, before=before, **named: count() and before(*given, **named))
