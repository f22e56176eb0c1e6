"""A made-up table of moderation items, as a team would export it: what a model and a reviewer got right, and minutes.

The model has a score for each item and decides by it: sure and mostly right near 0 and 1, a guess in the middle, so
that its accuracy is U-shaped in the score. How deep the valley is depends on the category; some languages it reads
badly. Reviewers are good at what the model is not, but for long texts and one category. Cells are missing, as in any
export. Nothing of this is linear, and nobody is told the probabilities but the policy `informed`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import expit

from deferkit.tables.rows import Names
from deferkit.tables.sheet import Sheet
from deferkit.types import at_least
from deferkit.worlds.base import BaseWorld, Floats, Population, TaskStream, option
from deferkit.worlds.table import tasks_of

CATEGORIES = ("spam", "harassment", "hate", "nudity", "violence", "self-harm")
LANGUAGES = ("en", "es", "de", "ar", "hi")
OFTEN = ((0.34, 0.22, 0.14, 0.14, 0.1, 0.06), (0.5, 0.2, 0.12, 0.1, 0.08))
MODEL_BY_CATEGORY = (0.9, 0.1, -0.3, 0.5, 0.2, -0.2)
MODEL_BY_LANGUAGE = (0.3, 0.0, 0.0, -0.9, -0.7)
VALLEY = (1.6, 2.6, 3.2, 1.2, 2.0, 2.6)  # log-odds between a sure score and one in the middle, by category
HUMAN_BY_CATEGORY = (-0.2, 0.2, 0.1, 0.3, 0.2, 0.0)
TYPICAL_LENGTH, LENGTH_SD = 320.0, 0.8  # characters, and the standard deviation of their log
MISSING = {"x_score": 0.02, "x_length": 0.03, "x_language": 0.06, "x_reports": 0.12}
DIGITS = {"x_score": 3, "x_length": 0, "x_reports": 0}


class Items(NamedTuple):
    """Items with their cells, realised and expected outcomes."""

    cells: dict[str, list[str | None]]  # by column, as they are written; None where one is missing
    rewards: Floats  # [n, 2] of the model and the reviewer, 0 or 1
    minutes: Floats  # [n] of the reviewer
    expected_rewards: Floats  # [n, 2]
    expected_minutes: Floats  # [n]


def make_items(n: int, rng: np.random.Generator) -> Items:
    """Return n items.

    >>> items = make_items(3, np.random.default_rng(0))
    >>> list(items.cells), items.rewards.shape
    (['x_score', 'x_category', 'x_length', 'x_language', 'x_flag', 'x_reports'], (3, 2))
    """
    score = rng.random(n)
    category, language = (rng.choice(len(share), n, p=share) for share in OFTEN)
    long = LENGTH_SD * rng.standard_normal(n)  # log of length over the typical one
    flagged = rng.random(n) < 0.2 + 0.3 * (category == 2)
    reports = rng.poisson(np.exp(0.2 + 1.2 * score - 0.4 * (category == 0)))
    sure = np.abs(2 * score - 1)

    by_category, by_language = np.array(MODEL_BY_CATEGORY), np.array(MODEL_BY_LANGUAGE)
    model = 0.8 + by_category[category] + by_language[language] + np.array(VALLEY)[category] * (sure - 0.35)
    model += 0.3 * np.minimum(reports, 4) * (score > 0.5) - 0.4 * flagged
    human = 1.9 + np.array(HUMAN_BY_CATEGORY)[category] - 0.3 * np.maximum(long, 0.0) + 0.3 * flagged
    chances = expit(np.column_stack([model, human]))
    rewards = (chances > rng.random((n, 2))).astype(float)

    expected_minutes = 0.8 + 0.5 * np.exp(0.6 * long) + 0.3 * (category >= 4) + 0.2 * (language >= 3)
    minutes = np.round(expected_minutes * rng.lognormal(-0.08, 0.4, n), 2)

    numbers = {"x_score": score, "x_length": TYPICAL_LENGTH * np.exp(long), "x_reports": reports.astype(float)}
    texts = {
        "x_category": np.array(CATEGORIES)[category],
        "x_language": np.array(LANGUAGES)[language],
        "x_flag": np.where(flagged, "yes", "no"),
    }
    written = {name: [f"{value:.{DIGITS[name]}f}" for value in column] for name, column in numbers.items()}
    written |= {name: [str(value) for value in column] for name, column in texts.items()}
    cells: dict[str, list[str | None]] = {}
    for name in ("x_score", "x_category", "x_length", "x_language", "x_flag", "x_reports"):
        lost = rng.random(n) < MISSING.get(name, 0.0)
        cells[name] = [None if gone else cell for gone, cell in zip(lost, written[name], strict=True)]
    return Items(cells, rewards, minutes, chances, expected_minutes)


@dataclass(frozen=True, kw_only=True)
class Moderation(BaseWorld):
    """Tables of moderation items, another one for each seed, read just as their CSV file would be.

    >>> stream = Moderation(horizon=500).draw(seed=0)
    >>> stream.rewards.shape, stream.link, stream.truth, stream.remark
    ((500, 2), 'logistic', None, 'made-up moderation items')
    """

    horizon: int = option(5_000, "T, the number of tasks", valid=at_least(2), shown="T = {:,}")

    def items(self, seed: int) -> Items:
        """Return the items of this seed."""
        self.check_seed(seed)
        return make_items(self.horizon, np.random.default_rng(np.random.SeedSequence(int(seed))))

    def draw(self, seed: int) -> TaskStream:
        """Return the items of this seed as a stream, in their order."""
        items = self.items(seed)
        frame = frame_of(items)
        sheet = Sheet("moderation", frame, pl.Series("row", range(2, 2 + frame.height)))
        tasks = tasks_of(sheet, Names("x_*", "model_reward", "human_reward", "cost"))
        n = self.horizon
        hidden = Population(np.full(n, 1 / n), items.expected_rewards, items.expected_minutes[:, None, None])
        return tasks._replace(remark="made-up moderation items", hidden=hidden, confidence=None, confidence_at=None)

    def write_csv(self, path: str | Path, seed: int) -> None:
        """Write the items of this seed as a CSV file, for `deferkit run` or a spreadsheet."""
        frame_of(self.items(seed)).write_csv(path)


def frame_of(items: Items) -> pl.DataFrame:
    """Return items as a table of texts: what a CSV file holds."""
    outcomes = {
        "model_reward": [f"{value:.0f}" for value in items.rewards[:, 0]],
        "human_reward": [f"{value:.0f}" for value in items.rewards[:, 1]],
        "cost": [f"{value:.2f}" for value in items.minutes],
    }
    return pl.DataFrame(
        {**items.cells, **outcomes}, schema_overrides=dict.fromkeys([*items.cells, *outcomes], pl.String)
    )
