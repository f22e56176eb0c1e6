"""Past reviews in a table: `Deferrer.from_table`, and `deferkit run history.csv --then new.csv`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deferkit import Budget, Deferrer, Encoder, InvalidArgument
from deferkit.study.allowance import asking_always
from deferkit.study.policy_registry import make_learner, range_of, sure_cost
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from deferkit.worlds import make_world
from deferkit.worlds.table import Table
from tests.command_line import Runner
from tests.table_files import HEAD, many, written

BUDGET = Budget(2, horizon=500, max_cost=0.02)
CELLS: dict[str, list[Any]] = {
    "x_size": [1.0, 9.0, None, 4.0] * 5,
    "x_kind": ["a", "b", "b", None] * 5,
    "model_reward": [1, 0, None, 1] * 5,
    "human_reward": [None, 1, None, 0] * 5,
    "cost": [None, 2.5, None, 1.5] * 5,
}


def by_hand() -> Deferrer:
    encoder = Encoder(numbers=["x_size"], categories={"x_kind": ["b", "a"]})
    budget = Budget(20, horizon=100, max_cost=5)
    deferrer = Deferrer(encoder=encoder, budget=budget, link="auto", seed=3, defaults="2026.12")
    contexts = {name: CELLS[name] for name in ("x_size", "x_kind")}
    numbers = {
        name: [np.nan if cell is None else cell for cell in column]
        for name, column in CELLS.items()
        if name != "x_kind"
    }
    rewards = {"model": numbers["model_reward"], "human": numbers["human_reward"]}
    deferrer.warm_start(contexts, rewards, cost=numbers["cost"])
    return deferrer


def as_file(folder: Path) -> str:
    rows = zip(*CELLS.values(), strict=True)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    return written(folder, ",".join(CELLS) + "\n" + "\n".join(lines) + "\n", "past.csv")


@pytest.mark.parametrize("form", ["columns", "polars", "pandas", "path", "parquet"])
def test_a_table_in_any_form_is_the_warm_start_by_hand(form: str, tmp_path: Path) -> None:
    """Rows in which nobody was asked, in which nobody knows anything, and missing features are all there."""
    table: Any = {
        "columns": CELLS,
        "polars": pl.DataFrame(CELLS),
        "pandas": pd.DataFrame(CELLS),
        "path": Path(as_file(tmp_path)),
        "parquet": str(tmp_path / "past.parquet"),
    }[form]
    pl.DataFrame(CELLS).write_parquet(tmp_path / "past.parquet")
    made = Deferrer.from_table(table, budget=Budget(20, horizon=100, max_cost=5), seed=3)
    assert made == by_hand()
    assert Deferrer.from_bytes(made.to_bytes()) == made
    assert made.decide({"x_size": 8.0, "x_kind": "b"}).route == "human"


def test_what_was_learned_decides_from_the_first_task_on(tmp_path: Path) -> None:
    learner = Deferrer.from_table(many(tmp_path, 1_000), budget=BUDGET)
    assert learner.settings.link == "auto"
    reasons = [learner.propose({"x_size": 0.0, "x_kind": kind}).decision for kind in ("a", "b")]
    assert [each.route for each in reasons] == ["model", "human"]
    assert all(each.reason != "warm-up" for each in reasons)


def test_rewards_of_another_kind_and_settings_that_are_given() -> None:
    cells = CELLS | {"model_reward": [10.0, -3.0] * 10}
    made = Deferrer.from_table(cells, budget=Budget(5, horizon=100))
    assert made.settings.link == "identity"
    assert made.settings.reward_range == (-np.inf, np.inf)
    assert Deferrer.from_table(CELLS, link="identity", ridge=2.0).settings.ridge == 2.0


class Team(Deferrer):
    """A learner of somebody's own."""


