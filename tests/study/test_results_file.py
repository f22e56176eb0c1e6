"""Raw results: one documented schema, the numbers of the trials, and `deferkit export`."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from deferkit import InvalidArgument
from deferkit.study.runner import run_study
from deferkit.study.spec import Spec
from deferkit.study.trial_store import COLUMNS, SCHEMA, TrialStore, kept_results, results_frame, write_frame
from tests.command_line import Runner

STUDIES = Path(__file__).parents[2] / "docs" / "studies.md"
TYPES = {"text": pl.String, "whole number": pl.Int64, "number": pl.Float64, "list of numbers": pl.List(pl.Float64)}
WORDS = (
    "run",
    "synthetic",
    "--horizon",
    "60",
    "--trials",
    "2",
    "--policy",
    "default",
    "--policy",
    "opt",
    "--budget",
    "5",
)


def test_the_page_has_every_column_with_its_type_and_meaning() -> None:
    section = STUDIES.read_text().partition("### Raw results")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (.+) \|$", section, flags=re.MULTILINE)
    assert [(name, TYPES[kind], meaning) for name, kind, meaning in rows] == [
        (name, column.kind, column.meaning) for name, column in COLUMNS.items()
    ]


def test_nothing_that_is_kept_of_a_trial_is_left_out() -> None:
    assert set(SCHEMA) - {"spec"} <= set(COLUMNS)


def test_a_run_writes_its_trials_to_one_file(said: Runner, tmp_path: Path) -> None:
    file = tmp_path / "raw.parquet"
    shown = json.loads(said(*WORDS, "--json", "--results", str(file)).out)
    frame = pl.read_parquet(file)
    assert dict(frame.schema) == {name: column.kind for name, column in COLUMNS.items()}
    assert sorted(zip(frame["policy"], frame["seed"], strict=True)) == [
        ("default", 0),
        ("default", 1),
        ("opt", 0),
        ("opt", 1),
    ]
    means = dict(frame.group_by("policy").agg(pl.col("reward").mean()).iter_rows())
    assert means == pytest.approx({row["policy"]: row["reward"] for row in shown})
    assert json.loads(frame["world_parameters"][0])["horizon"] == 60
    assert frame["us_per_step"].is_null().to_list() == (frame["policy"] == "opt").to_list()
    assert [path.name for path in tmp_path.iterdir()] == ["raw.parquet"]


def test_kept_trials_are_exported_as_the_same_rows(said: Runner, tmp_path: Path) -> None:
    said(*WORDS, "--results", str(tmp_path / "kept"))
    done = said("export", "trials", str(tmp_path / "kept"), str(tmp_path / "raw.parquet"))
    assert done.out.split() == [f"{tmp_path / 'raw.parquet'}:", "4", "rows"]
    said("export", "trials", str(tmp_path / "kept" / "trials"), str(tmp_path / "raw.csv"))
    frame = pl.read_parquet(tmp_path / "raw.parquet")
    told = pl.read_csv(tmp_path / "raw.csv")
    assert told.columns == list(COLUMNS)
    assert told["gain"].to_list() == frame["gain"].to_list()


def test_paths_are_lists_in_parquet_and_json_in_csv(tmp_path: Path) -> None:
    spec = Spec.of("synthetic", {"horizon": 40}, policy="default", budget="5", trace="path")
    store = TrialStore(None)
    run_study([(spec, 0)], store=store)
    frame = results_frame(store.all_rows())
    for name in ("raw.parquet", "raw.csv"):
        write_frame(frame, tmp_path / name)
    at = pl.read_parquet(tmp_path / "raw.parquet")["at"][0].to_list()
    assert at == [float(t) for t in range(1, 41)]
    assert json.loads(pl.read_csv(tmp_path / "raw.csv")["at"][0]) == at


def test_a_file_that_cannot_be_written_is_told_before_the_first_trial(said: Runner, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "raw.parquet"
    done = said(*WORDS, "--results", str(nowhere))
    assert done.code == 2
    assert "There is no folder" in done.error
    with pytest.raises(InvalidArgument, match="There are no trials in"):
        kept_results(tmp_path)
    assert "Did you mean 'trials'?" in said("export", "trails", str(tmp_path), "a.csv").error
    assert "goes to a .parquet or .csv file" in said("export", "trials", str(tmp_path), "a.xlsx").error


@pytest.mark.parametrize("name", ["raw.parquet", "raw.csv"])
def test_a_full_disk_gets_one_line_with_the_reason(name: str, said: Runner, tmp_path: Path) -> None:
    said(*WORDS, "--results", str(tmp_path / "kept"))
    file, unfinished = tmp_path / name, tmp_path / f"{name}.part"
    for words in ((*WORDS, "--results"), ("export", "trials", str(tmp_path / "kept"))):
        unfinished.symlink_to("/dev/full")
        done = said(*words, str(file))
        assert (done.code, done.error) == (2, f"error: {file} cannot be written: No space left on device.\n")
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
