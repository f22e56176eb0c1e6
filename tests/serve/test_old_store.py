"""A store and results that the version before the core was rewritten made: they open, and nothing in them differs."""

import json
import lzma
import shutil
from pathlib import Path

import polars as pl
import pytest

from deferkit.study.engines import Local
from deferkit.study.runner import run_study
from deferkit.study.spec import Spec
from deferkit.study.store import Store
from tests.serve.started import Started
from tests.serve.test_replay_command import Run, run

__all__ = ["run"]

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "before.db"
    path.write_bytes(lzma.decompress((GOLDEN / "store.db.xz").read_bytes()))
    return path


def test_its_log_gives_the_same_decisions_and_snapshots(store: Path, run: Run) -> None:
    code, out, err = run("replay", "demo", "--store", str(store), "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["decisions"] == 120
    assert found["snapshots"] >= 1
    assert found["faults"] == []


def test_a_service_goes_on_with_it(store: Path, run: Run) -> None:
    with Started(store) as service, service.client("demo") as client:
        assert client.summary().decisions == 120
        client.decide([0.1] * 20)
        assert client.summary().decisions == 121
    code, _, err = run("replay", "demo", "--store", str(store), "--json")
    assert code == 0, err


def test_its_results_open_and_the_new_ones_agree(tmp_path: Path) -> None:
    """Results are keyed by the code that they depend on, so that its trials run again; they come to the same."""
    folder = tmp_path / "trials"
    shutil.copytree(GOLDEN / "trials", folder)
    before = pl.concat([pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
    specs = [Spec.of("synthetic", {"horizon": 500}, policy=name, budget="40") for name in ("interval", "model-only")]
    table = run_study([(spec, seed) for spec in specs for seed in range(2)], store=Store(folder), engine=Local(1))
    for name, then in (("interval", "default"), ("model-only", "model-only")):
        for seed in range(2):
            old = before.filter(pl.col("spec").str.contains(f'"policy": "{then}"'), seed=seed).row(0, named=True)
            new = table.filter(policy=name, seed=seed).row(0, named=True)
            assert (new["reward"], new["spent"]) == (old["reward"], old["spent"])
