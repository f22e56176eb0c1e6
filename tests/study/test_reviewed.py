"""What the experiment on reviewed feedback concludes, on tables whose answer is known, and without data."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from deferkit.study.experiments import reviewed
from deferkit.study.experiments.experiment import FEEDBACKS
from deferkit.study.experiments.reviewed import KNAPSACKS, PICTURES


def frame_of(gains: dict[str, list[float]], spent: dict[str, float], *, pictures: bool = True) -> pl.DataFrame:
    """Trials of the default in one cell of knapsacks (and, always in order, of pictures), by feedback."""
    knapsack = {"world": KNAPSACKS, "asked_budget": "0.25T", "world_model": None, "order": None}
    picture = {"world": PICTURES, "asked_budget": "0.1T", "world_model": "clip", "order": "experiment"}
    rows: list[dict[str, Any]] = [
        {"policy": policy, "feedback": feedback, "seed": seed} | world | {"gain": gain, "spent_pct": part}
        for world, tasks in ((knapsack, gains), (picture, {feedback: [50.0, 51.0, 52.0] for feedback in FEEDBACKS}))
        if pictures or world is knapsack
        for feedback, all_ in tasks.items()
        for seed, gain in enumerate(all_)
        for policy, part in (("default", spent[feedback]), ("best-reject", 99.0))
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame if pictures else frame.drop("world_model", "order")


def verdicts(frame: pl.DataFrame) -> list[str]:
    return [finding.verdict for finding in reviewed.EXPERIMENT.findings(frame)]


ALL = {"full": 99.0, "bandit": 99.0, "reviewed": 96.0}


def test_what_is_asked_for_holds() -> None:
    good = {"full": [50.0, 52.0, 54.0], "bandit": [50.0, 51.0, 52.0], "reviewed": [42.0, 42.0, 43.0]}
    assert verdicts(frame_of(good, ALL)) == ["holds"] * 4


def test_a_gain_that_is_lost_a_stall_and_a_trial_that_falls_behind() -> None:
    """80 % of 52 is 41.6; a quarter of it is 13; the median of the bandit trials is 50."""
    less = {"full": [50.0, 52.0, 54.0], "bandit": [44.0, 50.0, 52.0], "reviewed": [60.0, 50.0, 12.0]}
    found = reviewed.EXPERIMENT.findings(frame_of(less, ALL))
    assert [finding.verdict for finding in found] == ["holds in part", "does not hold", "holds", "holds in part"]
    assert "knapsacks T/4 40.7 of 52.0" in found[0].measured
    assert "6 trials, stalls: knapsacks T/4: 1." in found[1].measured
    assert "knapsacks T/4 6.0" in found[3].measured


def test_worlds_with_few_budgets_are_drawn_first() -> None:
    gains = {feedback: [50.0, 50.5, 51.0] for feedback in FEEDBACKS}
    frame = frame_of(gains, ALL)
    more = frame.filter(world=KNAPSACKS).with_columns(asked_budget=pl.lit("0.05T"))
    drawn = reviewed.EXPERIMENT.figure.panels[0].charts(reviewed.add_places(pl.concat([frame, more])))
    assert [chart.title for chart in drawn] == ["clip, in order", "knapsacks"]


def test_spending_counts_only_where_the_budget_binds() -> None:
    gains = {feedback: [50.0, 50.5, 51.0] for feedback in FEEDBACKS}
    assert verdicts(frame_of(gains, ALL | {"reviewed": 94.0}))[2] == "does not hold"
    loose = frame_of(gains, {"full": 80.0, "bandit": 80.0, "reviewed": 60.0})
    tight = pl.col("spent_pct").replace(80.0, 99.0).replace(60.0, 99.0)
    one = loose.with_columns(spent_pct=pl.when(world=PICTURES).then(tight).otherwise(pl.col("spent_pct")))
    assert verdicts(one)[2] == "holds"
    assert "knapsacks" not in reviewed.EXPERIMENT.findings(one)[2].measured


def test_without_data_knapsacks_are_run_and_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEFERKIT_DATA", str(tmp_path))
    assert {spec.world for spec, _ in reviewed.EXPERIMENT.trials(quick=True)} == {KNAPSACKS}
    gains = {feedback: [50.0, 50.5, 51.0] for feedback in FEEDBACKS}
    frame = frame_of(gains, ALL, pictures=False)
    assert all("not here" in finding.claim for finding in reviewed.EXPERIMENT.findings(frame))
    drawn = str(reviewed.EXPERIMENT.draw(frame).to_dict())
    assert "model-vs-human was not run" in drawn
    assert list(reviewed.EXPERIMENT.tables_of(frame)) == [
        f"knapsacks: {what}, by budget (mean ± sd)" for what in TABLES
    ]


TABLES = ("Gain %", "Spent, % of the budget")


def test_with_data_all_is_run(picture_data: Path) -> None:
    assert picture_data
    quick, full = (reviewed.EXPERIMENT.trials(quick=quick) for quick in (True, False))
    assert {spec.world for spec, _ in quick} == {KNAPSACKS, PICTURES}
    assert {seed for _, seed in full} == set(range(20))
    assert {(spec.policy, spec.feedback) for spec, _ in full} >= {("tree", "bandit"), ("default", "reviewed")}
    assert "was not run" not in reviewed.remark(frame_of({f: [1.0, 2.0] for f in FEEDBACKS}, ALL))
