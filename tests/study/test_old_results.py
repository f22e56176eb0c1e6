"""A results folder of the version before keys covered the whole package: it opens, and its trials come to the same.

`fixtures/results_v1` has two streams of `deferkit reproduce small-streams --quick` and one of `deferkit run synthetic
--horizon 400 --budget 40 --trials 2 --plot`, made by commit 5162c18.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from deferkit.study.engines import Local
from deferkit.study.policy_registry import is_learner
from deferkit.study.runner import count_missing, run_study
from deferkit.study.spec import Spec
from deferkit.study.trial_store import SCHEMA, Trial, TrialStore

FOLDER = Path(__file__).parents[1] / "fixtures" / "results_v1"
RESULTS = [name for name in SCHEMA if name not in ("key", "us_per_step", "remark")]
"""All columns but the key, which is another one by now, the time, which is never the same, and the later remark."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(FOLDER / "trials", tmp_path / "trials")
    return tmp_path / "trials"


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return pl.concat([pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))]).to_dicts()


def trial_of(row: dict[str, Any]) -> Trial:
    given = json.loads(row["spec"])
    return Spec.of(given.pop("world"), given.pop("world_parameters"), **given), row["seed"]


def with_rule_of_its_time(trial: Trial) -> Trial:
    """Return the trial with the default rule of November 2026, which learners had when it was run."""
    spec, seed = trial
    if not is_learner(spec.policy) or spec.policy == "paper":
        return trial
    return replace(spec, policy_parameters={**spec.policy_parameters, "defaults": "2026.11"}), seed


def test_specifications_are_the_same_text(folder: Path) -> None:
    rows = rows_in(folder)
    assert len(rows) == 30
    assert [trial_of(row)[0].text for row in rows] == [row["spec"] for row in rows]


def test_old_trials_run_again_and_come_to_the_same_bit_for_bit(folder: Path) -> None:
    before = rows_in(folder)
    trials = [with_rule_of_its_time(trial_of(row)) for row in before]
    assert count_missing(trials, TrialStore(folder)) == len(trials)  # their keys are no longer current
    assert len(TrialStore(folder).all_rows()) == len(before)
    run_study(trials, store=TrialStore(folder), engine=Local(1))
    continued = TrialStore(folder)
    assert count_missing(trials, continued) == 0
    for old, new in zip(before, continued.rows(trials), strict=True):
        told = [name for name in RESULTS if name != "spec"]  # which names the rule now
        assert {name: repr(old[name]) for name in told} == {name: repr(new[name]) for name in told}
    assert {path.name for path in (FOLDER / "trials").iterdir()} < {path.name for path in folder.iterdir()}
