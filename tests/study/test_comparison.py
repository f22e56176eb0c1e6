"""`deferkit.compare` and `deferkit.plan`: frames of all kinds, the same numbers as the commands, objects that show."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import deferkit
from deferkit import InvalidArgument
from deferkit.study.achievable import Achievable
from deferkit.study.comparison import Comparison, is_bound, verdict
from deferkit.study.confidence import folds_of
from deferkit.worlds.base import TaskStream
from tests.command_line import Runner
from tests.table_files import many

POLICIES = ["model-only", "best-reject", "greedy"]
COLUMNS: dict[str, Any] = {"model_reward": "right", "human_reward": "human right", "cost": "minutes"}


class Arrow:
    """An object of another library that hands out Arrow data, and nothing else."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.frame.__arrow_c_stream__(requested_schema)


@pytest.fixture
def tasks(tmp_path: Path) -> pl.DataFrame:
    names: dict[str, str] = COLUMNS
    return pl.read_csv(many(tmp_path, 300)).rename(names)


def without_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("us_per")} for row in rows]


def compared(table: Any, **given: Any) -> Comparison:
    arguments: dict[str, Any] = {"policies": POLICIES, "trials": 2, **COLUMNS, **given}
    return deferkit.compare(table, **arguments)


def test_frames_of_all_kinds_give_what_the_command_gives(tasks: pl.DataFrame, tmp_path: Path, said: Runner) -> None:
    path = tmp_path / "named.csv"
    tasks.write_csv(path)
    options = [word for name, value in COLUMNS.items() for word in ("--" + name.replace("_", "-"), value)]
    chosen = [word for name in POLICIES for word in ("--policy", name)]
    command = said("run", str(path), "--trials", "2", "--json", *options, *chosen)
    wanted = without_time(json.loads(command.out))
    pandas = pd.DataFrame(tasks.to_dict(as_series=False))
    for table in (tasks, tasks.lazy(), pandas, Arrow(tasks), tasks.to_dict(as_series=False), str(path), path):
        assert without_time(compared(table).rows) == wanted
    assert isinstance(compared(pandas).to_frame(), pd.DataFrame)
    assert compared(tasks).to_frame()["policy"].to_list() == POLICIES
    assert compared(tasks, context=["x_size", "x_kind"]).rows[1]["reward"] == wanted[1]["reward"]


