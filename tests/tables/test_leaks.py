"""Columns that say what came of a task, and a single odd reward, are named when a table is read."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from deferkit.worlds.table import Table
from tests.table_files import many


def remarks(folder: Path, table: pl.DataFrame) -> str:
    path = folder / "leak.csv"
    table.write_csv(path)
    return Table(path=str(path)).draw(0).remark


@pytest.fixture
def table(tmp_path: Path) -> pl.DataFrame:
    return pl.read_csv(many(tmp_path, 599))


def test_nothing_is_said_of_an_honest_table(table: pl.DataFrame, tmp_path: Path) -> None:
    honest = table.with_columns(
        x_confidence=0.9 * pl.col("model_reward") + 0.1 * pl.Series(np.random.default_rng(0).normal(0, 4, 599)),
        x_predicted_label=pl.col("x_kind"),
        x_time=pl.int_range(599) % 24,
    )
    assert "leave it out" not in remarks(tmp_path, honest)


@pytest.mark.parametrize(
    ("column", "outcome"),
    [
        (pl.col("model_reward"), "model_reward"),
        (1 - pl.col("human_reward"), "human_reward"),
        (pl.col("cost") ** 2 + 3, "cost"),
        (pl.when(pl.col("model_reward") == 1).then(pl.lit("ok")).otherwise(pl.lit("wrong")), "model_reward"),
    ],
)
def test_a_column_that_predicts_an_outcome_is_named(
    table: pl.DataFrame, tmp_path: Path, column: pl.Expr, outcome: str
) -> None:
    said = remarks(tmp_path, table.with_columns(x_leak=column))
    assert f"x_leak predicts {outcome} almost perfectly (100 %)." in said
    assert "If it is known only afterwards, leave it out: --context x_size,x_kind." in said
    assert "x_size predicts" not in said


@pytest.mark.parametrize("name", ["x_human_label", "x_reviewMinutes", "x_ground truth", "x_Prüfung Dauer"])
def test_a_name_of_something_that_is_known_afterwards_is_named(table: pl.DataFrame, tmp_path: Path, name: str) -> None:
    said = remarks(tmp_path, table.with_columns(pl.Series(name, np.random.default_rng(0).random(599).round(3))))
    assert f"{name} sounds like something that is known only after the decision. If it is, leave it out" in said


def test_a_single_odd_reward_is_named(table: pl.DataFrame, tmp_path: Path) -> None:
    at = pl.int_range(pl.len()) == 35
    odd = table.with_columns(model_reward=pl.when(at).then(1.5).otherwise(pl.col("model_reward")))
    said = remarks(tmp_path, odd)
    assert "All rewards but 1 of 1,198 are 0 or 1 (1.5 in row 37 of model_reward)" in said
    many_odd = table.with_columns(model_reward=pl.col("model_reward") * 0.5)
    assert "All rewards but" not in remarks(tmp_path, many_odd)
