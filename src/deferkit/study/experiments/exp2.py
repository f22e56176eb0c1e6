"""Experiment 2: performance over budgets, in two regimes."""

from typing import Any, NamedTuple

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import log_axis
from deferkit.study.drawing.panels import Figure, Lines
from deferkit.study.experiments.experiment import (
    BUDGETS,
    HUMAN_REGIMES,
    PRINTED_PCT,
    REGIMES,
    Experiment,
    Grid,
    Judgement,
    MeanTable,
    PolicyRanking,
    claim,
    goal_claim,
    select_rows,
    verdict,
)
from deferkit.study.statistics import as_float, compare_paired, mean_of, over_trials

DRAWN = ("default", "gradient", "paper", "best-reject", "threshold", "arbitrary-human", "model-only")
SIMPLE = ("model-only", "arbitrary-human", "random", "threshold", "best-reject")
CLOSE = 95  # gain % that counts as close to OPT
MARGIN = 10  # gain % that counts as a significant margin
SPENT = 99.4
POLICIES = (*DRAWN, "adaptive", "greedy", "thompson", "random", "human-only", "opt")
UNLIMITED = ("human-only", "opt")  # the first has no budget, the second keeps it on average
CELLS = [(regime, budget) for regime in REGIMES for budget in BUDGETS]
GRID: dict[str, Any] = {
    "budgets": BUDGETS,
    "worlds": HUMAN_REGIMES,
    "seeds": range(20),
    "quick": {"seeds": range(3)},
}


class Contest(NamedTuple):
    """How a policy did against the best simple baseline of each setting."""

    won: int  # by more than two standard errors of the difference
    lost: list[str]
    settings: int

    @property
    def text(self) -> str:
        """Where the policy is ahead and where it is not."""
        ahead = (
            f"Ahead of every simple baseline by more than two standard errors in {self.won} of {self.settings} settings"
        )
        return ahead + (f"; not at {'; '.join(self.lost)}." if self.lost else ".")

    @property
    def verdict(self) -> str:
        """Whether it is ahead everywhere, somewhere or nowhere."""
        return verdict([self.won > 0, self.won == self.settings])


def against_baselines(frame: pl.DataFrame, policy: str) -> Contest:
    """Return the cells in which a policy beats every simple baseline, paired by seed, and the other cells."""
    won, lost = 0, []
    for regime, budget in CELLS:
        at: dict[str, Any] = {"regime": regime, "budget": float(budget), "feedback": "full"}
        rivals = {name: mean_of(frame, "gain", policy=name, **at) for name in SIMPLE}
        best = max(rivals, key=lambda name: rivals[name])
        more, error = compare_paired(frame.filter(**at), policy, best)
        if more > 2 * error:
            won += 1
        else:
            own = rivals[best] + more
            lost.append(f"{regime} B = {budget:,} ({own:.0f} against {rivals[best]:.0f} of {best})")
    return Contest(won, lost, len(CELLS))


def extremes(frame: pl.DataFrame, value: str, by: tuple[str, ...] = ("regime", "budget")) -> tuple[float, float]:
    """Return the least and the largest mean over the settings."""
    means = over_trials(frame, by, value)["mean"]
    return as_float(means.min()), as_float(means.max())


def more_gain(frame: pl.DataFrame, policy: str, other: str) -> dict[str, list[float]]:
    """Return the difference in gain between two policies with full feedback, by regime and budget."""

    def gain(name: str, regime: str, budget: int) -> float:
        return mean_of(frame, "gain", policy=name, regime=regime, budget=float(budget), feedback="full")

    return {r: [gain(policy, r, b) - gain(other, r, b) for b in BUDGETS] for r in REGIMES}


def by_regime(values: dict[str, list[float]], digits: int) -> str:
    """Return signed numbers for each regime as text."""
    return "; ".join(f"{r} " + ", ".join(f"{v:+.{digits}f}" for v in values[r]) for r in REGIMES)


@claim("Algorithm 1 performs near to optimal whatever the budget, attaining close to OPT (Experiment 2).", "paper")
def _close(frame: pl.DataFrame) -> Judgement:
    own = frame.filter(feedback="full", policy="paper")
    gains = over_trials(own, ["regime", "budget"], "gain")
    near = gains.filter(pl.col("mean") >= CLOSE)
    (low, high), (least, most) = extremes(own, "pct_opt"), extremes(own, "gain")
    measured = (
        f"{low:.1f} to {high:.1f} % of OPT, but the gain over the model alone is {least:.0f} to {most:.0f} %. It is at"
        f" least {CLOSE} % in {len(near)} of {len(gains)} settings"
        + (f", from B = {as_float(near['budget'].min()):,.0f} up." if len(near) else ".")
    )
    return measured, gains["mean"] >= CLOSE


@claim("It significantly outperforms all simple baselines (Experiment 2).", "paper")
def _baselines(frame: pl.DataFrame) -> Judgement:
    contest = against_baselines(frame, "paper")
    return contest.text, contest.verdict


