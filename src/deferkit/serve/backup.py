"""Backup and restore of SQLite stores. A copy is verified before it is kept: every policy is rebuilt from its log."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from deferkit.errors import DeferkitError, InvalidArgument
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.storage.open_store import check_is_store, database_of, redact_store, store_to_replay
from deferkit.serve.storage.sqlite import Sqlite

SIDE_FILES = ("-wal", "-shm", "-journal")

Progress = Callable[[str, int, int], None]
"""Called with the name of the step, how much of it is done, and the total."""


class DamagedCopy(DeferkitError):
    """A copy failed its verification, and was deleted."""

    def __init__(self, source: str, faults: list[str]) -> None:
        super().__init__(f"{source} is damaged; nothing was written. {' '.join(faults)}")
        self.faults = faults


def no_progress(_what: str, _done: int, _all: int) -> None:
    """Report no progress."""


def backup(store: str, file: str, *, force: bool = False, progress: Progress = no_progress) -> int:
    """Copy a consistent snapshot of a store to a file; a service may be running on the store.

    The file has mode 0600, and appears only after every policy in it was rebuilt from its log. It has no ownership
    leases, so that it can be served at once.

    Args:
        store: The file of a store (SQLite).
        file: Where to put the copy.
        force: Replace `file` if it is there.
        progress: Called with what is done ("pages", "rows"), how much, and of how much.

    Returns:
        The number of policies that were rebuilt.

    Raises:
        InvalidArgument: The store is not a file, or there is something at `file` already.
        DamagedCopy: A policy is not what its log says.
        DeferkitError: The copy cannot be written, as on a full disk; nothing is left of it.
    """
    source, target = sqlite_of(store), sqlite_of(file)
    check_is_store(source)
    check_target(source, target, force=force)
    destination = Path(target.path)
    partial = side_file(destination, f".partial-{secrets.token_hex(4)}")
    try:
        source.copy_to(str(partial), lambda done, all_: progress("pages", done, all_))
        n_policies = verify(str(partial), source.path, progress)
        move_into_place(partial, destination, force=force)
        return n_policies
    except OSError as error:
        raise DeferkitError(f"{target.path} cannot be written: {error.strerror or error}.") from error
    finally:
        source.close()
        for each in ("", *SIDE_FILES):
            side_file(partial, each).unlink(missing_ok=True)


def restore(file: str, store: str, *, force: bool = False, progress: Progress = no_progress) -> int:
    """Replace a store that no service is running on by a backup; otherwise as `backup`.

    Raises:
        DeferkitError: A service is running on the store.
    """
    target = sqlite_of(store)
    if not force:
        return backup(file, store, progress=progress)
    if Path(target.path).is_file():
        target.occupy()  # the serving lock: no service can start on it until it is replaced
    try:
        return backup(file, store, force=True, progress=progress)
    finally:
        target.close()


def sqlite_of(store: str) -> Sqlite:
    """Return the database in a file; raise if it is on a server."""
    database = database_of(store)
    if not isinstance(database, Sqlite):
        raise InvalidArgument(
            f"{redact_store(store)} is on PostgreSQL: use pg_dump and pg_restore, then `deferkit replay` to check it."
        )
    return database


def check_target(source: Sqlite, target: Sqlite, *, force: bool) -> None:
    """Raise if a copy cannot be written to the target."""
    path = Path(target.path)
    if path.is_dir():
        raise InvalidArgument(f"{path} is a folder; the name of a file is needed.")
    if not path.parent.is_dir():
        raise InvalidArgument(f"There is no folder {path.parent}.")
    if path.exists() and path.samefile(source.path):
        raise InvalidArgument(f"{path} is the store itself.")
    if (path.exists() or side_file(path, "-wal").exists()) and not force:
        raise InvalidArgument(f"There is a file {path} already; --force replaces it.")


def verify(path: str, name: str, progress: Progress) -> int:
    """Rebuild every policy of a copy from its log, and return their number; raise if one differs from it."""
    faults: list[str] = []
    try:
        with store_to_replay(path) as kept:
            rows = kept.policies()
            total, done = sum(row.seq for row in rows), 0

            def count(more: int) -> None:
                nonlocal done
                done = min(total, done + more)
                progress("rows", done, total)

            for row in rows:
                faults += replay(kept, row.tenant, row.name, progress=count).faults
    except StoreFailed as error:
        raise DamagedCopy(name, [str(error)]) from error
    if faults:
        raise DamagedCopy(name, faults)
    return len(rows)


def move_into_place(partial: Path, path: Path, *, force: bool) -> None:
    """Fsync a verified copy, and rename it to its final path."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    if force:
        for each in SIDE_FILES:  # SQLite would apply the old file's write-ahead log to the new file
            side_file(path, each).unlink(missing_ok=True)
        partial.replace(path)
    else:
        path.hardlink_to(partial)  # atomic, and fails if the file exists by now
        partial.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def side_file(path: Path, ending: str) -> Path:
    """Return the path of an auxiliary file of SQLite: the path with an ending."""
    return path.with_name(path.name + ending)
