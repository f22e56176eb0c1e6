"""What the experiment on rivals concludes, on trials whose answer is known."""

from typing import Any

import polars as pl
import pytest

from deferkit.study.experiments import rivals
from deferkit.study.peers import PEERS


def frame_of(default: float, best: float) -> pl.DataFrame:
    """Two trials in each setting; AUPD is the best of the peers, the others have little."""
    gains = {"default": default, "paper": 20.0, "best-reject": 50.0} | dict.fromkeys(PEERS, 10.0) | {"aupd": best}
    settings: list[dict[str, Any]] = [
        {"world": "synthetic", "regime": r, "kind": None, "horizon": t, "asked_budget": b, "budget": size}
        for r in ("complementary", "dominant")
        for t, b, size in ((10_000, "400", 400.0), (10_000, "2500", 2_500.0), (1_000, "10%", 71.3 + len(r)))
    ]
    settings += [
        {"world": "drift", "regime": None, "kind": k, "horizon": 10_000, "asked_budget": "0.1T", "budget": 1_000.0}
        for k in ("abrupt", "seasonal")
    ]
    rows = [
        setting | {"policy": p, "feedback": "bandit", "seed": s, "gain": g + s, "us_per_step": 1.0, "spent_pct": 99.0}
        for setting in settings
        for p, g in gains.items()
        for s in (0, 1)
    ]
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(reward=pl.col("gain"))


def test_settings_are_told_apart_whatever_the_budget_of_a_stream_comes_to() -> None:
    frame = frame_of(90.0, 80.0).with_columns(budget=pl.col("budget") + pl.col("seed"))
    names = rivals.by_setting(frame.filter(seed=0))["setting"].unique(maintain_order=True).to_list()
    assert names[:3] == [f"complementary, T = {t}" for t in ("10,000, B = 400", "10,000, B = 2,500", "1,000, B = 10%")]
    assert names[-1] == "drift seasonal, T = 10,000, B = 0.1T"
    assert len(names) == 8


@pytest.mark.parametrize(("default", "verdict"), [(90.0, "holds"), (70.0, "does not hold")])
def test_the_best_peer_counts(default: float, verdict: str) -> None:
    found = rivals.EXPERIMENT.findings(frame_of(default, 80.0))[0]
    assert found.verdict == verdict
    assert "drift abrupt, T = 10,000, B = 0.1T: " in found.measured
    assert "of aupd, the best of them" in found.measured


def test_one_setting_lost_is_a_part() -> None:
    lost = (pl.col("policy") == "default") & (pl.col("kind") == "seasonal")
    frame = frame_of(90.0, 80.0).with_columns(gain=pl.when(lost).then(5.0).otherwise(pl.col("gain")))
    assert rivals.EXPERIMENT.findings(frame)[0].verdict == "holds in part"
    assert len(rivals.EXPERIMENT.tables_of(frame)["Rivals (mean ± sd)"]) == 8 * (len(PEERS) + 3)
    assert "drift seasonal" in str(rivals.EXPERIMENT.draw(frame).to_dict())


def test_everybody_runs_on_long_short_and_drifting_streams() -> None:
    made = {
        (spec.world, spec.world_parameters["horizon"], spec.policy) for spec, _ in rivals.EXPERIMENT.trials(quick=True)
    }
    for policy in (*PEERS, "default"):
        assert {("synthetic", 10_000, policy), ("synthetic", 1_000, policy), ("drift", 10_000, policy)} <= made
