"""The column of a table that is the model's confidence: named, found by name and range, or found by past rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from deferkit import Budget, ConfidenceWarning, Deferrer, InvalidArgument
from deferkit.study.policy_registry import make_learner
from deferkit.tables.rows import is_confidence_name
from deferkit.worlds.table import Table
from tests.command_line import Runner
from tests.table_files import HEAD, written

TAKEN = "The column 'x_score' is taken as the model's confidence (--confidence none to switch that off)."


def rows_of(n: int, names: str, seed: int, *, percent: bool = False, sign: float = 1.0) -> str:
    """Return a table whose first column goes with the model's reward, and whose others are of the same range."""
    rng = np.random.default_rng(seed)
    columns = names.split(",")
    lines = [f"{names},x_size,model_reward,human_reward,cost"]
    for _ in range(n):
        score = rng.random()
        right = rng.random() < 0.5 + sign * (score - 0.5)
        values = [score, *rng.random(len(columns) - 1)]
        cells = [f"{100 * value:.1f}" if percent else f"{value:.3f}" for value in values]
        lines.append(f"{','.join(cells)},{rng.normal():.3f},{right:d},{rng.random() < 0.9:d},{rng.random():.2f}")
    return "\n".join(lines) + "\n"


def made(folder: Path, text: str, **given: str) -> Table:
    return Table(path=written(folder, text, "new.csv"), **given)


@pytest.mark.parametrize(
    "name",
    [
        *("confidence", "x_conf", "x_score", "Probability", "p_max", "x_max_prob", "certainty", "Konfidenz (%)"),
        *("modelConfidence", "Modellsicherheit", "Wahrscheinlichkeit"),
    ],
)
def test_a_confidence_is_known_by_its_name(name: str) -> None:
    assert is_confidence_name(name)


@pytest.mark.parametrize(
    "name", ["x_size", "uncertainty", "entropy", "reviewer_confidence", "credit_score", "Unsicherheit", "problem"]
)
def test_other_names_are_none(name: str) -> None:
    assert not is_confidence_name(name)


@pytest.mark.parametrize("percent", [False, True])
def test_a_column_is_found_by_name_and_range_and_used(tmp_path: Path, percent: bool) -> None:
    world = made(tmp_path, rows_of(60, "x_score,x_other", 0, percent=percent))
    stream = world.draw(seed=1)
    assert TAKEN in stream.remark.splitlines()
    assert stream.confidence is not None
    assert stream.confidence_at is not None
    # the encoded column is the same, scaled, in the order of this seed
    assert np.corrcoef(stream.contexts[:, stream.confidence_at], stream.confidence)[0, 1] > 0.99
    settings = make_learner("default", stream, [5.0], seed=0).settings
    assert (settings.confidence, settings.defaults) == (stream.confidence_at, "2026.12")


def test_a_score_out_of_range_or_with_two_values_is_none(tmp_path: Path) -> None:
    for cells in (["620", "710", "480", "550"], ["0", "1", "1", "0"], ["-0.2", "0.3", "0.5", "0.1"]):
        lines = "".join(f"{cell},{cell}5,1,0,2\n" for cell in cells)
        stream = made(tmp_path, "x_score,x_size,model_reward,human_reward,cost\n" + lines).draw(seed=0)
        assert stream.confidence_at is None
        assert "confidence" not in stream.remark


def test_of_two_candidates_none_is_taken(tmp_path: Path) -> None:
    stream = made(tmp_path, rows_of(60, "x_score,x_prob", 0)).draw(seed=0)
    said = "The columns 'x_score' and 'x_prob' may be the model's confidence: none is taken as that."
    assert any(line.startswith(said) for line in stream.remark.splitlines())
    assert stream.confidence_at is None
    assert make_learner("default", stream, [5.0], seed=0).settings.confidence is None


def test_outcomes_of_the_tasks_to_decide_are_never_looked_at(tmp_path: Path) -> None:
    """The same columns with turned rewards are read in the same way."""
    texts = [rows_of(300, "x_first,x_second", 0, sign=sign) for sign in (1.0, -1.0)]
    for text in texts:
        assert made(tmp_path, text).draw(seed=0).confidence_at is None
    for text in (each.replace("x_first", "x_score") for each in texts):
        assert TAKEN in made(tmp_path, text).draw(seed=0).remark


