"""A table as a file holds it: CSV, also gzipped, Parquet or Excel. What is wrong with the file is told here."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from deferkit.errors import InvalidArgument
from deferkit.worlds.charset import LOOK, as_utf8
from deferkit.worlds.digest import digest_of
from deferkit.worlds.workbook import read_xlsx

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".xlsx")
SEPARATORS = (",", ";", "\t")
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>")  # what other programs write


class Sheet(NamedTuple):
    """The cells of a file. In CSV all are texts, as they were written; what they mean is for the columns to say."""

    path: str
    frame: pl.DataFrame
    rows: pl.Series  # the number of each row in the file, as a spreadsheet counts them
    separator: str = ","  # of a CSV file
    remarks: tuple[str, ...] = ()  # on how the file was read

    @classmethod
    def from_file(cls, path: str) -> "Sheet":
        """Read a file, or say in one sentence why that cannot be done."""
        check_file(path)
        first, separator, said = 1, ",", ""
        if path.lower().endswith(".parquet"):
            frame = read_parquet(path)
        elif path.lower().endswith(".xlsx"):
            book = read_xlsx(path)
            check_names(path, book.names)
            frame = with_missing(pl.DataFrame(dict(zip(book.names, book.columns, strict=True))))
            first, said = book.first, book.remark
        else:
            data, said = as_utf8(path, content(path))
            frame, separator, short = read_csv(path, data)
            first, said = 2, "\n".join(filter(None, (said, short)))
        if not frame.width or not frame.height:
            raise InvalidArgument(f"{path} has no rows{' below its header' if frame.width else ''}.")
        rows = pl.Series("row", range(first, first + frame.height))
        if first > 1:  # a blank line is no task
            some = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
            frame, rows = frame.filter(some), rows.filter(some)
        if frame.height < 2:
            few = "no rows below its header" if frame.is_empty() else "one row"
            raise InvalidArgument(f"{path} has {few}. A table of tasks needs at least 2.")
        return cls(path, frame, rows, separator, tuple(said.splitlines()))


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
        raise InvalidArgument(
            f"{path} is a directory. A world is a CSV, Parquet or Excel file ({', '.join(SUFFIXES)})."
        )
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


def read_csv(path: str, data: bytes) -> tuple[pl.DataFrame, str, str]:
    """Return the cells of a CSV file as texts, null where one is missing, the header's separator and a remark."""
    if not data.strip():
        raise InvalidArgument(f"{path} is empty.")
    names: list[str] = []
    separator = ","
    try:
        head = io.StringIO(data[:LOOK].decode(errors="ignore"), newline="")
        line = head.readline()
        separator = max(SEPARATORS, key=line.count)
        head.seek(0)
        names = [name.strip() for name in next(csv.reader(head, delimiter=separator))]
        check_names(path, names)
        frame = pl.read_csv(data, infer_schema=False, separator=separator)
    except pl.exceptions.PolarsError as error:
        raise InvalidArgument(
            f"{path} cannot be read as CSV: {in_our_words(error, data, separator, names)}."
        ) from error
    except csv.Error as error:
        raise InvalidArgument(f"{path} cannot be read as CSV: {error}.") from error
    if len(names) != frame.width:
        raise InvalidArgument(f"{path} cannot be read as CSV: its header is not one line of names.")
    frame.columns = names
    # the reader fills short rows up, so that only a file whose last column has gaps can have one
    gaps = frame.width > 1 and frame[names[-1]].null_count() > 0
    return with_missing(frame), separator, short_rows(path, data, separator, names) if gaps else ""


def with_missing(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table whose texts have no blanks around them, and null for what stands for a missing cell."""
    cells = pl.col(pl.String).str.strip_chars()
    return frame.with_columns(pl.when(~cells.is_in(MISSING)).then(cells))


def lengths(data: bytes, separator: str) -> Iterator[tuple[int, int]]:
    """Yield the number of each row of a CSV file that is not blank, and how many cells it has."""
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
    for row, cells in enumerate(csv.reader(text, delimiter=separator), start=1):
        if cells:
            yield row, len(cells)


def short_rows(path: str, data: bytes, separator: str, names: Sequence[str]) -> str:
    """Return a remark on rows with fewer cells than the header has names, "" if there are none."""
    try:
        short = [(row, n) for row, n in lengths(data, separator) if n < len(names)]
    except csv.Error:  # what the other reader makes of such a file is told already
        return ""
    if not short:
        return ""
    row, n = short[0]
    more = f", as do {len(short) - 1:,} more" if len(short) > 1 else ""
    return f"Row {row} of {path} has {n} of {len(names)} cells{more}: what lacks at the end counts as missing."


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


def in_our_words(error: Exception, data: bytes, separator: str, names: Sequence[str]) -> str:
    """Return what is wrong with a CSV file."""
    said = first_line(error)
    if "found more fields" in said:
        row, n = next(((row, n) for row, n in lengths(data, separator) if n > len(names)), (0, 0))
        hint = ". A cell with a comma in it needs quotes" if separator == "," else ""
        return f"row {row} has more cells than the header has names ({n}, not {len(names)}){hint}"
    if "could not parse" in said:
        return "a quote is opened and never closed"
    return said
