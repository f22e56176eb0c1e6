"""A table of one's own as a world: what is read, what is refused and in which words."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deferkit import Encoder, InvalidArgument
from deferkit.study import baselines
from deferkit.study.allowance import Allowance, asking_always, remark
from deferkit.study.confidence import confidence, cross_validated
from deferkit.study.policies import LEARNERS, POLICIES, check_hindsight, needs_hindsight, sure_cost
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from deferkit.worlds import make_world
from deferkit.worlds.stream import Stream
from deferkit.worlds.table import Table
from tests.test_cli import deferkit

HEAD = "x_size,x_kind,model_reward,human_reward,cost\n"
ROWS = "3,a,1,1,2\n9,b,0,1,4\n5,a,1,0,3\n"


def written(folder: Path, text: str, name: str = "tasks.csv") -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def stream_of(folder: Path, text: str, **given: Any) -> Stream:
    return Table(path=written(folder, text), order="file", **given).draw(0)


def many(folder: Path, n: int = 400, *, lost: int = 0, seed: int = 0, name: str = "tasks.csv") -> str:
    """Write tasks in which the human is better at kind b; of the first `lost` ones nobody was asked."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["a", "b"], n)
    model = (rng.random(n) < np.where(kind == "a", 0.9, 0.3)).astype(int)
    human = (rng.random(n) < 0.8).astype(int).astype(object)
    cost = (0.01 * (1 + rng.random(n))).round(5).astype(object)
    human[:lost], cost[:lost] = "", ""
    size = rng.standard_normal(n).round(3)
    rows = zip(size, kind, model, human, cost, strict=True)
    return written(folder, HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows), name)


