"""What the experiment on tables concludes, on trials whose answer is known."""

from typing import Any

import polars as pl

from deferkit.study.experiments import tables
from deferkit.study.experiments.experiment import FEEDBACKS


def judged(default: float, tree: float) -> list[str]:
    gains = {"default": default, "tree": tree, "best-reject": 18.0, "informed": 31.0}
    rows: list[dict[str, Any]] = [
        {"policy": policy, "asked_budget": "10%", "feedback": feedback, "seed": seed}
        | {"gain": gain + 0.1 * seed, "reward": 80.0 + gain, "model": 80.0}
        for policy, gain in gains.items()
        for feedback in FEEDBACKS
        for seed in range(3)
    ]
    return [finding.verdict for finding in tables.EXPERIMENT.findings(pl.DataFrame(rows))][:2]


def test_what_is_concluded_of_tables() -> None:
    assert judged(22.0, 22.9) == ["holds", "holds"]
    assert judged(22.0, 23.1) == ["holds", "does not hold"]
    assert judged(17.9, 18.0) == ["does not hold", "holds"]
