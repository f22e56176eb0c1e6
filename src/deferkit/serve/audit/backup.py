"""Copies of a store that are known to be good: every policy in them was rebuilt from its log before they are kept."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from deferkit.errors import DeferkitError, InvalidArgument
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.storage.open_store import check_ours, database_of, shown, store_to_replay
from deferkit.serve.storage.sqlite import Sqlite

SIDE_FILES = ("-wal", "-shm", "-journal")

Progress = Callable[[str, int, int], None]
"""Hears what is done, how much of it, and of how much."""


class DamagedCopy(DeferkitError):
    """A copy is not what its logs say, and was not kept."""

    def __init__(self, source: str, faults: list[str]) -> None:
        super().__init__(f"{source} is damaged; nothing was written. {' '.join(faults)}")
        self.faults = faults


def nothing(_what: str, _done: int, _all: int) -> None:
    """Show no progress."""


def backup(store: str, file: str, *, force: bool = False, progress: Progress = nothing) -> int:
    """Copy a store to a file, as it is at one moment; a service may be running on it.

    The file is private (0600), and is there only after every policy in it was rebuilt from its log. Nobody owns the
    policies in it, so that it can be served at once.

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
    check_ours(source)
    check_target(source, target, force=force)
    place = Path(target.path)
    partial = beside(place, f".partial-{secrets.token_hex(4)}")
    try:
        source.copy_to(str(partial), lambda done, all_: progress("pages", done, all_))
        n_policies = verify(str(partial), source.path, progress)
        put_in_place(partial, place, force=force)
        return n_policies
    except OSError as error:
        raise DeferkitError(f"{target.path} cannot be written: {error.strerror or error}.") from error
    finally:
        source.close()
        for each in ("", *SIDE_FILES):
            beside(partial, each).unlink(missing_ok=True)


def restore(file: str, store: str, *, force: bool = False, progress: Progress = nothing) -> int:
    """Put a backup in the place of a store that nobody serves; otherwise as `backup`.

    Raises:
        DeferkitError: A service is running on the store.
    """
    target = sqlite_of(store)
    if not force:
        return backup(file, store, progress=progress)
    if Path(target.path).is_file():
        target.occupy()  # nobody serves from it until it is replaced
    try:
        return backup(file, store, force=True, progress=progress)
    finally:
        target.close()


def sqlite_of(store: str) -> Sqlite:
    """Return the database in a file; raise if it is on a server."""
    database = database_of(store)
    if not isinstance(database, Sqlite):
        raise InvalidArgument(
            f"{shown(store)} is on PostgreSQL: use pg_dump and pg_restore, then `deferkit replay` to check it."
        )
    return database


def check_target(source: Sqlite, target: Sqlite, *, force: bool) -> None:
    """Raise if a copy cannot be put there."""
    path = Path(target.path)
    if path.is_dir():
        raise InvalidArgument(f"{path} is a folder; the name of a file is needed.")
    if not path.parent.is_dir():
        raise InvalidArgument(f"There is no folder {path.parent}.")
    if path.exists() and path.samefile(source.path):
        raise InvalidArgument(f"{path} is the store itself.")
    if (path.exists() or beside(path, "-wal").exists()) and not force:
        raise InvalidArgument(f"There is a file {path} already; --force replaces it.")


def verify(path: str, name: str, progress: Progress) -> int:
    """Rebuild every policy of a copy from its log; raise if one of them is not what that says."""
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


def put_in_place(partial: Path, path: Path, *, force: bool) -> None:
    """Give a copy its name, once it is on the disk."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    if force:
        for each in SIDE_FILES:  # of the file that is replaced: SQLite would read them into the new one
            beside(path, each).unlink(missing_ok=True)
        partial.replace(path)
    else:
        path.hardlink_to(partial)  # fails if another has made it in the meantime
        partial.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def beside(path: Path, ending: str) -> Path:
    """Return the file that SQLite keeps beside another one."""
    return path.with_name(path.name + ending)
