"""Lookup of published data sets in a folder that the user names; none of them is shipped."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from deferkit.errors import InvalidArgument, MissingData
from deferkit.tables.sheet import digest_of
from deferkit.worlds.base import Floats

VARIABLE = "DEFERKIT_DATA"


class DataSet(NamedTuple):
    """A published data set: its folder under DEFERKIT_DATA, and where it comes from."""

    name: str
    folder: str
    source: str  # who published it, and where it can be downloaded

    def find(self, *names: str) -> Path:
        """Return the first of these files that is there: in the folder or one below it, plain or as .gz.

        >>> import os
        >>> os.environ["DEFERKIT_DATA"], kept = "/nowhere", os.environ.get("DEFERKIT_DATA")
        >>> try:
        ...     DataSet("Moons", "moons", "Galilei 1610, https://example.org").find("io.csv")
        ... except MissingData as error:
        ...     print(str(error)[:80])
        ... finally:
        ...     _ = os.environ.pop("DEFERKIT_DATA") if kept is None else os.environ.update(DEFERKIT_DATA=kept)
        The data set Moons is not shipped with deferkit, and its file io.csv was not fou
        """
        root = os.environ.get(VARIABLE, "")
        folder = Path(root) / self.folder
        for name in names if root else ():
            for written in (name, name + ".gz"):
                # A download from OSF comes with folders such as "Behavioral Data".
                for found in (folder / written, *sorted(folder.glob(f"*/{written}"))):
                    if found.is_file():
                        return found
        raise MissingData(self._how_to_get(names, root))

    def _how_to_get(self, names: Sequence[str], root: str) -> str:
        files = f"file {names[0]}" + (f" (or {' or '.join(names[1:])})" if names[1:] else "")
        looked = f"{VARIABLE} is {root!r}" if root else f"{VARIABLE} is not set"
        return (
            f"The data set {self.name} is not shipped with deferkit, and its {files} was not found ({looked}). Download"
            f" it from {self.source}, put it, plain or as .gz, into a folder named {self.folder}, and set the"
            f" environment variable {VARIABLE} to the folder that holds {self.folder}."
        )


def checked_digest(given: str, paths: Sequence[Path], name: str) -> str:
    """Return the digest of the files, or raise if a specification was made from other ones."""
    found = digest_of(paths)
    if given not in ("", found):
        raise InvalidArgument(
            f"The files of {name} have the digest {found}; the specification was made with {given!r}. Leave 'data' out"
            " to use the files as they are."
        )
    return found


def read_table(
    path: Path, *, texts: Sequence[str], numbers: Sequence[str] = (), gaps: Sequence[str] = ()
) -> pl.DataFrame:
    """Return a CSV file that has these columns: `numbers` and `gaps` as numbers, all others as text.

    Where a cell of `gaps` is not a number, it is null; elsewhere every cell must be filled.
    """
    try:
        table = pl.read_csv(path, infer_schema=False)
        missing = [name for name in (*texts, *numbers, *gaps) if name not in table.columns]
        if missing:
            has = ", ".join(table.columns)
            raise InvalidArgument(f"{path.name} has no column {', '.join(missing)}. It has: {has}.")
        table = table.with_columns(
            *(pl.col(name).cast(pl.Float64) for name in numbers),
            *(pl.col(name).cast(pl.Float64, strict=False).fill_nan(None) for name in gaps),
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InvalidArgument(f"{path.name} cannot be read as a table: {error}") from error
    for name in (*texts, *numbers):
        if table[name].is_null().any():
            raise InvalidArgument(f"The column {name} of {path.name} has empty cells.")
    if table.is_empty():
        raise InvalidArgument(f"{path.name} has no rows.")
    return table


def checked_times(times: Floats, column: str, path: Path) -> Floats:
    """Return times, or raise unless they can be costs: finite, none below 0, not all 0."""
    if not (np.isfinite(times).all() and times.min() >= 0 and times.max() > 0):
        raise InvalidArgument(f"The column {column} of {path.name} must be numbers of at least 0, not all 0.")
    return times
