"""A disk on which things go wrong: it is full, it does not confirm, its power fails. SQLite writes to it through a VFS.

Everything that is written is also written down, so that the files can be made as they would be after a loss of power
at any moment: what was synced is there, and of what was not, any part of it.
"""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import numpy as np

SECTOR = 512
NUMBERS = itertools.count()


class Op(NamedTuple):
    """Something that was done to a file."""

    path: str
    kind: str  # write, truncate, sync or delete
    offset: int = 0  # of a write; the new size of what is truncated
    data: bytes = b""


class Disk(apsw.VFS):
    """Passes everything on to the system's own files, if it can."""

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
