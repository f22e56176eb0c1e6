"""Small tables as teams have them, made up: one generator for each thing that makes a table hard.

A table has columns, the rewards of a fixed model and of an expert, and costs. Each generator is a few lines: columns,
log-odds of both deciders (or expected grades), expected costs. Nothing drifts. Nobody is told the expectations but the
policy `informed`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.special import expit

from deferkit.errors import expected
from deferkit.tables.rows import Names
from deferkit.tables.sheet import Sheet
from deferkit.types import is_whole
from deferkit.worlds.base import BaseWorld, Floats, Population, TaskStream, option
from deferkit.worlds.table import tasks_of

MIN_ROWS, MAX_ROWS = 300, 5_000
COST_SPREAD = 0.4  # σ of the logarithm of a cost around its expectation
MAX_COST = 50.0  # times the mean, where costs are heavy
GRADE_NOISE = 0.15  # σ of a graded reward before it is cut to [0, 1]


@dataclass(frozen=True, kw_only=True)
class MadeTable:
    """A table before its outcomes are drawn."""

    columns: dict[str, Any]
    """Arrays of numbers (NaN where one is missing) and lists of texts (None where one is)."""
    model: Floats
    """Log-odds of the model being right, or its expected grade."""
    expert: Floats
    """The same of the expert."""
    minutes: Floats
    """Expected costs."""
    confidence: Floats | None = None
    """Of the model in its own answer, where it has one."""
    graded: bool = False
    """Whether rewards are grades from 0 to 1, not 0 or 1."""
    cost_spread: float = field(default=COST_SPREAD)


class TableGenerator(NamedTuple):
    """A generator and how many rows its table has by default."""

    make: Callable[[int, np.random.Generator], MadeTable]
    rows: int
    description: str


def flat(n: int, value: float) -> Floats:
    """Return the same number n times."""
    return np.full(n, value)


def without(column: Floats, lost: Any) -> Floats:
    """Return a column of numbers with missing cells."""
    return np.where(lost, np.nan, column)


def valley(n: int, rng: np.random.Generator) -> MadeTable:
    """The model is sure and right near scores of 0 and 1, and guesses between."""
    score, length = rng.random(n), rng.exponential(1.0, n)
    sure = np.abs(2 * score - 1)
    return MadeTable(
        columns={"score": score, "length": length, "age": rng.standard_normal(n)},
        model=-0.6 + 4.0 * sure,
        expert=2.2 - 0.3 * length,
        minutes=0.6 + 0.4 * length,
        confidence=0.5 + 0.5 * sure,
    )


def interactions(n: int, rng: np.random.Generator) -> MadeTable:
    """No column says anything alone: signs of products decide."""
    a, b, c = rng.standard_normal((3, n))
    kind = rng.integers(0, 3, n)
    return MadeTable(
        columns={"a": a, "b": b, "c": c, "kind": [f"k{each}" for each in kind]},
        model=1.0 + 2.0 * np.sign(a * b) + 0.8 * np.where(kind == 1, c, -c),
        expert=2.0 + 0.6 * np.sign(b * c),
        minutes=0.7 + 0.5 * (kind == 2),
    )


def wide(n: int, rng: np.random.Generator) -> MadeTable:
    """Forty columns, of which six matter."""
    x = rng.standard_normal((n, 40))
    return MadeTable(
        columns={f"f{i:02d}": x[:, i] for i in range(40)},
        model=1.2 + 1.1 * x[:, 0] - 0.9 * x[:, 1] + 0.8 * np.abs(x[:, 2]) - 0.6,
        expert=2.0 + 0.7 * x[:, 3] - 0.5 * x[:, 4],
        minutes=np.exp(0.3 * x[:, 5]),
    )


def skewed(n: int, rng: np.random.Generator) -> MadeTable:
    """Amounts over six orders of magnitude, whose logarithm matters."""
    amount, visits = np.exp(2.0 * rng.standard_normal((2, n)) + 3.0)
    weight = rng.pareto(1.2, n)
    return MadeTable(
        columns={"amount": amount, "visits": visits, "weight": weight},
        model=1.4 - 0.7 * (np.log(amount) - 3.0) + 0.3 * (np.log(visits) - 3.0),
        expert=2.2 - 0.2 * np.log1p(weight),
        minutes=0.6 + 0.3 * np.log1p(weight),
    )


def overconfident(n: int, rng: np.random.Generator) -> MadeTable:
    """Most confidences are above 0.999; only their order says something."""
    rank = rng.random(n)
    confidence = 1.0 - 0.5 * 10.0 ** (-6.0 * rank**0.7)
    return MadeTable(
        columns={"confidence": confidence, "tokens": rng.gamma(2.0, 150.0, n)},
        model=-0.8 + 4.2 * rank,
        expert=flat(n, 2.4),
        minutes=flat(n, 1.0),
        confidence=confidence,
    )


def missing_cells(n: int, rng: np.random.Generator) -> MadeTable:
    """Three of ten cells are missing, more often where the model is wrong."""
    a, b, c = rng.standard_normal((3, n))
    lost = rng.random((3, n)) < np.array([0.3, 0.35, 0.25])[:, None]
    return MadeTable(
        columns={"a": without(a, lost[0]), "b": without(b, lost[1]), "c": without(c, lost[2])},
        model=1.3 + 1.0 * a - 0.8 * b - 1.2 * lost[0] + 0.6 * lost[1],
        expert=2.1 + 0.5 * c,
        minutes=0.8 + 0.4 * lost[2],
    )


def categories(n: int, rng: np.random.Generator) -> MadeTable:
    """Three categories of 5, 9 and 14 levels, and one number."""
    sizes = (5, 9, 14)
    effects = [np.random.default_rng([7, size]).standard_normal(size) for size in sizes]  # the same for each seed
    codes = [rng.choice(size, n, p=np.arange(size, 0, -1) / (size * (size + 1) / 2)) for size in sizes]
    amount = rng.standard_normal(n)
    names = ("team", "product", "region")
    return MadeTable(
        columns={name: [f"{name}{c:02d}" for c in code] for name, code in zip(names, codes, strict=True)}
        | {"amount": amount},
        model=1.2 + 1.1 * effects[0][codes[0]] + 0.9 * effects[1][codes[1]] - 0.4 * amount,
        expert=2.0 + 0.6 * effects[2][codes[2]],
        minutes=0.7 + 0.3 * (codes[0] == 1),
    )


def heavy_costs(n: int, rng: np.random.Generator) -> MadeTable:
    """Costs with a heavy tail: the largest is fifty times the mean."""
    pages, doubt = rng.standard_normal((2, n))
    return MadeTable(
        columns={"pages": np.exp(pages), "doubt": doubt},
        model=1.0 - 1.5 * doubt,
        expert=2.2 - 0.3 * pages,
        minutes=np.exp(0.5 * pages),
        cost_spread=1.2,
    )


def linear(n: int, rng: np.random.Generator) -> MadeTable:
    """All that a linear model assumes."""
    x = rng.standard_normal((n, 5))
    return MadeTable(
        columns={f"x{i}": x[:, i] for i in range(5)},
        model=1.0 + x @ np.array([1.0, -0.8, 0.5, 0.0, 0.0]),
        expert=2.0 + x @ np.array([0.0, 0.4, 0.0, 0.6, 0.0]),
        minutes=np.maximum(1.0 + 0.25 * x[:, 4], 0.2),
    )


def noise_columns(n: int, rng: np.random.Generator) -> MadeTable:
    """Two columns say something, twenty-five nothing."""
    score, load = rng.random(n), rng.standard_normal(n)
    noise = rng.standard_normal((n, 25))
    return MadeTable(
        columns={"score": score, "load": load} | {f"n{i:02d}": noise[:, i] for i in range(25)},
        model=-0.5 + 3.5 * score,
        expert=2.2 - 0.4 * load,
        minutes=flat(n, 1.0),
        confidence=score,
    )


def steps(n: int, rng: np.random.Generator) -> MadeTable:
    """Thresholds of an earlier rule system: jumps, no slopes."""
    amount, age, risk = rng.random((3, n))
    jump = np.where(amount > 0.7, np.where(age < 0.4, -3.0, 0.0), 0.8) + np.where(risk > 0.85, -1.5, 0.4)
    return MadeTable(
        columns={"amount": amount, "age": age, "risk": risk},
        model=1.3 + jump,
        expert=2.0 - 1.0 * (age > 0.9),
        minutes=np.where(amount > 0.5, 1.3, 0.7),
    )


def grades(n: int, rng: np.random.Generator) -> MadeTable:
    """Rewards are grades; effects are smooth and add up."""
    a, b, c = rng.random((3, n))
    return MadeTable(
        columns={"a": a, "b": b, "c": c},
        model=0.55 + 0.3 * np.sin(5.0 * a) - 0.25 * (b - 0.5),
        expert=0.75 + 0.15 * np.cos(4.0 * c),
        minutes=0.6 + 0.8 * b,
        graded=True,
    )


def mixed(n: int, rng: np.random.Generator) -> MadeTable:
    """A bit of everything: numbers, a skewed one, categories, missing cells, an interaction."""
    score, amount = rng.random(n), np.exp(1.5 * rng.standard_normal(n))
    kind, channel = rng.integers(0, 6, n), rng.integers(0, 3, n)
    lost = rng.random(n) < 0.1
    sure = np.abs(2 * score - 1)
    names = ("web", "mail", "phone")
    return MadeTable(
        columns={
            "score": without(score, lost),
            "amount": amount,
            "kind": [f"kind{each}" for each in kind],
            "channel": [
                None if gone else names[each] for each, gone in zip(channel, rng.random(n) < 0.05, strict=True)
            ],
        },
        model=0.2 + (1.0 + 0.5 * kind) * sure - 0.4 * np.log(amount) * (channel == 2),
        expert=2.0 - 0.2 * np.log(amount) + 0.3 * (kind < 2),
        minutes=0.5 + 0.4 * amount**0.3 + 0.3 * (channel == 2),
    )


def tiny(n: int, rng: np.random.Generator) -> MadeTable:
    """Three hundred rows, a score and a flag."""
    score, flag = rng.random(n), rng.random(n) < 0.3
    return MadeTable(
        columns={"score": score, "flag": ["yes" if each else "no" for each in flag]},
        model=-0.4 + 3.5 * score - 0.8 * flag,
        expert=flat(n, 2.4),
        minutes=flat(n, 1.0),
        confidence=score,
    )


GENERATORS = {
    "valley": TableGenerator(valley, 1_300, "accuracy is U-shaped in the score"),
    "interactions": TableGenerator(interactions, 2_000, "products decide, no column alone"),
    "wide": TableGenerator(wide, 1_000, "40 columns, 6 matter"),
    "skewed": TableGenerator(skewed, 1_500, "amounts over six orders of magnitude"),
    "overconfident": TableGenerator(overconfident, 1_000, "most confidences above 0.999"),
    "missing": TableGenerator(missing_cells, 1_200, "30 % of the cells missing, informatively"),
    "categories": TableGenerator(categories, 1_600, "categories of 5, 9 and 14 levels"),
    "heavy-costs": TableGenerator(heavy_costs, 1_500, "largest cost 50 × the mean"),
    "linear": TableGenerator(linear, 1_000, "log-odds linear in five columns"),
    "noise-columns": TableGenerator(noise_columns, 800, "2 columns matter, 25 do not"),
    "steps": TableGenerator(steps, 2_000, "jumps at thresholds"),
    "grades": TableGenerator(grades, 1_000, "graded rewards, smooth additive effects"),
    "mixed": TableGenerator(mixed, 5_000, "a bit of everything"),
    "tiny": TableGenerator(tiny, 300, "300 rows"),
}


class TableTasks(NamedTuple):
    """The rows of a made-up table with outcomes."""

    made: MadeTable
    rewards: Floats  # [n, 2]
    costs: Floats  # [n]
    expected_rewards: Floats  # [n, 2]
    expected_costs: Floats  # [n]


def draw_table(generator: str, seed: int, rows: int | None = None) -> TableTasks:
    """Return a table with its outcomes.

    Args:
        generator: A key of `GENERATORS`.
        seed: The same table for the same one.
        rows: How many; by default as many as the generator says.

    >>> tasks = draw_table("tiny", seed=0)
    >>> tasks.rewards.shape, sorted(tasks.made.columns)
    ((300, 2), ['flag', 'score'])
    """
    make, usual, _ = GENERATORS[generator]
    n = usual if rows is None else rows
    rng = np.random.default_rng(np.random.SeedSequence([seed, *generator.encode()]))
    made = make(n, rng)
    latent = np.column_stack([made.model, made.expert])
    if made.graded:
        chances = np.clip(latent, 0.0, 1.0)
        rewards = np.round(np.clip(latent + GRADE_NOISE * rng.standard_normal((n, 2)), 0.0, 1.0), 3)
    else:
        chances = expit(latent)
        rewards = (rng.random((n, 2)) < chances).astype(np.float64)
    spread = made.cost_spread
    costs = made.minutes * rng.lognormal(-(spread**2) / 2, spread, n)
    if generator == "heavy-costs":
        # The others have the mean 1, the largest is fifty times the mean of all.
        top = int(np.argmax(costs))
        others = np.delete(costs, top)
        costs = np.minimum(costs / others.mean(), MAX_COST / 2)
        costs[top] = MAX_COST * (costs.sum() - costs[top]) / (n - MAX_COST)
    return TableTasks(made, np.asarray(rewards, dtype=np.float64), np.round(costs, 4), chances, made.minutes)


@dataclass(frozen=True, kw_only=True)
class SmallTables(BaseWorld):
    """Made-up small tables, another one for each seed, read as their file would be.

    >>> stream = SmallTables(generator="tiny").draw(seed=0)
    >>> stream.n_tasks, stream.link, list(stream.columns or {})
    (300, 'logistic', ['score', 'flag'])
    """

    generator: str = option("mixed", "What the table is like", choices=tuple(GENERATORS), shown="{}")
    rows: int | None = option(None, f"Rows of the table, from {MIN_ROWS} to {MAX_ROWS:,}; by default the generator's")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None and not (is_whole(self.rows, MIN_ROWS) and self.rows <= MAX_ROWS):
            raise expected("rows", "SmallTables", f"a whole number from {MIN_ROWS} to {MAX_ROWS}", self.rows)

    def draw(self, seed: int) -> TaskStream:
        """Return the table of this seed as a stream, in the order of its rows."""
        self.check_seed(seed)
        tasks = draw_table(self.generator, int(seed), self.rows)
        n = len(tasks.costs)
        cells = {
            f"x_{name}": pl.Series(column, nan_to_null=True) if isinstance(column, np.ndarray) else pl.Series(column)
            for name, column in tasks.made.columns.items()
        }
        outcomes = {"model_reward": tasks.rewards[:, 0], "human_reward": tasks.rewards[:, 1], "cost": tasks.costs}
        sheet = Sheet(self.generator, pl.DataFrame({**cells, **outcomes}), pl.Series("row", range(1, n + 1)))
        read = tasks_of(sheet, Names("x_*", "model_reward", "human_reward", "cost"))
        return read._replace(
            remark="made-up table",
            hidden=Population(np.full(n, 1 / n), tasks.expected_rewards, tasks.expected_costs[:, None, None]),
            confidence=tasks.made.confidence,
            confidence_at=None,
            columns=tasks.made.columns,
        )