def test_another_expert_and_a_subclass() -> None:
    team = Team.from_table(
        CELLS, experts=["ann", "bo"], expert="bo", budget={"minutes": Budget(9, horizon=90, max_cost=5)}
    )
    assert isinstance(team, Team)
    seen = team.coefficients()
    assert np.any(seen["cost of bo"].theta != 0)
    assert not np.any(seen["cost of ann"].theta[: team.settings.n_features] != 0)  # columns have a prior


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        (CELLS, {"cost": "minutes"}, "The table has no column 'minutes' for the cost. Its columns: x_size"),
        (CELLS, {"context": "z_*"}, "No column of The table matches the context 'z_.'"),
        (CELLS, {"context": 3}, "The 'context' of a Deferrer.from_table must be a name of a column. Got 3"),
        (CELLS, {"cost": "model_reward"}, "Rewards and cost must be three columns"),
        (CELLS, {"encoder": Encoder(numbers=["a"])}, "The 'encoder' of Deferrer.from_table comes from the table"),
        (CELLS, {"n_features": 3}, "The 'n_features' of Deferrer.from_table comes from the table"),
        (CELLS, {"expert": "zoe"}, "There is no decider 'zoe'|There is no expert 'zoe'"),
        (
            CELLS,
            {"budget": {"a": BUDGET, "b": BUDGET}},
            "A table has one column of costs. Got a budget of 2 resources.",
        ),
        (
            CELLS,
            {"budget": Budget(2, horizon=9, max_cost=2, strict=True)},
            "The 'cost' must be between 0 and 2. Got 2.5",
        ),
        (CELLS | {"x_size": ["2024-01-02"] * 20}, {}, "The column 'x_size' of The table holds dates, and a Deferrer"),
        (CELLS | {"cost": [-1.0] * 20}, {}, "The cost in row 1 of The table is below 0"),
        (CELLS | {"model_reward": ["good"] * 20}, {}, "The model_reward in row 1 of The table is 'good', which is not"),
        ({name: cells[:4] for name, cells in CELLS.items()}, {}, "at least 16 rows, for the scales. Got 4"),
        (CELLS | {"cost": [1.0]}, {}, "The table cannot be read"),
        ({}, {}, "The table has no rows."),
        (17, {}, "must be a path, a pandas or polars frame, an Arrow table, or columns by name. Got 'int' instead"),
        ("nowhere.csv", {}, "There is no file nowhere.csv."),
    ],
)
def test_what_is_wrong_is_told_in_one_line(table: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        Deferrer.from_table(table, **given)
    assert "\n" not in str(caught.value)


def test_new_tasks_are_read_as_the_past_was(tmp_path: Path) -> None:
    """Scales and levels are those of the past; dates are counted from its first day; its ids are left out."""
    head = "x_id,x_size,x_kind,x_when,model_reward,human_reward,cost\n"
    past = [f"t{i},{i % 7},{'ab'[i % 2]},2024-03-{1 + i % 28:02},1,1,2" for i in range(60)]
    new = [f"same,{i},{'abc'[i % 3]},2024-04-{1 + i:02},0,1,2" for i in range(9)]
    history = written(tmp_path, head + "\n".join(past), "history.csv")
    path = written(tmp_path, head + "\n".join(new), "new.csv")
    stream = Table(path=path, after=history, order="file").draw(0)
    assert stream.past is not None
    assert stream.past.contexts.shape == (60, stream.contexts.shape[1])
    assert stream.n_tasks == 9
    numbers: dict[str, Any] = {"x_size": [i % 7 for i in range(60)], "x_when days": [float(i % 28) for i in range(60)]}
    encoder = Encoder(numbers=["x_size", "x_when days"], categories={"x_kind": ["a", "b"], "x_when weekday": 7})
    encoder.see_columns(numbers)
    mine: dict[str, Any] = {"x_size": list(range(9)), "x_when days": [31.0 + i for i in range(9)]}
    wanted = encoder.encode_columns(mine)[:, [0, 1, 3]]
    assert stream.contexts[:, :3] == pytest.approx(wanted)
    assert f"3 cells of x_kind in {path} have a level that is not in {history}: they are 'other'." in stream.remark
    assert f"Warm start from {history}: 60 past reviews of the human (60 with their cost) and 60" in stream.remark


def test_the_command_is_the_library(tmp_path: Path) -> None:
    history, path = (
        many(tmp_path, 800, lost=300, seed=1, name="history.csv"),
        many(tmp_path, 300, seed=2, name="new.csv"),
    )
    specs = [
        Spec.of(path, {"after": history}, policy="default", budget="10%", policy_parameters=given)
        for given in ({}, {"warm_start": False})
    ]
    warm, cold = run_together(specs, 5)
    stream = make_world(path, {"after": history}).draw(5)
    assert stream.past is not None
    budget = 0.1 * asking_always(stream)
    assert warm["budget"] == pytest.approx(budget)
    for row, use in ((warm, True), (cold, False)):
        learner = make_learner("default", stream, [budget], seed=5)
        if use:
            x, rewards, costs = stream.past
            learner.warm_start(x, {"model": rewards[:, 0], "human": rewards[:, 1]}, cost=costs)
        run = learner.run(stream.contexts, {"model": stream.rewards[:, 0], "human": stream.rewards[:, 1]}, stream.costs)
        assert row["reward"] == pytest.approx(run.reward)
    assert specs[0].key != specs[1].key


def test_a_past_beyond_what_is_to_come(tmp_path: Path) -> None:
    """Costs and rewards of the past may be larger: what is sure to cover a task, and the link, are for both."""
    history = written(tmp_path, HEAD + "3,a,7,2,9\n4,b,1,,\n" * 10, "history.csv")
    stream = Table(path=many(tmp_path, 100), after=history).draw(0)
    assert sure_cost(stream) == 9
    assert stream.link == "identity"
    low, high = range_of(stream)
    assert low <= 1
    assert high >= 7
    (row,) = run_together([Spec.of(str(tmp_path / "tasks.csv"), {"after": history}, policy="default", budget="50")], 0)
    assert "failure" not in row


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    history, path = many(tmp_path, 100, name="history.csv"), many(tmp_path, 100, seed=1)
    spec = Spec.of(path, {"after": history}, policy="default", budget="1")
    many(tmp_path, 100, seed=9, name="history.csv")
    (row,) = run_together([spec], 0)
    assert f"{history} has changed since this was asked for" in row["failure"]


def test_the_past_helps_and_the_report_says_whose_reviews(tmp_path: Path, said: Runner) -> None:
    history, path = many(tmp_path, 900, lost=400, seed=1, name="history.csv"), many(tmp_path, 300, seed=2)
    done = said("run", history, "--then", path, "--budget", "10%", "--trials", "6")
    assert done.code == 0, done.error
    text = "".join(done.out.split())  # long paths are broken anywhere
    assert f"{path},after{history},300tasks,budget" in text
    warm = f"Warm start from {history}: 500 past reviews of the human (500 with their cost) and 900 rewards"
    assert warm.replace(" ", "") in text
    assert "Thepastbringsdefault" in text
    assert "default,cold" in text
    words = ("run", history, "--then", path, "--trials", "6", "--json", "--policy", "never", "--policy", "model-only")
    rows = {row["policy"]: row for row in json.loads(said(*words).out)}
    assert list(rows) == ["never", "never, cold", "model-only"]
    assert rows["never"]["gain"] != rows["never, cold"]["gain"]


def test_the_past_helps_on_short_tables(tmp_path: Path) -> None:
    """By 7 points of gain (se 2) on average over 24 tables of 60 tasks in three orders; at least 3 are asked for."""
    more = []
    for seed in range(1, 49, 2):
        history = many(tmp_path, 900, lost=400, seed=seed, name=f"history {seed}.csv")
        path = many(tmp_path, 60, seed=seed + 1, name=f"tasks {seed}.csv")
        given = {"policy": "never", "budget": "30%"}
        cold = Spec.of(path, {"after": history}, policy_parameters={"warm_start": False}, **given)
        for order in range(3):
            with_past, without = run_together([Spec.of(path, {"after": history}, **given), cold], order)
            more.append(with_past["gain"] - without["gain"])
    assert np.mean(more) > 3


@pytest.mark.parametrize(
    ("history", "new", "message"),
    [
        (
            "x_size,model_reward,human_reward,cost\n3,1,1,2\n4,1,1,2\n",
            None,
            "history.csv has no column 'x_kind', which is",
        ),
        (
            None,
            "x_size,model_reward,human_reward,cost\n3,1,1,2\n4,1,1,2\n",
            "new.csv has no column 'x_kind', which is part",
        ),
        (
            None,
            HEAD + "big,a,1,1,2\nsmall,b,1,1,2\n",
            "The column 'x_size' holds numbers in .*history.csv, but texts in",
        ),
        (HEAD.replace("cost", "price") + "3,a,1,1,2\n" * 3, None, "history.csv has no column 'cost' for the cost"),
        (None, HEAD.replace("cost", "price") + "3,a,1,1,2\n" * 3, "new.csv has no column 'cost' for the cost"),
        (HEAD, None, "history.csv has no rows below its header"),
        (None, HEAD + "3,a,1,,\n" * 3, "No row of .*new.csv has both a human_reward and a cost"),
        (HEAD + "3,a,1,1,-2\n" * 3, None, "The cost in row 2 of .*history.csv is below 0"),
    ],
)
def test_tables_that_do_not_go_together(
    history: str | None, new: str | None, message: str, tmp_path: Path, said: Runner
) -> None:
    paths = [
        many(tmp_path, 50, name=name) if text is None else written(tmp_path, text, name)
        for name, text in (("history.csv", history), ("new.csv", new))
    ]
    done = said("run", paths[0], "--then", paths[1])
    assert (done.code, done.error.count("\n")) == (2, 1)
    with pytest.raises(InvalidArgument, match=message):
        Table(path=paths[1], after=paths[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["synthetic", "--then", "new.csv"],
            "--then is for two tables, as in history.csv --then new.csv. Got 'synthetic'",
        ),
        (["history.csv", "--then", "knapsack"], "Got 'knapsack'."),
        (["history.csv", "--then", "nowhere.csv"], "There is no file"),
    ],
)
def test_then_is_for_tables(words: list[str], message: str, tmp_path: Path, said: Runner, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    many(tmp_path, 50, name="history.csv")
    done = said("run", *words)
    assert (done.code, done.error.count("\n")) == (2, 1)
    assert message in done.error


def test_a_past_in_which_nobody_was_asked(tmp_path: Path, said: Runner) -> None:
    history, path = many(tmp_path, 200, lost=200, name="history.csv"), many(tmp_path, 200, seed=1)
    done = said("run", history, "--then", path, "--trials", "2")
    assert done.code == 0, done.error
    assert "0 past reviews of the human (0 with their cost) and 200 rewards of the model" in " ".join(done.out.split())