def test_past_rows_find_a_column_decide_between_two_and_refute_a_name(tmp_path: Path) -> None:
    def found(names: str, sign: float = 1.0) -> str:
        past = written(tmp_path, rows_of(400, names, 1, sign=sign), "past.csv")
        stream = made(tmp_path, rows_of(60, names, 2, sign=sign), after=past).draw(seed=0)
        said = [line for line in stream.remark.splitlines() if "taken as" in line]
        return said[0].split("'")[1] if said else ""

    assert found("x_first,x_second") == "x_first"
    assert found("x_score,x_prob") == "x_score"
    assert found("x_score,x_second", sign=-1.0) == ""


def test_a_column_is_named_or_switched_off(tmp_path: Path) -> None:
    text = rows_of(60, "x_score,sure", 0)
    named = made(tmp_path, text, confidence="sure").draw(seed=0)
    assert named.contexts.shape[1] == made(tmp_path, text).draw(seed=0).contexts.shape[1] + 1  # part of the context
    assert named.confidence is not None
    assert "confidence" not in named.remark
    off = made(tmp_path, text, confidence="none").draw(seed=0)
    assert (off.confidence, off.confidence_at, off.remark) == (None, None, "")
    with pytest.raises(InvalidArgument, match="no column 'sore' for the confidence. Did you mean 'sure'"):
        made(tmp_path, text, confidence="sore")
    with pytest.raises(InvalidArgument, match="'model_reward'.* is an outcome"):
        made(tmp_path, text, confidence="model_reward")
    with pytest.raises(InvalidArgument, match="does not hold numbers"):
        made(tmp_path, HEAD + "3,a,1,1,2\n4,b,1,0,2\n", confidence="x_kind")


@pytest.mark.parametrize("policy", ["default", "linear", "never", "greedy", "interval", "tree", "adaptive", "paper"])
def test_every_learner_runs_with_a_confidence(tmp_path: Path, policy: str) -> None:
    """Those without ranks ignore it."""
    stream = made(tmp_path, rows_of(60, "x_score", 0)).draw(seed=0)
    settings = make_learner(policy, stream, [5.0], seed=0).settings
    assert (settings.confidence is None) == (policy in ("interval", "tree", "paper"))


def test_the_old_rule_and_unbounded_rewards_have_no_prior(tmp_path: Path) -> None:
    stream = made(tmp_path, rows_of(60, "x_score", 0)).draw(seed=0)
    old = make_learner("default", stream, [5.0], seed=0, parameters={"defaults": "2026.11"})
    assert (old.settings.confidence, old.settings.defaults) == (None, "2026.11")
    text = rows_of(60, "x_score", 0).splitlines()
    text[1] = "0.5,0.1,7,3,1"
    graded = made(tmp_path, "\n".join(text) + "\n").draw(seed=0)
    assert make_learner("default", graded, [5.0], seed=0).settings.confidence is None


def test_run_and_plan_say_which_column_is_taken(tmp_path: Path, said: Runner) -> None:
    path = written(tmp_path, rows_of(120, "x_score", 0), "new.csv")
    asked = ("run", path, "--trials", "1", "--policy", "linear", "--policy", "confidence-quantile")
    done = said(*asked)
    assert done.code == 0, done.error
    assert TAKEN in " ".join(done.out.split())
    off = said(*asked, "--confidence", "none")
    assert off.code == 0, off.error
    assert "taken as" not in off.out
    rows = [json.loads(said(*asked, "--json", *more).out) for more in ((), ("--confidence", "none"))]
    assert rows[0] != rows[1]


def test_a_learner_from_a_table_has_the_prior() -> None:
    rng = np.random.default_rng(0)
    score = rng.random(100)
    cells = {
        "x_score": score,
        "x_size": rng.normal(size=100),
        "model_reward": rng.random(100) < score,
        "human_reward": [1, None] * 50,
        "cost": [0.5, None] * 50,
    }
    budget = Budget(10, horizon=100, max_cost=1)
    with pytest.warns(ConfidenceWarning) as caught:
        deferrer = Deferrer.from_table(cells, budget=budget, representation="linear")
    assert [str(each.message) for each in caught] == [TAKEN.replace("--confidence none", "confidence='none'")]
    assert caught[0].filename == __file__
    assert deferrer.settings.confidence == 1  # behind the intercept
    named = Deferrer.from_table(cells, budget=budget, confidence="x_size", representation="linear")
    assert named.settings.confidence == 3
    assert Deferrer.from_table(cells, confidence="none").settings.confidence is None
    assert Deferrer.from_table(cells, defaults="2026.11").settings.confidence is None
    with pytest.raises(InvalidArgument, match="confidence"):
        Deferrer.from_table(cells, defaults="2026.11", confidence="x_score")
    with pytest.raises(InvalidArgument, match="confidence"):
        Deferrer.from_table(cells, confidence=3)  # type: ignore[arg-type]
