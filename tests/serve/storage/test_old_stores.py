"""Stores and results that older versions made: they open, replay and go on, and nothing in them differs.

`store.db.xz` is of the version before the core was rewritten, `store-with-trees.db.xz` of the one before the
service was divided into packages (made by `tests/golden/service_life.py`; without snapshots, which no version kept in
that form).
"""

import json
import lzma
import shutil
from pathlib import Path

import polars as pl
import pytest

from deferkit.study.engines import Local
from deferkit.study.runner import run_study
from deferkit.study.spec import Spec
from deferkit.study.trial_store import TrialStore
from tests.cli.test_replay import Run, run
from tests.golden.service_life import POLICIES
from tests.serve.harness.service_process import ServiceProcess

__all__ = ["run"]

GOLDEN = Path(__file__).parents[2] / "golden"
CONTEXT = {"amount": 0.5, "age": 0.25, "country": "fr"}


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
    with ServiceProcess(store.parent, store=store) as service, service.client("demo") as client:
        assert client.summary().decisions == 120
        client.decide([0.1] * 20)
        assert client.summary().decisions == 121
    code, _, err = run("replay", "demo", "--store", str(store), "--json")
    assert code == 0, err


@pytest.mark.parametrize("name", POLICIES)
def test_a_store_with_trees_replays_and_goes_on(name: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "before.db"
    path.write_bytes(lzma.decompress((GOLDEN / "store-with-trees.db.xz").read_bytes()))
    code, out, err = run("replay", name, "--store", str(path), "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["decisions"], found["snapshots"], found["faults"]) == (100, 0, [])
    with ServiceProcess(tmp_path, store=path) as service, service.client(name) as client:
        again = client.decide(CONTEXT, task=f"{name}-new")
        assert client.decide(CONTEXT, task=f"{name}-new") == again
        assert client.summary().decisions == 101
        service.stop()
    code, out, err = run("replay", name, "--store", str(path), "--json")
    assert code == 0, err
    assert json.loads(out)["decisions"] == 101


def test_its_results_open_and_the_new_ones_agree(tmp_path: Path) -> None:
    """Results are keyed by the code that they depend on, so that its trials run again; they come to the same."""
    folder = tmp_path / "trials"
    shutil.copytree(GOLDEN / "trials", folder)
    before = pl.concat([pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
    specs = [Spec.of("synthetic", {"horizon": 500}, policy=name, budget="40") for name in ("interval", "model-only")]
    table = run_study([(spec, seed) for spec in specs for seed in range(2)], store=TrialStore(folder), engine=Local(1))
    for name, then in (("interval", "default"), ("model-only", "model-only")):
        for seed in range(2):
            old = before.filter(pl.col("spec").str.contains(f'"policy": "{then}"'), seed=seed).row(0, named=True)
            new = table.filter(policy=name, seed=seed).row(0, named=True)
            assert (new["reward"], new["spent"]) == (old["reward"], old["spent"])
