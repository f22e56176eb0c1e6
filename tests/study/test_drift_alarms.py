"""What the experiment on drift alarms concludes, on tables whose answer is known."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from deferkit import Deferrer
from deferkit.study.coverage import STEP, run_and_watch
from deferkit.study.experiments.drift_alarms import CHANGES, CHANGING, EXPERIMENT, OLD, POLICIES, STILL, STREAMS
from deferkit.study.policy_registry import make_learner
from deferkit.study.runner import run_study
from deferkit.study.spec import Spec
from deferkit.worlds.classifiers import OneChange


def frame_of(false: int = 2, found: int = 95, delay: int = 60) -> pl.DataFrame:
    """Trials with so many false alarms of each kind and changes found by the default; the old rule needs 40 tasks."""
    rows: list[dict[str, Any]] = []
    for world in STILL:
        for seed in range(STREAMS):
            alarms = [float(seed < false), 0.0, 0.0]
            rows.append({**world, "policy": "default", "change": False, "seed": seed, "alarms": alarms, "alarm_at": []})
    for world in CHANGING:
        for policy, late, n in (("default", delay, found), (OLD, 40, CHANGES)):
            for seed in range(CHANGES):
                at = [100.0, *([3_000.0 + late, 5_000.0] if seed < n else [])]  # a false alarm before the change
                more = {"policy": policy, "shape": "linear", "seed": seed, "alarms": [1.0, 0.0, 0.0], "alarm_at": at}
                rows.append({**world, **more})
    return pl.DataFrame(rows)


def verdicts(frame: pl.DataFrame) -> list[str]:
    return [finding.verdict for finding in EXPERIMENT.findings(frame)]


def test_claims_hold_at_their_bounds() -> None:
    assert verdicts(frame_of()) == ["holds"] * 3


@pytest.mark.parametrize(("case", "failed"), [({"false": 3}, 0), ({"found": 94}, 1), ({"delay": 61}, 2)])
def test_each_claim_can_fail(case: dict[str, int], failed: int) -> None:
    found = verdicts(frame_of(**case))
    assert found[failed] == "does not hold"
    assert [each for i, each in enumerate(found) if i != failed] == ["holds"] * 2


def test_changes_that_are_never_found_count_as_late() -> None:
    assert verdicts(frame_of(found=49))[1:] == ["does not hold"] * 2


def test_alarms_are_those_of_the_learner_run_at_once() -> None:
    stream = OneChange(horizon=3_000, change=True).draw(3)
    watched, alarms = run_and_watch(make_learner("default", stream, [150.0], seed=3), stream, "full")
    learner: Deferrer = make_learner("default", stream, [150.0], seed=3)
    rewards = {name: stream.rewards[:, i] for i, name in enumerate(learner.settings.deciders)}
    assert (learner.run(stream.contexts, rewards, stream.costs).routes == watched.routes).all()
    assert alarms["alarms"] == [1.0, 0.0, 0.0]
    assert alarms["alarm_at"] == [float(learner.drifts()[0].decision)]
    assert 1_500 < alarms["alarm_at"][0] < 1_500 + 10 * STEP


def test_the_model_falls_in_the_middle() -> None:
    rewards = OneChange(change=True, rewards="graded").draw(0).rewards[:, 0]
    still = OneChange(rewards="graded").draw(0).rewards[:, 0]
    assert (rewards[:10_000] == still[:10_000]).all()
    assert rewards[10_000:].mean() < still[10_000:].mean() - 0.3


def test_uneven_noise_depends_on_a_number_of_the_context() -> None:
    stream = OneChange(shape="uneven noise", rewards="graded").draw(0)
    expert, size = stream.rewards[:, 1], np.abs(stream.contexts[:, 3])
    assert expert[size > 1].std() > 2 * expert[size < 0.5].std()


def test_real_streams_are_drawn_and_judged() -> None:
    short = [
        (
            Spec.of(
                "one-change",
                dict(spec.world_parameters) | {"horizon": 1_500},
                policy=spec.policy,
                budget=spec.budget,
                trace="alarms",
            ),
            seed,
        )
        for spec, seed in EXPERIMENT.trials(quick=True)
    ]
    frame = run_study(short)
    assert len(EXPERIMENT.findings(frame)) == 3
    assert "streams with a false alarm" in str(EXPERIMENT.draw(frame).to_dict())
    assert set(frame["policy"]) == set(POLICIES)
    assert len(EXPERIMENT.tables_of(frame)) == 4
