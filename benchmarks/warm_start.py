"""What past reviews bring in the first 500 tasks: the same tables with and without a warm start, 24 seeds.

Tables of moderation tasks: rewards of 0 and 1, the model's chance depends on its score, the human's on the category.
The past has 1,000 tasks, and somebody was asked about 300 of them.
"""

import math
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from deferkit.study.spec import Spec
from deferkit.study.trial import run_together

SEEDS = range(24)
PAST, ASKED, NEW = 1_000, 300, 500
BUDGETS = ("2%", "5%", "10%", "25%")
NAMES = ("achievable", "warm", "cold")


def tasks(rng: np.random.Generator, n: int, asked: int) -> pl.DataFrame:
    """Return tasks; of those that nobody was asked about it is not known what the human would have done."""
    score, length = rng.random(n), np.exp(rng.normal(4, 0.7, n))
    kind = rng.choice(["hate", "spam", "nudity", "violence"], n, p=[0.3, 0.4, 0.2, 0.1])
    model = rng.random(n) < 0.45 + 0.5 * score - 0.1 * (kind == "hate")
    human = rng.random(n) < 0.92 - 0.1 * (kind == "nudity")
    cost = (1 + length / 100) * rng.uniform(0.7, 1.3, n)
    known = rng.permutation(n) < asked
    return pl.DataFrame(
        {"x_score": score, "x_length": length, "x_kind": kind, "model_reward": model.astype(float)}
    ).with_columns(
        human_reward=pl.Series(np.where(known, human.astype(float), np.nan)).fill_nan(None),
        cost=pl.Series(np.where(known, cost, np.nan)).fill_nan(None),
    )


def gains(folder: Path, seed: int, feedback: str) -> dict[tuple[str, str], float]:
    """Return what each gained over the model alone, by name and budget."""
    rng = np.random.default_rng(seed)
    history, new = str(folder / "history.parquet"), str(folder / "new.parquet")
    tasks(rng, PAST, ASKED).write_parquet(history)
    tasks(rng, NEW, NEW).write_parquet(new)
    given = {"achievable": ("achievable", {}), "warm": ("default", {}), "cold": ("default", {"warm_start": False})}
    cells = [(name, budget) for name in NAMES for budget in BUDGETS]
    specs = [
        Spec.of(
            new,
            {"after": history},
            policy=given[name][0],
            policy_parameters=given[name][1],
            budget=budget,
            feedback=feedback,
        )
        for name, budget in cells
    ]
    rows = run_together(specs, seed)
    return {cell: row["reward"] - row["model"] for cell, row in zip(cells, rows, strict=True)}


def main() -> None:
    """Print a table for each kind of feedback."""
    print(f"right answers gained over the model alone in {NEW} tasks: mean ± standard error, {len(SEEDS)} seeds")
    for feedback in ("full", "bandit", "reviewed"):
        with tempfile.TemporaryDirectory() as folder:
            found = [gains(Path(folder), seed, feedback) for seed in SEEDS]
        print(f"\n{feedback + ' feedback':22}" + "".join(f"{budget:>14}" for budget in BUDGETS))
        for name in NAMES:
            cells = [np.array([each[name, budget] for each in found]) for budget in BUDGETS]
            print(f"{name:22}" + "".join(f"{c.mean():>8.1f} ± {c.std(ddof=1) / math.sqrt(len(c)):3.1f}" for c in cells))
        more = [np.array([each["warm", budget] - each["cold", budget] for each in found]) for budget in BUDGETS]
        print(
            f"{'warm − cold':22}"
            + "".join(f"{c.mean():>8.1f} ± {c.std(ddof=1) / math.sqrt(len(c)):3.1f}" for c in more)
        )


if __name__ == "__main__":
    main()