@claim(
    "In the complementary setting it does not outperform BestReject by a significant margin; in the other it does.",
    "paper",
)
def _margin(frame: pl.DataFrame) -> Judgement:
    margin = more_gain(frame, "paper", "best-reject")
    small, large = max(margin["complementary"]) < MARGIN, margin["dominant"]
    held = [small, max(large) > MARGIN, min(large) > MARGIN]
    return f"Gain less BestReject's, B = 500 … 32,000: {by_regime(margin, 0)}.", held


@claim("The budget is never passed.", "paper")
def _never_passed(frame: pl.DataFrame) -> Judgement:
    most = as_float(frame.filter(~pl.col("policy").is_in(UNLIMITED))["spent_pct"].max())
    measured = (
        "The most that any policy but HumanOnly and OPT (which keeps it on average) spent in any trial:"
        f" {most:.2f} % of B."
    )
    return measured, most <= 100


@claim(
    "Our Algorithm 1 has the per cents of OPT of an independent implementation, within 0.5 (1.0 dominant at B ≤ 2,000)."
)
def _judge_printed(frame: pl.DataFrame) -> Judgement:
    own = frame.filter(policy="paper", feedback="full")
    off = [
        (abs(mean_of(own, "pct_opt", regime=r, budget=float(b)) - PRINTED_PCT[r][BUDGETS.index(b)]), r, b)
        for r, b in CELLS
    ]
    worst, regime, budget = max(off)
    held = all(far <= (1.0 if r == "dominant" and b <= 2_000 else 0.5) for far, r, b in off)
    return f"Largest difference {worst:.2f}, {regime} at B = {budget:,}.", held


@claim("The default beats every simple baseline at every budget.")
def _default(frame: pl.DataFrame) -> Judgement:
    contest = against_baselines(frame, "default")
    low, high = extremes(frame.filter(feedback="full", policy="default"), "gain")
    return f"{contest.text} Its gain is {low:.1f} to {high:.2f} %.", contest.verdict


@claim("The default's optimism pays in these worlds.")
def _optimism(frame: pl.DataFrame) -> Judgement:
    more = more_gain(frame, "default", "greedy")
    measured = (
        f"Gain less that of greedy, which has no optimism: {by_regime(more, 1)}. It is an insurance for rewards"
        " that nobody happens to try; here every feature comes often, and nothing has to be insured."
    )
    return measured, min(map(min, more.values())) > 0


@claim(f"The default spends at least {SPENT} % of a budget that binds.")
def _judge_spending(frame: pl.DataFrame) -> Judgement:
    binding = frame.filter(pl.col("policy") == "default", pl.col("opt_price") > 0)
    low, _ = extremes(binding, "spent_pct", ("regime", "budget", "feedback"))
    return f"Mean over trials, the least of all settings: {low:.2f} %.", low >= SPENT


def panel(value: str, title: str, bottom: float, *left_out: str) -> Lines:
    """Return a value over budgets in both regimes, without some policies."""
    return Lines(
        title=f"{{regime}} human: {title}",
        value=value,
        y_title=title,
        x=log_axis("budget", "budget B", BUDGETS),
        split=["regime"],
        rows=lambda frame: frame.filter(~pl.col("policy").is_in(left_out)),
        among=DRAWN,
        y_scale=alt.Scale(domain=[bottom, 102]),
    )


EXPERIMENT = Experiment(
    title="Experiment 2: performance over budgets",
    description="Two regimes: a human with complementary skills, and one who dominates. Seven budgets from 1 % to 64"
    " % of the number of tasks. The upper row is the paper's measure, per cent of OPT; the model alone already has most"
    " of it, so the lower row shows the gain: how much of what lies between ModelOnly and OPT is reached.",
    grids=(
        Grid(policies=POLICIES, **GRID),
        Grid(policies=("default", "paper"), feedbacks=["bandit"], **GRID),
    ),
    figure=Figure(
        title="Experiment 2: per cent of OPT flatters, gain tells",
        rows=lambda frame: frame.filter(pl.col("feedback") == "full", pl.col("policy").is_in(DRAWN)),
        panels=(panel("pct_opt", "% of OPT", 40), panel("gain", "gain %", -5, "model-only")),
    ),
    claims=(
        _close,
        _baselines,
        _margin,
        _never_passed,
        _judge_printed,
        _default,
        _optimism,
        _judge_spending,
        goal_claim(noise=0.1, horizon=50_000),
    ),
    tables=[
        MeanTable(
            caption="{value}, {regime} human, by budget (mean ± sd)",
            values={value: what},
            split=["regime"],
            rows=select_rows(feedback="full"),
        )
        for value, what in (("gain", "Gain %"), ("pct_opt", "% of OPT"), ("spent_pct", "Spent, % of the budget"))
    ],
    ranking=PolicyRanking(
        caption="Gain %, full feedback, by regime and budget (mean over trials); human-only does not keep the budget",
        short_caption="gain % by budget, full feedback, T = 50,000",
        value="gain",
        where={"feedback": "full"},
        settings={
            f"{regime} {budget:,}": {"regime": regime, "budget": float(budget)}
            for regime in REGIMES
            for budget in (500, 2_000, 8_000)
        },
        abbreviations={"complementary": "C", "dominant": "D"},
        last=["human-only"],
    ),
)
