"""Reading files: character sets, workbooks and digests."""

import codecs
import csv
import datetime
import functools
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from deferkit.errors import InvalidArgument
from deferkit.extras import needs

LOOK = 65_536  # bytes that tell text from something else
WIDE = 0.4  # share of zero bytes in every second place from which on a text is UTF-16
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]")  # no text has these


def as_utf8(path: str, data: bytes) -> tuple[bytes, str]:
    r"""Return a text in UTF-8 without a byte order mark, and a remark if it was written in another character set.

    >>> as_utf8("tasks.csv", "Käse".encode("utf-16"))
    (b'K\xc3\xa4se', 'tasks.csv is read as UTF-16.')
    """
    charset = wide_charset(data)
    if charset:
        try:
            return data.decode(charset).removeprefix("\ufeff").encode(), f"{path} is read as UTF-16."
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{path} begins like UTF-16, but is not: save it as CSV UTF-8.") from error
    if b"\0" in data[:LOOK]:
        raise InvalidArgument(f"{path} is not text, but something binary. CSV must be text, such as UTF-8.")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        data.decode()
    except UnicodeDecodeError:
        return from_latin(path, data)
    return data, ""


def wide_charset(data: bytes) -> str:
    """Return the UTF-16 variant of a text, by its byte order mark or its zero bytes; "" if it is not UTF-16."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    look = data[: LOOK - LOOK % 2]
    pairs = len(look) // 2
    even, odd = look[0::2].count(0), look[1::2].count(0)
    if pairs and odd > WIDE * pairs and not even:
        return "utf-16-le"
    if pairs and even > WIDE * pairs and not odd:
        return "utf-16-be"
    return ""


def from_latin(path: str, data: bytes) -> tuple[bytes, str]:
    """Return a text that is not UTF-8 as Windows-1252, which has all printed characters of Latin-1, and a remark."""
    try:
        text, charset = data.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:  # five bytes mean nothing there
        text, charset = data.decode("latin-1"), "Latin-1"
    if CONTROLS.search(text[:LOOK]):
        raise InvalidArgument(f"{path} is not text, but something binary. CSV must be text, such as UTF-8.")
    letter = next(character for character in text if character > "\x7f")
    return text.encode(), f"{path} is not UTF-8 and is read as {charset}: check that {letter!r} is right."


class Workbook(NamedTuple):
    """The columns of the first sheet of a workbook."""

    names: list[str]
    columns: list[pl.Series]
    first: int  # the number of the row below the header
    remark: str


def read_xlsx(path: str) -> Workbook:
    """Return the columns of the first sheet; empty rows above the header and empty columns are passed over.

    A column whose cells are all numbers, all true or false or all dates keeps its kind; every other one is of texts.
    """
    needs("xlsx")
    import python_calamine  # noqa: PLC0415 - an extra

    try:
        with python_calamine.load_workbook(path) as book:
            names = book.sheet_names
            rows: list[list[Any]] = book.get_sheet_by_index(0).to_python(skip_empty_area=False)
    except (OSError, python_calamine.CalamineError) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        raise InvalidArgument(f"{path} cannot be read as an Excel workbook: {said}.") from error
    head = next((i for i, row in enumerate(rows) if not is_blank(row)), len(rows))
    if head == len(rows):
        raise InvalidArgument(f"{path} is empty: its first sheet, {names[0]!r}, has no cells.")
    columns = list(zip(*rows[head:], strict=True))
    kept = [column for column in columns if not is_blank(column)]
    titles = [text_of(column[0]) or "" for column in kept]
    series = [series_of(column[1:]) for column in kept]
    more = f"{path} has {len(names)} sheets; the first, {names[0]!r}, is read." if len(names) > 1 else ""
    return Workbook(titles, series, head + 2, more)


def is_blank(cells: Sequence[Any]) -> bool:
    """Whether there is nothing in any of these cells."""
    return all(cell == "" for cell in cells)


def series_of(cells: Sequence[Any]) -> pl.Series:
    """Return a column of cells as numbers, truths, dates or texts.

    >>> series_of([1.0, ""]).to_list(), series_of([1.0, "x", True]).to_list()
    ([1.0, None], ['1', 'x', 'true'])
    """
    there = [cell for cell in cells if cell != ""]
    if there and all(isinstance(cell, bool) for cell in there):
        return pl.Series([None if cell == "" else cell for cell in cells], dtype=pl.Boolean)
    if there and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in there):
        return pl.Series([None if cell == "" else float(cell) for cell in cells], dtype=pl.Float64)
    if there and all(isinstance(cell, datetime.date) for cell in there):  # a datetime is one too
        return pl.Series([None if cell == "" else moment_of(cell) for cell in cells], dtype=pl.Datetime("us"))
    return pl.Series([text_of(cell) for cell in cells], dtype=pl.String)


def moment_of(cell: datetime.date) -> datetime.datetime:
    """Return a date as midnight, and a moment as it is."""
    return cell if isinstance(cell, datetime.datetime) else datetime.datetime.combine(cell, datetime.time())


def text_of(cell: Any) -> str | None:
    """Return a cell as a text, as a spreadsheet would export it; None if there is nothing in it.

    >>> text_of(3.0), text_of(0.25), text_of(True), text_of(" a "), text_of("")
    ('3', '0.25', 'true', 'a', None)
    """
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip() or None


def digest_of(paths: Sequence[Path]) -> str:
    """Return a digest of what is in these files; each is read once for each time that it was changed.

    >>> len(digest_of([Path(__file__)])), digest_of([Path(__file__)]) == digest_of([Path(__file__)] * 2)
    (16, False)
    """
    parts = []
    for path in paths:
        about = path.stat()
        parts.append(of_one(path, about.st_mtime_ns, about.st_size, about.st_ino))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=32)
def of_one(path: Path, _changed_ns: int, _size: int, _inode: int) -> str:
    """Return the SHA-256 of a file; the other arguments say when that is to be found anew."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    return f"Row {row} of {path} has {n} of {len(names)} cells{more}: cells missing at the end count as missing values."


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
    """Return the first line of a library's error message, without its advice."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def in_our_words(error: Exception, data: bytes, separator: str, names: Sequence[str]) -> str:
    """Return a description of the fault in a CSV file."""
    said = first_line(error)
    if "found more fields" in said:
        row, n = next(((row, n) for row, n in lengths(data, separator) if n > len(names)), (0, 0))
        hint = ". A cell with a comma in it needs quotes" if separator == "," else ""
        return f"row {row} has more cells than the header has names ({n}, not {len(names)}){hint}"
    if "could not parse" in said:
        return "a quote is opened and never closed"
    return said