def test_columns_are_encoded_exactly_as_rows_are() -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "a": rng.lognormal(2, 2, 300),
        "b": [None if rng.random() < 0.2 else int(v) for v in rng.integers(0, 9, 300)],
        "k": [None if rng.random() < 0.2 else str(v) for v in rng.choice(list("abcdef"), 300)],
        "m": list(rng.choice(np.array([True, False]), 300)),
    }
    columns["a"][::7] = np.nan
    rows = [{name: column[i] for name, column in columns.items()} for i in range(300)]
    one = Encoder(numbers=["a", "b"], categories={"k": 3, "m": ["True", "False"]})
    for row in rows:
        one.see(row)
    np.testing.assert_array_equal(one.encode_columns(columns), [one.encode(row) for row in rows])
    other = Encoder(numbers=["a", "b"], categories={"k": 3, "m": ["True", "False"]})
    for part in (slice(0, 100), slice(100, 300)):
        other.see_columns({name: column[part] for name, column in columns.items()})
    assert other.levels == one.levels
    for name in ("a", "b"):
        np.testing.assert_allclose(other.scales[name], one.scales[name], rtol=1e-12)
    with pytest.raises(InvalidArgument, match="finite number"):
        one.encode_columns({"a": np.array([math.inf])})
    with pytest.raises(InvalidArgument, match="finite number"):
        one.encode_columns({"a": ["12"]})
    with pytest.raises(InvalidArgument, match="columns of one length"):
        one.encode_columns({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(InvalidArgument, match="'c' that the encoder does not know"):
        one.encode_columns({"c": [1.0]})


def test_a_table_by_hand(tmp_path: Path) -> None:
    """Sizes 3, 9, 5 (mean 17/3) and two kinds; one over √3 for each of intercept, number and category."""
    stream = stream_of(tmp_path, HEAD + ROWS)
    size = np.array([3.0, 9.0, 5.0])
    scaled = (size - size.mean()) / (3 * size.std())
    kinds = np.array([[1, 0], [0, 1], [1, 0]])
    np.testing.assert_allclose(stream.contexts, np.column_stack([np.ones(3), scaled, kinds]) / math.sqrt(3))
    np.testing.assert_array_equal(stream.rewards, [[1, 1], [0, 1], [1, 0]])
    np.testing.assert_array_equal(stream.costs[:, 0, 0], [2, 4, 3])
    assert (stream.link, stream.complete, stream.remark, stream.truth) == ("logistic", True, "", None)


def test_all_kinds_of_file_hold_the_same(tmp_path: Path) -> None:
    text = HEAD + ROWS
    plain = Table(path=written(tmp_path, text), order="file").draw(0)
    semicolons = text.replace(",", ";")
    others = {
        "bom.csv": "\ufeff" + text,
        "semicolon.csv": semicolons,
        "tab.csv": text.replace(",", "\t"),
        "crlf.csv": text.replace("\n", "\r\n"),
        "blank.csv": text.replace("9,b", "\n9,b") + "\n\n",
        "quoted.csv": text.replace("3,a", '"3","a"').replace("x_size", '"x_size"'),
        "spaces.csv": text.replace(",", " , "),
        "truths.csv": text.replace("1,1,2", "True,true,2").replace("0,1,4", "False,TRUE,4"),
    }
    paths = [written(tmp_path, other, name) for name, other in others.items()]
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(text.encode()))
    frame = pl.read_csv(text.encode())
    frame.write_parquet(tmp_path / "numbers.parquet")
    odd: Any = {
        "model_reward": pl.Boolean,
        "x_kind": pl.Categorical,
        "cost": pl.Decimal(10, 2),
        "x_size": pl.Int8,
    }
    frame.cast(odd).write_parquet(tmp_path / "kinds.parquet")
    for path in [*paths, *(str(tmp_path / n) for n in ("packed.csv.gz", "numbers.parquet", "kinds.parquet"))]:
        stream = Table(path=path, order="file").draw(0)
        np.testing.assert_array_equal(stream.contexts, plain.contexts, err_msg=path)
        np.testing.assert_array_equal(stream.rewards, plain.rewards, err_msg=path)
        np.testing.assert_array_equal(stream.costs, plain.costs, err_msg=path)


def test_columns_are_chosen_by_name_and_glob(tmp_path: Path) -> None:
    text = "a,b,c,m,h,euros\n1,2,3,0.5,0.7,1\n4,5,9,0.1,0.9,2\n"
    names = {"model_reward": "m", "human_reward": "h", "cost": "euros"}
    for context, width in (("a", 2), ("a,b", 3), ("*", 4), ("[ab]", 3), ("a, c", 3)):
        assert stream_of(tmp_path, text, context=context, **names).contexts.shape == (2, width)
    for context, words in (
        ("h", "is an outcome"),
        ("a,z*", "No column .* matches the context 'z.'"),
        ("aa", "Its col"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            stream_of(tmp_path, text, context=context, **names)
    with pytest.raises(InvalidArgument, match="three columns"):
        stream_of(tmp_path, text, context="a", model_reward="m", human_reward="m", cost="euros")
    with pytest.raises(InvalidArgument, match="'order' of a Table must be one of 'shuffled', 'file'. Got 'sorted'"):
        Table(path=written(tmp_path, HEAD + ROWS), order="sorted")


def test_a_seed_is_an_order(tmp_path: Path) -> None:
    world = Table(path=many(tmp_path))
    one, again, other = world.draw(1), world.draw(1), world.draw(2)
    np.testing.assert_array_equal(one.contexts, again.contexts)
    assert not np.array_equal(one.costs, other.costs)
    assert sorted(one.costs.ravel()) == sorted(other.costs.ravel())
    with pytest.raises(InvalidArgument, match="'seed' of a Table"):
        world.draw(-1)


def test_kept_results_are_those_of_the_content(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + ROWS)
    before = Spec.of(path, {}, policy="opt", budget="10%")
    assert Spec.of(path, {}, policy="opt", budget="10%").key == before.key
    assert before.world_parameters["digest"]
    assert make_world(before.world, before.world_parameters).draw(0).n_tasks == 3
    written(tmp_path, HEAD + ROWS + "1,a,1,0,3\n")
    assert Spec.of(path, {}, policy="opt", budget="10%").key != before.key
    with pytest.raises(InvalidArgument, match="has changed since"):
        make_world(before.world, before.world_parameters)


BAD = {
    "": "is empty",
    HEAD: "has no rows below its header",
    HEAD + "\n\n": "no rows below its header",
    HEAD + "3,a,1,1,2\n": "has one row. A table of tasks needs at least 2",
    (HEAD + ROWS).replace("model_reward", "model_rewrad"): "no column 'model_reward' for the model's reward. Did you "
    "mean 'model_rewrad'. Its columns: x_size, x_kind, model_rewrad",
    (HEAD + ROWS).replace("cost", "price"): "no column 'cost' for the cost. Its columns",
    (HEAD + ROWS).replace("x_", "f_"): "No column of .* matches the context 'x_.'",
    HEAD + ROWS + "5,a,good,0,3\n": "The model_reward in row 5 of .* is 'good', which is not a number.$",
    HEAD + ROWS + "\n5,a,1,0,dear\n": "The cost in row 6 of .* is 'dear', which is not a number",
    HEAD + ROWS + "5,a,1,0,true\n": "The cost in row 5 of .* is 'true', which is not a number",
    HEAD + ROWS + '5,a,"0,5",0,3\n': "is '0,5', which is not a number. Decimals need a point, not a comma",
    HEAD + '"1,5",a,1,0,3\n"2,5",a,1,0,3\n': "The x_size in row 2 .* '1,5'.* Decimals need a point, not a comma",
    HEAD + ROWS + "5,a,1,0,-3\n": r"The cost in row 5 of .* is below 0 \(-3\)",
    HEAD + ROWS + "5,a,inf,0,3\n": r"The model_reward in row 5 of .* is infinite or too large \(inf\)",
    HEAD + ROWS + "5,a,1,0,1e999\n": "The cost in row 5 of .* is infinite",
    HEAD + ROWS + "-inf,a,1,0,1\n": "The x_size in row 5 of .* is infinite",
    HEAD + ROWS + "5,a,,0,3\n": "The model_reward in row 5 of .* is missing",
    HEAD + ROWS + "5,a,NaN,0,3\n": "The model_reward in row 5 of .* is missing",
    HEAD + "3,a,1,,2\n9,b,0,,4\n": "No row of .* has both a human_reward and a cost: nobody was ever asked",
    HEAD.replace("x_kind", "x_size") + ROWS: "has 2 columns with the name 'x_size'",
    HEAD.replace("x_kind,", ",,") + ROWS: "has 2 columns with no name",
    HEAD + ROWS + "5,a,1,0,3,7\n": "a row has more cells than the header has names",
    HEAD + '"5,a,1,0,3\n5,a,1,0,3\n': "a quote is opened and never closed",
    HEAD + "\0\1\2" + ROWS: "is not text, but something binary",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match=BAD[text]) as caught:
        make_world(written(tmp_path, text), {})
    assert "\n" not in str(caught.value)


def test_what_is_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "latin.csv").write_bytes((HEAD + "3,ä,1,1,2\n" + ROWS).encode("latin1"))
    (tmp_path / "not.csv.gz").write_text(HEAD + ROWS)
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress((HEAD + ROWS).encode())[:-9])
    (tmp_path / "not.parquet").write_text(HEAD + ROWS)
    (tmp_path / "tasks.xlsx").write_text(HEAD + ROWS)
    frame = pl.read_csv((HEAD + ROWS).encode())
    frame.with_columns(x_when=pl.date(2024, 1, 1)).write_parquet(tmp_path / "date.parquet")
    frame.with_columns(cost=pl.date(2024, 1, 1)).write_parquet(tmp_path / "cost.parquet")
    for name, words in {
        "folder.csv": "is a directory",
        "none.csv": "There is no file .*none.csv",
        "latin.csv": "is not UTF-8 text",
        "not.csv.gz": "cannot be unpacked",
        "cut.csv.gz": "cannot be unpacked",
        "not.parquet": "cannot be read as Parquet",
        "tasks.xlsx": "is not a table by its name: that ends with .csv, .csv.gz, .tsv, .parquet",
        "date.parquet": "'x_when' .* is Date; a context is a number or a text",
        "cost.parquet": "'cost' .* must hold numbers. It holds Date",
    }.items():
        with pytest.raises(InvalidArgument, match=words) as caught:
            make_world(str(tmp_path / name), {})
        assert "\n" not in str(caught.value)
    nothing: list[Any] = ["moon", "synthetic2", "tasks.txt", 7]
    for name in nothing:
        with pytest.raises(InvalidArgument, match="There is no world .* A path to a CSV or Parquet file is one too"):
            make_world(name, {})
    with pytest.raises(InvalidArgument, match="Did you mean 'synthetic'?"):
        make_world("synthtic", {})


def test_missing_cells_of_a_context_and_rare_levels(tmp_path: Path) -> None:
    kinds = [f"k{i % 5}" for i in range(60)] + [f"rare{i}" for i in range(40)]
    lines = [f"{'' if i % 10 == 0 else i},{kind},{i % 2},1,1\n" for i, kind in enumerate(kinds)]
    stream = stream_of(tmp_path, HEAD + "".join(lines))
    # intercept, size and its missing, 20 levels and the others
    assert stream.contexts.shape == (100, 1 + 2 + 20 + 1)
    assert "x_kind has 45 levels; all but the 20 most frequent are 'other'." in stream.remark
    other = stream.contexts[:, -1] > 0
    assert other.sum() == 25
    np.testing.assert_array_equal(np.flatnonzero(stream.contexts[:, 2] > 0), np.arange(0, 100, 10))


def test_a_column_of_numbers_and_texts(tmp_path: Path) -> None:
    lines = [f"{'?' if i == 7 else i},{i if i % 2 else 'odd'},{i % 2},1,1\n" for i in range(20)]
    stream = stream_of(tmp_path, HEAD + "".join(lines))
    assert "1 cell is not a number in x_size ('?' in row 9) and counted as missing." in stream.remark
    assert "x_kind is taken as a category: some of it is numbers, some is not ('odd' in row 2)." in stream.remark
    np.testing.assert_array_equal(np.flatnonzero(stream.contexts[:, 2] > 0), [7])


def test_rewards_that_are_not_0_or_1_are_linear(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, HEAD + ROWS + "4,b,-250.5,1e6,0\n")
    assert stream.link == "identity"
    assert stream.rewards.tolist()[-1] == [-250.5, 1e6]


def outcomes(path: str, budget: str, *policies: str, **given: Any) -> dict[str, dict[str, Any]]:
    rows = run_together([Spec.of(path, {}, policy=name, budget=budget, **given) for name in policies], 0)
    assert not [row for row in rows if "failure" in row], rows
    return dict(zip(policies, rows, strict=True))


def test_a_table_on_which_a_learner_gains(tmp_path: Path) -> None:
    """Costs are near 0.015, so that a cost that is sure to cover all of them must not be 3."""
    path = many(tmp_path, 3_000)
    rows = outcomes(path, "30%", "model-only", "arbitrary-human", "threshold", "best-reject", "default", "opt")
    assert rows["default"]["gain"] > rows["arbitrary-human"]["gain"] + 10
    assert rows["best-reject"]["gain"] > rows["arbitrary-human"]["gain"] + 10
    assert rows["opt"]["gain"] == 100
    assert all(row["spent_pct"] <= 100 + 1e-9 for row in rows.values())
    assert rows["default"]["spent_pct"] > 95


def test_where_nobody_was_asked_nothing_is_made_up(tmp_path: Path) -> None:
    path = many(tmp_path, 600, lost=150)
    stream = make_world(path, {}).draw(0)
    assert not stream.complete
    assert stream.askable.sum() == 450
    assert sure_cost(stream) == np.nanmax(stream.costs)
    assert asking_always(stream) == pytest.approx(np.nansum(stream.costs))
    working = [name for name in POLICIES if not needs_hindsight(name)]
    assert working == ["model-only", *LEARNERS]
    for name in set(POLICIES) - set(working):
        with pytest.raises(
            InvalidArgument, match=f"The policy '{name}' needs .* missing in 150 of 600 rows. .* work: m"
        ):
            check_hindsight(name, stream)
    rows = outcomes(path, "30%", "model-only", "default", "adaptive", trace="path")
    for row in rows.values():
        for name in ("reward", "spent", "spent_pct", "defer_rate", "model"):
            assert math.isfinite(row[name]), name
        for name in ("gain", "regret", "pct_opt", "opt", "opt_price", "opt_spent"):
            assert math.isnan(row[name]), name
        assert np.isfinite(row["spent_at"]).all()
    assert rows["default"]["reward"] > rows["model-only"]["reward"]
    assert 0 < rows["default"]["spent_pct"] <= 100
    (failed,) = run_together([Spec.of(path, {}, policy="opt", budget="5")], 0)
    assert "missing in 150 of 600 rows" in failed["failure"]


def test_asking_that_is_free(tmp_path: Path) -> None:
    text = HEAD + "".join(f"{i},{'ab'[i % 2]},{i % 2},{1 - i % 2},0\n" for i in range(200))
    path = written(tmp_path, text)
    stream = make_world(path, {}).draw(0)
    for budget in ("10%", "5", "0.1T", "0"):
        assert Allowance.from_text(budget).total(stream) == math.inf
    assert remark(math.inf, stream) == "Asking costs nothing here, so that no budget binds and the price is 0."
    rows = outcomes(path, "10%", "arbitrary-human", "best-reject", "default", "opt")
    assert rows["opt"]["reward"] == 200
    assert rows["default"]["gain"] > 60
    assert rows["arbitrary-human"]["defer_rate"] == 100


def test_equal_rewards_and_equal_contexts_are_remarked_on(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "3,a,1,1,2\n" * 30)
    stream = make_world(path, {}).draw(0)
    assert stream.contexts.shape[1] == 2
    assert "All contexts are equal" in stream.remark
    assert "The human earns more than the model in no task: OPT is ModelOnly" in stream.remark
    rows = outcomes(path, "50%", "model-only", "threshold", "best-reject", "default", "opt")
    assert all(math.isnan(row["gain"]) for row in rows.values())


@pytest.mark.parametrize("logistic", [False, True])
def test_confidence_is_that_of_the_other_folds(logistic: bool) -> None:
    """Against the same regression written out for one fold, and nothing of a reward in its own estimate."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((503, 3))
    mean = 1 / (1 + np.exp(-x @ [1.0, -2.0, 0.5] - 0.3))
    y = (rng.random(503) < mean).astype(float) if logistic else 5 + x @ [1.0, 2.0, 3.0] + rng.standard_normal(503)
    found = cross_validated(x, y, logistic=logistic)
    others = np.arange(503) % 5 != 2
    design, ridge = np.column_stack([np.ones(503), x]), np.diag([1e-6, 1, 1, 1])
    theta = np.zeros(4)
    for _ in range(30 if logistic else 1):
        p = 1 / (1 + np.exp(-design @ theta)) if logistic else design @ theta
        w = (p * (1 - p) if logistic else np.ones(503))[others]
        curved = (design[others] * w[:, None]).T @ design[others] + ridge
        theta = theta + np.linalg.solve(curved, design[others].T @ (y - p)[others] - ridge @ theta)
    linear = design[~others] @ theta
    np.testing.assert_allclose(found[~others], 1 / (1 + np.exp(-linear)) if logistic else linear, atol=1e-5)
    changed = y.copy()
    changed[2::5] = 1 - changed[2::5]
    again = cross_validated(x, changed, logistic=logistic)
    np.testing.assert_allclose(again[2::5], found[2::5], rtol=1e-12, atol=1e-12)
    assert np.abs(again - found).max() > 1e-3


def test_rules_do_not_peek_at_the_models_outcome() -> None:
    """Contexts that say nothing: whoever knew the outcome would ask only where the model fails."""
    rng = np.random.default_rng(0)
    n = 4_000
    rewards = np.column_stack([rng.random(n) < 0.5, np.ones(n)]).astype(float)
    stream = Stream(rng.standard_normal((n, 3)), rewards, np.ones((n, 1, 1)), link="logistic")
    for rule in (baselines.threshold, baselines.best_reject):
        asked = rule(stream, [800.0], 1.0) == 1
        assert 300 < asked.sum() <= 800
        assert rewards[asked, 0].mean() == pytest.approx(0.5, abs=0.08)
    assert confidence(stream) is confidence(stream)  # solved once for all budgets


def test_run_on_a_table(tmp_path: Path) -> None:
    path = many(tmp_path, 300)
    done = deferkit("run", path, "--trials", "2", "--plot", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "300 tasks, budget" in said
    assert "(10%)" in said
    assert "2 trials from seed 0" in said
    names = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(" ") and line.split()]
    assert [name for name in names if name in POLICIES] == [
        "model-only",
        "arbitrary-human",
        "best-reject",
        "default",
        "opt",
    ]
    assert (tmp_path / "results" / "figures" / "run.png").exists()


def test_run_on_a_table_where_nobody_was_asked(tmp_path: Path) -> None:
    path = many(tmp_path, 300, lost=100)
    done = deferkit("run", path, "--trials", "2", "--json", "--plot", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["policy"] for row in rows] == ["model-only", "default"]
    assert all(row["gain"] is None and row["regret"] is None and row["pct_opt"] is None for row in rows)
    said = " ".join(done.stderr.split())
    assert "In 100 of 300 tasks the human was never asked" in said
    assert "So these are compared: model-only, default." in said
    done = deferkit("run", path, "--policy", "opt")
    assert done.returncode == 2
    assert "missing in 100 of 300 rows" in done.stderr


def test_options_of_another_world_are_refused_by_their_names(tmp_path: Path) -> None:
    path = many(tmp_path, 20)
    for words, message in (
        (["run", path, "--features", "3"], "has no option --features. It has: --context, --model-reward"),
        (["run", "synthetic", "--people", "a"], "has no option --people. It has: --regime, --horizon"),
        (["run", path, "--cost", "euros"], "has no column 'euros' for the cost"),
        (["run", path, "--data", "/nowhere"], "There is no directory /nowhere"),
        (["run", "tasks.csv"], "There is no file tasks.csv"),
    ):
        done = deferkit(*words)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
    done = deferkit("run", path, "--trials", "1", "--budget", "0.01")
    assert "is less than one task can cost" in " ".join(done.stdout.split())
