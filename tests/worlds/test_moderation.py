"""The made-up table: its file is the world, outcomes follow the probabilities, and only one policy knows them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from deferkit import InvalidArgument
from deferkit.study.spec import Spec
from deferkit.study.trial import Judge, run_together
from deferkit.worlds.moderation import MISSING, Moderation
from deferkit.worlds.table import Table


def test_the_file_of_a_seed_is_its_stream(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    world = Moderation(horizon=400)
    world.write_csv(path, seed=3)
    stream, table = world.draw(3), Table(path=str(path), order="file").draw(0)
    for mine, read in ((stream.contexts, table.contexts), (stream.rewards, table.rewards), (stream.costs, table.costs)):
        np.testing.assert_array_equal(mine, read)
    assert stream.link == table.link == "logistic"
    assert not np.array_equal(world.draw(4).rewards, stream.rewards)


def test_cells_are_missing_as_often_as_they_should_be() -> None:
    items = Moderation(horizon=20_000).items(0)
    for name, cells in items.cells.items():
        lost = np.mean([cell is None for cell in cells])
        assert lost == pytest.approx(MISSING.get(name, 0.0), abs=0.01)


def test_outcomes_follow_the_probabilities_and_the_effect_of_the_score_is_a_valley() -> None:
    items = Moderation(horizon=40_000).items(1)
    for decider in (0, 1):
        chances, came = items.expected_rewards[:, decider], items.rewards[:, decider]
        for low in np.arange(0.2, 1.0, 0.2):
            part = (chances >= low) & (chances < low + 0.2)
            if part.sum() > 200:
                assert came[part].mean() == pytest.approx(chances[part].mean(), abs=5 * 0.5 / np.sqrt(part.sum()))
    assert items.minutes.mean() == pytest.approx(items.expected_minutes.mean(), rel=0.02)
    scored = [
        (float(cell), right) for cell, right in zip(items.cells["x_score"], items.rewards[:, 0], strict=True) if cell
    ]
    score, right = np.array(scored).T
    low, middle, high = (right[abs(score - at) < 0.1].mean() for at in (0.1, 0.5, 0.9))
    assert min(low, high) > middle + 0.1
    assert abs(np.corrcoef(score, right)[0, 1]) < 0.2  # hardly anything of it is linear


def test_informed_is_the_best_rule_for_the_probabilities_and_is_judged_by_outcomes() -> None:
    stream = Moderation(horizon=600).draw(2)
    hidden = stream.hidden
    assert hidden is not None
    choice = Judge(stream).chosen_by("informed", [50.0])
    gain, cost = hidden.rewards[:, 1] - hidden.rewards[:, 0], hidden.costs[:, 0, 0]
    found = linprog(-gain, A_ub=cost[None], b_ub=[50.0], bounds=(0, 1))
    assert choice[:, 1] @ gain == pytest.approx(-found.fun)
    assert choice[:, 1] @ cost == pytest.approx(50.0)
    specs = [Spec.of("moderation", {"horizon": 600}, policy=name, budget="50") for name in ("informed", "opt")]
    informed, opt = run_together(specs, 2)
    assert informed["reward"] == pytest.approx((choice * stream.rewards).sum())
    assert 0 < informed["gain"] < opt["gain"] == 100


def test_informed_is_opt_where_everybody_is_judged_by_the_truth_and_refused_where_nobody_knows(tmp_path: Path) -> None:
    specs = [Spec.of("synthetic", {"horizon": 300}, policy=name, budget="9") for name in ("informed", "opt")]
    assert [row["gain"] for row in run_together(specs, 0)] == [100.0, 100.0]
    path = tmp_path / "items.csv"
    Moderation(horizon=50).write_csv(path, seed=0)
    row = run_together([Spec.of(str(path), {}, policy="informed", budget="9")], 0)[0]
    assert "only made-up worlds" in row["failure"]


@pytest.mark.parametrize("horizon", [1, 2.5, "many"])
def test_a_bad_size_is_named(horizon: Any) -> None:
    with pytest.raises(InvalidArgument, match="'horizon' of a Moderation must be a whole number of at least 2"):
        Moderation(horizon=horizon)
    with pytest.raises(InvalidArgument, match="'seed' of a Moderation"):
        Moderation().draw(-1)
