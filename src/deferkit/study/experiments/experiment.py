"""Declarations of experiments: grids, claims, verdicts and goals."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import polars as pl

from deferkit.errors import MissingData
from deferkit.study.drawing.panels import Figure
from deferkit.study.spec import Spec
from deferkit.study.statistics import cell_of, mean_of, pivot
from deferkit.study.trial_store import Trial

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"
REGIMES = ("complementary", "dominant")
HUMAN_REGIMES = tuple({"regime": regime} for regime in REGIMES)
"""The two worlds of the paper's Experiment 2."""
FEEDBACKS = ("full", "bandit", "reviewed")

Rows = Callable[[pl.DataFrame], pl.DataFrame]
"""Chooses trials, or adds columns to them."""
Judgement = tuple[str, bool | Iterable[bool] | str]
"""What was measured, and whether the claim holds: in one, in each of several cells, or a verdict."""


class Finding(NamedTuple):
    """A claim, what was measured, and whether it holds."""

    claim: str
    source: str  # where the claim stands: "paper" or "deferkit"
    measured: str
    verdict: str


class StudyClaim(NamedTuple):
    """A claim and how it is judged."""

    text: str
    source: str  # where it stands: "paper" or "deferkit"
    judge: Callable[[pl.DataFrame], tuple[str, str] | None]  # what was measured and the verdict; None if nothing was
    scope: Callable[[pl.DataFrame], str] = lambda _: ""  # what it is limited to, where not everything could be run

    def text_of(self, frame: pl.DataFrame) -> str:
        """Return the claim as it is judged on these trials."""
        scope = self.scope(frame)
        return f"{self.text.removesuffix('.')} ({scope})." if scope else self.text


def claim(
    text: str, source: str = "deferkit", **scope: Callable[[pl.DataFrame], str]
) -> Callable[[Callable[[pl.DataFrame], Judgement | None]], StudyClaim]:
    """Return a decorator that makes a claim of the function that judges it.

    Args:
        text: The claim, a sentence.
        source: Where it stands: "paper" or "deferkit".
        scope: The `scope` of the claim, if it has one.
    """

    def decorate(judge: Callable[[pl.DataFrame], Judgement | None]) -> StudyClaim:
        def judge_in_words(frame: pl.DataFrame) -> tuple[str, str] | None:
            judged = judge(frame)
            return None if judged is None else (judged[0], verdict(judged[1]))

        return StudyClaim(text, source, judge_in_words, **scope)

    return decorate


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Trials of every combination of worlds, budgets, policies, feedbacks and seeds.

    >>> grid = Grid(policies=["default", "paper"], budgets=[500, 1000], seeds=range(20), quick={"seeds": range(3)})
    >>> len(grid.trials(quick=False)), len(grid.trials(quick=True))
    (80, 12)
    """

    policies: Sequence[str]
    budgets: Sequence[float | str]
    seeds: Sequence[int]
    world: str = "synthetic"
    worlds: Sequence[Mapping[str, Any]] = ({},)
    """Parameters of the world."""
    feedbacks: Sequence[str] = ("full",)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Of the policies."""
    trace: str = ""
    quick: Mapping[str, Any] | None = field(default_factory=dict)
    """Fields that differ in a quick run; None if it does without these trials."""
    optional: bool = False
    """Whether the trials are left out where the data of the world are missing."""

    def trials(self, quick: bool) -> list[Trial]:
        """Return the trials, or those of a quick run."""
        if quick and self.quick is None:
            return []
        grid = replace(self, **self.quick) if quick and self.quick else self
        try:
            return grid._combine()
        except MissingData:
            if self.optional:
                return []
            raise

    def _combine(self) -> list[Trial]:
        specs = [
            Spec.of(
                self.world,
                given,
                policy=policy,
                budget=str(budget),
                feedback=feedback,
                trace=self.trace,
                policy_parameters=dict(self.parameters),
            )
            for given in self.worlds
            for budget in self.budgets
            for policy in self.policies
            for feedback in self.feedbacks
        ]
        return [(spec, seed) for spec in specs for seed in self.seeds]


