"""`deferkit export` of a store: the tables of the service, as CSV byte for byte, and as Parquet with exact amounts."""

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from deferkit.serve import export
from deferkit.serve.engine.engine import Engine
from deferkit.serve.export import decision_table, header_of, pieces
from deferkit.serve.storage.sqlite import Sqlite
from tests.command_line import Runner
from tests.serve.domain.test_policy import SPECS
from tests.serve.harness.in_process import KEY, play
from tests.serve.harness.policy_histories import RandomHistory

SPEC = SPECS["experts and resources"]


@pytest.fixture
def told(tmp_path: Path) -> dict[str, bytes]:
    """Return what a running service exports as CSV; its store is service.db."""
    life = RandomHistory(5, SPEC)
    found: dict[str, bytes] = {}

    async def script(engine: Engine) -> None:
        for _ in range(80):
            await life.step(engine)
        owned, store = engine.owned[KEY], engine.store
        decisions = decision_table(store, owned.id, owned.policy.spec)
        found["decisions"] = b"".join(pieces(header_of(owned.policy.spec), decisions))
        found["ledger"] = b"".join(pieces(export.HEADER, export.ledger_table(store, owned.id)))

    play(Sqlite(str(tmp_path / "service.db")), script, spec=SPEC)
    return found


@pytest.mark.parametrize("table", ["decisions", "ledger"])
def test_a_store_is_exported_as_the_service_does(
    table: str, told: dict[str, bytes], tmp_path: Path, said: Runner
) -> None:
    where = ("--store", str(tmp_path / "service.db"), "--tenant", KEY[0])
    done = said("export", table, KEY[1], str(tmp_path / "out.csv"), *where)
    assert done.code == 0, done.error
    assert (tmp_path / "out.csv").read_bytes() == told[table]
    rows = list(csv.DictReader(io.StringIO(told[table].decode(), newline="")))
    assert done.out.endswith(f"{len(rows):,} rows\n")
    assert said("export", table, KEY[1], str(tmp_path / "out.parquet"), *where).code == 0
    frame = pl.read_parquet(tmp_path / "out.parquet")
    assert frame.columns == list(rows[0])
    assert frame.height == len(rows) > 10
    for name, kind in frame.schema.items():
        texts = [row[name] for row in rows]
        values = frame[name].to_list()
        if kind == pl.Decimal:
            assert values == [Decimal(text) if text else None for text in texts]
        elif kind == pl.Datetime:
            assert values == [datetime.fromisoformat(text).astimezone(UTC) for text in texts]
        elif kind in (pl.Float64, pl.Int64):
            assert values == [float(text) if text else None for text in texts]
    money = {name for name, kind in frame.schema.items() if kind == pl.Decimal}
    assert money == {name for name in frame.columns if name.startswith(("reserved", "cost", "held", "released"))} | (
        {"total", "posted", "suspense", "free"} if table == "ledger" else set()
    )


def test_mistakes_get_one_line(tmp_path: Path, said: Runner) -> None:
    done = said("export", "decisions", "p", str(tmp_path / "out.csv"), "--store", str(tmp_path / "none.db"))
    assert done.code == 2
    assert "There is no file" in done.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_an_export_to_a_full_disk_gets_one_line_with_the_reason(
    name: str, told: dict[str, bytes], tmp_path: Path, said: Runner
) -> None:
    assert told["ledger"]
    (tmp_path / f"{name}.part").symlink_to("/dev/full")
    done = said(
        "export", "ledger", KEY[1], str(tmp_path / name), "--store", str(tmp_path / "service.db"), "--tenant", KEY[0]
    )
    assert (done.code, done.error) == (2, f"error: {tmp_path / name} cannot be written: No space left on device.\n")
    assert not list(tmp_path.glob("out*"))
