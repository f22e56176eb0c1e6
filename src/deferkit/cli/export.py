"""`deferkit export`: raw results of studies, and the tables of a policy of the service, as Parquet or CSV."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deferkit.cli.app import Store, app, console, store_path
from deferkit.errors import DeferkitError, InvalidArgument, closest
from deferkit.extras import needs

if TYPE_CHECKING:
    import polars as pl

    from deferkit.serve.export import Cell

TABLES = ("trials", "decisions", "ledger")
CHUNK = 20_000  # rows that are converted to columns together


@app.command()
def export(
    table: Annotated[
        str,
        typer.Argument(help="What: trials of a study; decisions or ledger of a policy of the service"),
    ],
    source: Annotated[
        str,
        typer.Argument(help="Of what: the folder of `run --results` or `reproduce --out`; the name of the policy"),
    ],
    file: Annotated[Path, typer.Argument(help="Where to: a file that ends in .parquet or .csv")],
    store: Store = None,
    tenant: Annotated[str, typer.Option(help="Whose policy it is")] = "default",
) -> None:
    """Write raw results of studies, or the decisions and the money of a policy, to one file.

    Of the service, nothing is written to its store, and it may be running.
    """
    if table not in TABLES:
        raise InvalidArgument(f"There is no table {table!r}. There is: {', '.join(TABLES)}.{closest(table, TABLES)}")
    needs("study", what="An export of trials or to Parquet") if table == "trials" or is_parquet(file) else None
    if file.suffix.lower() not in (".parquet", ".csv") or not file.parent.is_dir():
        raise InvalidArgument(
            f"An export goes to a .parquet or .csv file in a folder that is there. Got {str(file)!r}."
        )
    rows = export_trials(Path(source), file) if table == "trials" else export_policy(table, source, file, store, tenant)
    console.print(f"{file}: {rows:,} rows", markup=False, soft_wrap=True)


def is_parquet(file: Path) -> bool:
    """Return whether a file is to be Parquet.

    >>> is_parquet(Path("a.PARQUET")), is_parquet(Path("a.csv"))
    (True, False)
    """
    return file.suffix.lower() == ".parquet"


def export_trials(folder: Path, file: Path) -> int:
    """Write the trials of a folder; return their number."""
    from deferkit.study.trial_store import kept_results, write_frame  # noqa: PLC0415 - needs the extra

    frame = kept_results(folder)
    write_frame(frame, file)
    return frame.height


def export_policy(table: str, policy: str, file: Path, store: str | None, tenant: str) -> int:
    """Write a table of a policy; return the number of rows."""
    needs("serve")
    import msgspec  # noqa: PLC0415 - needs the extra

    from deferkit.serve import export as ledger_table  # noqa: PLC0415
    from deferkit.serve.audit.replay import find  # noqa: PLC0415
    from deferkit.serve.domain.spec import PolicySpec  # noqa: PLC0415
    from deferkit.serve.export import (  # noqa: PLC0415
        decision_table,
        header_of,
        pieces,
    )
    from deferkit.serve.storage.open_store import store_to_replay  # noqa: PLC0415

    with store_to_replay(store_path(store)) as kept:
        row, _ = find(kept, tenant, policy)
        spec = msgspec.json.decode(row.spec, type=PolicySpec)
        if table == "decisions":
            header, rows = header_of(spec), decision_table(kept, row.id, spec)
        else:
            header, rows = ledger_table.HEADER, ledger_table.ledger_table(kept, row.id)
        counted = Counted(rows)
        if is_parquet(file):
            from deferkit.study.trial_store import write_frame  # noqa: PLC0415 - needs the extra

            write_frame(frame_of(header, counted), file)
        else:
            write_pieces(pieces(header, counted), file)
    return counted.seen


class Counted:
    """Rows that are counted as they are read."""

    def __init__(self, rows: "Iterator[list[Cell]]") -> None:
        self._rows = rows
        self.seen = 0

    def __iter__(self) -> "Iterator[list[Cell]]":
        for row in self._rows:
            self.seen += 1
            yield row


def write_pieces(parts: Iterator[bytes], file: Path) -> None:
    """Write a file whole or not at all; raise with its name if it cannot be written."""
    unfinished = file.with_name(f"{file.name}.part")
    try:
        with unfinished.open("wb") as out:
            out.writelines(parts)
        unfinished.replace(file)
    except OSError as error:
        raise DeferkitError(f"{file} cannot be written: {error.strerror or error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def frame_of(header: Sequence[str], rows: Counted) -> "pl.DataFrame":
    """Return cells as a table of columns: times as such, amounts of money as decimals, which are exact."""
    import polars as pl  # noqa: PLC0415 - needs the extra

    kinds = {name: kind_of_column(name) for name in header}
    read = {name: pl.String if name == "at" else kind for name, kind in kinds.items()}
    frames, chunk = [pl.DataFrame(schema=read)], []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            frames.append(pl.DataFrame(chunk, schema=read, orient="row"))
            chunk = []
    frames.append(pl.DataFrame(chunk, schema=read, orient="row"))
    return pl.concat(frames).with_columns(pl.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ", time_zone="UTC"))


def kind_of_column(name: str) -> Any:
    """Return the type of a column of `decisions` or `ledger` in Parquet."""
    import polars as pl  # noqa: PLC0415 - needs the extra

    if name == "at":
        return pl.Datetime("us", "UTC")
    if name in ("id", "seq"):
        return pl.Int64
    money = ("held", "released", "cost", "total", "reserved", "posted", "suspense", "free")
    if name in money or name.startswith(("reserved_", "cost_")):
        return pl.Decimal(38, 6)
    numbers = ("propensity", "expected_gain")
    if name in numbers or name.startswith(("price_", "estimate_", "width_", "reward_")):
        return pl.Float64
    return pl.String
