"""A table as a file holds it: CSV, also gzipped, or Parquet. What is wrong with the file itself is told here."""

import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import NamedTuple

import polars as pl

from deferkit.errors import InvalidArgument
from deferkit.worlds.digest import digest_of

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet")
SEPARATORS = (",", ";", "\t")
LOOK = 65_536  # bytes that tell text from something else
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>")  # what other programs write


class Sheet(NamedTuple):
    """The cells of a file. In CSV all are texts, as they were written; what they mean is for the columns to say."""

    path: str
    frame: pl.DataFrame
    rows: pl.Series  # the number of each row in the file, as a spreadsheet counts them

    @classmethod
    def from_file(cls, path: str) -> "Sheet":
        """Read a file, or say in one sentence why that cannot be done."""
        check_file(path)
        frame, first = (read_parquet(path), 1) if path.lower().endswith(".parquet") else (read_csv(path), 2)
        if not frame.width or not frame.height:
            raise InvalidArgument(f"{path} has no rows{' below its header' if frame.width else ''}.")
        rows = pl.Series("row", range(first, first + frame.height))
        if first > 1:  # a blank line is no task
            some = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
            frame, rows = frame.filter(some), rows.filter(some)
        if frame.height < 2:
            few = "no rows below its header" if frame.is_empty() else "one row"
            raise InvalidArgument(f"{path} has {few}. A table of tasks needs at least 2.")
        return cls(path, frame, rows)


def is_table(name: str) -> bool:
    """Whether a name is that of a table: it ends like one, or there is something of this name.

    >>> is_table("tasks.csv"), is_table("synthetic")
    (True, False)
    """
    return name.lower().endswith(SUFFIXES) or Path(name).exists()


def check_file(path: str) -> None:
    """Raise unless this is a file that can be a table."""
    place = Path(path)
    if place.is_dir():
        raise InvalidArgument(f"{path} is a directory. A world is a CSV or Parquet file ({', '.join(SUFFIXES)}).")
    if not place.exists():
        raise InvalidArgument(f"There is no file {path}.")
    if not path.lower().endswith(SUFFIXES):
        raise InvalidArgument(f"{path} is not a table by its name: that ends with {', '.join(SUFFIXES)}.")


def digest_of_table(path: str) -> str:
    """Return a digest of what is in the file of a table."""
    check_file(path)
    try:
        return digest_of([Path(path)])
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}.") from error


def read_parquet(path: str) -> pl.DataFrame:
    """Return the table of a Parquet file."""
    try:
        return pl.read_parquet(path, use_pyarrow=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InvalidArgument(f"{path} cannot be read as Parquet: {first_line(error)}.") from error


def read_csv(path: str) -> pl.DataFrame:
    """Return the cells of a CSV file as texts, null where one is missing; the separator is that of the header."""
    data = content(path)
    if b"\0" in data[:LOOK]:
        raise InvalidArgument(f"{path} is not text, but something binary (or UTF-16). CSV must be UTF-8.")
    if not data.strip():
        raise InvalidArgument(f"{path} is empty.")
    try:
        head = io.StringIO(data[:LOOK].decode("utf-8-sig", errors="ignore"), newline="")
        line = head.readline()
        separator = max(SEPARATORS, key=line.count)
        head.seek(0)
        names = [name.strip() for name in next(csv.reader(head, delimiter=separator))]
        check_names(path, names)
        frame = pl.read_csv(data, infer_schema=False, separator=separator)
    except pl.exceptions.PolarsError as error:
        raise InvalidArgument(f"{path} cannot be read as CSV: {in_our_words(error)}.") from error
    except csv.Error as error:
        raise InvalidArgument(f"{path} cannot be read as CSV: {error}.") from error
    if len(names) != frame.width:
        raise InvalidArgument(f"{path} cannot be read as CSV: its header is not one line of names.")
    frame.columns = names
    cells = pl.all().str.strip_chars()
    return frame.with_columns(pl.when(~cells.is_in(MISSING)).then(cells))


def content(path: str) -> bytes:
    """Return the bytes of a file, unpacked."""
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if path.lower().endswith(".gz") else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidArgument(f"{path} cannot be unpacked: {error}.") from error
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}.") from error


def check_names(path: str, names: list[str]) -> None:
    """Raise if a column has no name of its own."""
    for name in names:
        if names.count(name) > 1:
            what = f"the name {name!r}" if name else "no name"
            raise InvalidArgument(f"{path} has {names.count(name)} columns with {what}. Each needs one of its own.")


def first_line(error: Exception) -> str:
    """Return what a library says, without its advice."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def in_our_words(error: Exception) -> str:
    """Return what is wrong with a CSV file."""
    said = first_line(error)
    if "found more fields" in said:
        return "a row has more cells than the header has names"
    if "utf-8" in said:
        return "it is not UTF-8 text; save it as CSV UTF-8"
    if "could not parse" in said:
        return "a quote is opened and never closed"
    return said