@dataclass(frozen=True, kw_only=True)
class MeanTable:
    """Tables of means ± standard deviations over trials, one for each part of the trials and each value."""

    caption: str
    """May name columns of `split`, and `value`: what is shown."""
    values: Mapping[str, str] = field(default_factory=lambda: {"gain": "Gain %"})
    """Columns of numbers, and what a caption calls them."""
    index: str = "policy"
    """The column with a row of the table for each value."""
    columns: str = "budget"
    """The column with a column of the table for each value."""
    split: Sequence[str] = ()
    """Columns with a table for each combination of values."""
    rows: Rows = lambda frame: frame
    """Which trials are shown."""
    heading: str = ""
    """Of the first column; by default its name in the trials."""

    def tables(self, frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """Return the tables by caption."""
        rows = self.rows(frame)
        if rows.is_empty():
            return {}
        found = {}
        parts = rows.group_by(self.split, maintain_order=True) if self.split else [((), rows)]
        for key, part in parts:
            for value, what in self.values.items():
                caption = self.caption.format(value=what, **dict(zip(self.split, key, strict=True)))
                table = pivot(part, self.index, self.columns, value)
                found[caption] = table.rename({self.index: self.heading or self.index})
        return found


@dataclass(frozen=True, kw_only=True)
class OutcomeTable:
    """A table with a row for each policy and setting, and a column for each of several outcomes."""

    caption: str
    index: Sequence[str]
    """Columns of the trials with a row for each combination of values."""
    values: Mapping[str, tuple[str, int]]
    """By heading: the column of numbers and its digits."""
    heading: str = ""
    """Of the first column; by default its name in the trials."""

    def tables(self, frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """Return the table by caption."""
        headings = (self.heading or self.index[0], *self.index[1:])
        rows = [
            dict(zip(headings, key, strict=True))
            | {name: cell_of(part, column, digits) for name, (column, digits) in self.values.items()}
            for key, part in frame.group_by(self.index, maintain_order=True)
        ]
        return {self.caption: pl.DataFrame(rows)}


@dataclass(frozen=True, kw_only=True)
class PolicyRanking:
    """The table at the head of the report: a value of every policy in some settings, best first."""

    caption: str
    short_caption: str
    """For a terminal."""
    value: str
    where: Mapping[str, Any]
    """Values of columns that all of its trials have."""
    settings: Mapping[str, Mapping[str, Any]]
    """By heading: values of columns."""
    abbreviations: Mapping[str, str] = field(default_factory=dict)
    """Words of the headings, and what a terminal shows instead."""
    last: Sequence[str] = ()
    """Policies that do not compare, such as one that does not keep the budget."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment: what is run, drawn, claimed and listed."""

    title: str
    description: str
    grids: Sequence[Grid]
    figure: Figure
    claims: Sequence[StudyClaim]
    tables: Sequence[MeanTable | OutcomeTable | Callable[[pl.DataFrame], dict[str, pl.DataFrame]]]
    rows: Rows = lambda frame: frame
    """Adds the columns that figure, claims and tables need."""
    realised: bool = False
    """Whether rewards are those that came, so that OPT is that of hindsight; else they are expected ones."""
    ranking: PolicyRanking | None = None
    name: str = ""
    """Filled in by the registry."""

    def trials(self, quick: bool) -> list[Trial]:
        """Return all trials.

        Args:
            quick: Fewer seeds of the same settings, so that a full run goes on from there.
        """
        return [trial for grid in self.grids for trial in grid.trials(quick)]

    def draw(self, frame: pl.DataFrame) -> Any:
        """Return the figure of these trials, an altair chart."""
        return self.figure.draw(self.rows(frame))

    def findings(self, frame: pl.DataFrame) -> list[Finding]:
        """Judge the claims on these trials; a claim of which nothing was measured is left out."""
        rows = self.rows(frame)
        judged = [(claim, claim.judge(rows)) for claim in self.claims]
        return [Finding(claim.text_of(rows), claim.source, *found) for claim, found in judged if found is not None]

    def tables_of(self, frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """Return the tables of these trials by caption."""
        rows = self.rows(frame)
        found = {}
        for each in self.tables:
            found.update(each(rows) if callable(each) else each.tables(rows))
        return found


def verdict(held: bool | Iterable[bool] | str) -> str:
    """Return the verdict on a claim that holds or does not; of several cells, in all of them, in some or in none.

    >>> verdict(True), verdict([True, True]), verdict([True, False]), verdict([False])
    ('holds', 'holds', 'holds in part', 'does not hold')
    """
    if isinstance(held, str):
        return held
    each = list(held) if isinstance(held, Iterable) else [held]
    return HOLDS if each and all(each) else PARTLY if any(each) else FAILS


def select_rows(**where: Any) -> Rows:
    """Return a filter of the trials whose columns have these values.

    >>> select_rows(policy="opt")(pl.DataFrame({"policy": ["opt", "paper"]})).height
    1
    """
    return lambda frame: frame.filter(**where)


BUDGETS = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
NOISY_BUDGETS = (500, 2_000, 8_000, 32_000)
SHORT_BUDGETS = (160, 1_000, 2_000)  # T = 4,000
PRINTED_PCT = {
    "complementary": (97.2, 96.0, 95.5, 97.3, 98.9, 99.4, 99.9),
    "dominant": (97.5, 95.4, 93.5, 95.1, 97.8, 99.4, 99.8),
}
"""Per cent of OPT of Algorithm 1 by budget, in an independent implementation on other seeds."""

GOALS = {
    ("complementary", 0.1, 50_000): dict(zip(BUDGETS, (94, 97, 97.7, 98.5, 99.2, 99.5, 99.9), strict=True)),
    ("dominant", 0.1, 50_000): dict(zip(BUDGETS, (94.5, 96.7, 98.2, 99, 99.3, 99.7, 99.7), strict=True)),
    ("complementary", 0.5, 50_000): dict(zip(NOISY_BUDGETS, (71, 89, 97, 99.8), strict=True)),
    ("dominant", 0.5, 50_000): dict(zip(NOISY_BUDGETS, (64, 84, 94.5, 98.6), strict=True)),
    ("complementary", 0.1, 4_000): dict(zip(SHORT_BUDGETS, (86, 97.5, 98.5), strict=True)),
    ("dominant", 0.1, 4_000): dict(zip(SHORT_BUDGETS, (86, 97.5, 98.5), strict=True)),
}
"""Gain that the default is to reach at least, by (regime, noise, horizon) and budget."""


def goal_claim(*, noise: float, horizon: int) -> StudyClaim:
    """Return the claim that the default reaches its goals, with full and with bandit feedback.

    Args:
        noise: σ of the world.
        horizon: T, the number of tasks.
    """
    text = f"The default reaches the gain that is asked of it (T = {horizon:,}, σ = {noise:g})."
    return claim(text)(lambda frame: _judge(frame, noise, horizon))


def _judge(frame: pl.DataFrame, noise: float, horizon: int) -> Judgement:
    goals_by_regime = {key[0]: goals for key, goals in GOALS.items() if key[1:] == (noise, horizon)}
    parts, missed, met = [], [], []
    for regime, goals in goals_by_regime.items():
        for feedback in ("full", "bandit"):
            where = {"policy": "default", "regime": regime, "noise": noise, "horizon": horizon, "feedback": feedback}
            gains = {b: mean_of(frame, "gain", budget=float(b), **where) for b in goals}
            met += [gains[b] >= goals[b] for b in goals]
            missed += [
                f"{regime}, {feedback}, B = {b:,}: {gains[b]:.1f} < {goals[b]}"
                for b in goals
                if not gains[b] >= goals[b]
            ]
            parts.append(f"{regime}, {feedback}: " + ", ".join(f"{gain:.1f}" for gain in gains.values()))
    budgets = ", ".join(f"{b:,}" for b in next(iter(goals_by_regime.values())))
    measured = f"{sum(met)} of {len(met)} goals. Gain % at B = {budgets}: {'; '.join(parts)}."
    return measured + (f" Missed: {'; '.join(missed)}." if missed else ""), met