def test_terms_of_a_budget_are_arguments(tasks: pl.DataFrame) -> None:
    timed = tasks.with_columns(at=pl.int_range(len(tasks)) * 3600.0)
    found = compared(timed, budget=1, every="7d", carry=1, time="at", policies=["model-only", "greedy"], trials=1)
    assert "1 every 7d carry 1" in found.title
    with pytest.raises(InvalidArgument, match="every=… and until_end=… are two budgets"):
        compared(timed, budget=1, every="7d", until_end=True, time="at")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cost": "minuts"}, r"The table has no column 'minuts' for the cost. Did you mean 'minutes'\?.*with cost=….$"),
        (
            {"context": "size"},
            "No column of The table matches .* Name them with context=…, as in context='age,country'",
        ),
        ({"policies": ["gredy"]}, "There is no policy 'gredy'"),
        ({"budget": -1}, "Got '-1' instead"),
        ({"colour": "red"}, "has no parameter 'colour'"),
    ],
)
def test_mistakes_are_told_in_the_words_of_python(tasks: pl.DataFrame, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        compared(tasks, **given)
    assert "--" not in str(caught.value)
    assert "parquet" not in str(caught.value).replace("CSV, Parquet", "")


def test_a_comparison_shows_itself_and_is_saved(tasks: pl.DataFrame, tmp_path: Path) -> None:
    found = compared(tasks.with_columns(x_score=pl.Series([0.5 + i % 50 / 100 for i in range(300)])))
    shown, html = repr(found), found._repr_html_()
    assert "The table" in shown
    assert "parquet" not in shown + html
    for row in found.rows:
        assert row["policy"] in shown
        assert f">{row['policy']}<" in html
    assert "confidence='none'" in shown
    assert "--confidence" not in shown
    assert {"concat", "config"} <= set(found.plot().to_dict())
    page = found.save(tmp_path / "compared.html").read_text()
    assert "vegaEmbed" in page
    assert "http://" not in page.split("<script>")[0]
    with pytest.raises(deferkit.UnwritableState, match="cannot be written"):
        found.save(tmp_path / "no such folder" / "compared.html")


def test_a_plan_of_a_frame_is_that_of_the_command(tasks: pl.DataFrame, tmp_path: Path, said: Runner) -> None:
    path = tmp_path / "named.csv"
    tasks.write_csv(path)
    options = [word for name, value in COLUMNS.items() for word in ("--" + name.replace("_", "-"), value)]
    words = ["--policy", "greedy", "--trials", "2", "--unit", "minutes", "--out", str(tmp_path / "out")]
    wanted = json.loads(said("plan", str(path), "--json", *words, *options).out)
    made = deferkit.plan(
        pd.DataFrame(tasks.to_dict(as_series=False)), policy="greedy", trials=2, unit="minutes", **COLUMNS
    )
    assert made.headline == wanted["headline"]
    assert made.as_data()["curves"] == wanted["curves"]
    assert made.needed == next(each["budget"] for each in wanted["curves"][1]["needed"] if each["level"] == 95)
    frame = made.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == sum(len(curve["points"]) for curve in wanted["curves"])
    assert made.headline in repr(made)
    assert "<table>" in made._repr_html_()
    assert "hconcat" in made.plot().to_dict() or "concat" in made.plot().to_dict()
    page = made.save(tmp_path / "plan.html").read_text()
    assert "The table" in page
    assert str(tmp_path) not in page
    assert "figures/plan" not in page


def judged(rows: dict[str, list[float]], model: float = 10.0) -> str:
    """Return the verdict on rewards by policy and stream."""
    cells = [(name, seed, reward) for name, all_ in rows.items() for seed, reward in enumerate(all_)]
    frame = pl.DataFrame(cells, schema=["policy", "seed", "reward"], orient="row").with_columns(model=pl.lit(model))
    return " ".join(verdict(frame, list(rows)))


def test_the_verdict_is_on_the_best_rule_without_learning() -> None:
    default = [18.0, 20.0, 19.0, 19.0]
    clear = judged({"default": default, "random": [11.0, 12.0, 11.0, 12.0], "best-reject": [14.0, 15.0, 14.0, 15.0]})
    assert "default gains 9.00 over the model alone, the best rule without learning (best-reject) 4.50" in clear
    assert ", which is more than chance." in clear
    assert "a rule without learning does as well" in judged({"default": default, "threshold": [20.0, 18.0, 18.5, 19.0]})
    assert "it does better here" in judged({"default": default, "threshold": [21.0, 23.0, 22.5, 22.0]})
    assert "one stream does not tell" in judged({"default": [18.0], "threshold": [12.0]})
    assert judged({"default": default, "opt": default}) == judged({"random": default}) == ""


def test_what_others_exceed_is_not_shown_as_achievable() -> None:
    rows = [("achievable", seed, 14.0) for seed in range(4)] + [("default", seed, 16.0 + seed) for seed in range(4)]
    frame = pl.DataFrame(rows, schema=["policy", "seed", "reward"], orient="row")
    assert not is_bound(frame)
    assert is_bound(frame.with_columns(reward=pl.col("reward") + 3.5 * (pl.col("policy") == "achievable")))
    assert is_bound(frame.with_columns(policy=pl.col("policy").replace("default", "opt")))


def test_run_ends_with_a_verdict_and_says_from_where_on_it_pays(tmp_path: Path) -> None:
    found = deferkit.compare(many(tmp_path, 600), budget="30%", policies=["model-only", "random", "default"], trials=3)
    assert found.remarks[-1].startswith("Verdict: default gains ")
    assert "which is more than chance. It is ahead from task" in found.remarks[-1]


def test_items_that_come_again_are_in_one_fold() -> None:
    items = np.random.default_rng(0).random((100, 3))
    contexts = np.vstack([items, items[::-1], items[:50]])
    fold = folds_of(contexts)
    assert (fold[:100] == np.arange(100) % 5).all()
    assert (fold[100:200] == fold[:100][::-1]).all()
    assert (fold[200:] == fold[:50]).all()
    kinds = np.eye(2)[np.arange(400) % 2]
    assert (folds_of(kinds) == np.arange(400) % 5).all()


@pytest.mark.parametrize("seed", range(3))
def test_achievable_does_not_remember_items(seed: int) -> None:
    # nothing is to be learned but the items themselves: trees that have seen one gain about 100 or more
    rng = np.random.default_rng(seed)
    items, chance = rng.random((60, 1)), rng.random((60, 2)) < 0.5
    again = rng.permutation(np.repeat(np.arange(60), 10))
    stream = TaskStream(items[again], chance[again].astype(float), np.ones((600, 1, 1)))
    gained = (Achievable(stream).at(150.0) * stream.rewards).sum() - stream.rewards[:, 0].sum()
    assert abs(gained) < 60
