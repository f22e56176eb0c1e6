"""Small streams: a few hundred to a few thousand tasks, which is what most teams have."""

from collections.abc import Iterable
from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import log_axis
from deferkit.study.drawing.panels import Figure, Lines
from deferkit.study.experiments.experiment import REGIMES, Experiment, Grid, Judgement, MeanTable, claim
from deferkit.study.statistics import Difference, as_float, mean_and_error, not_below

SHARES = ("2%", "5%", "10%", "25%")  # of what asking about every task would cost
GOALS = {300: (10.0, 44.0, 65.0, 83.0), 1_000: (50.0, 77.0, 86.0, 93.0), 4_000: (82.0, 91.5, 94.5, 97.5)}
REVIEWED_HORIZON = 1_000
KEPT = 0.8  # of the gain with full feedback, where rewards become known only if an expert was asked
POLICIES = ("default", "interval", "best-reject")
SEEDS: dict[str, Any] = {"seeds": range(2_000, 2_016), "quick": {"seeds": range(2_000, 2_003)}}


def worlds(horizon: int) -> list[dict[str, object]]:
    """Return the eight worlds: two regimes, two links, two dimensions."""
    sizes = ({"n_features": 5, "most_ones": 4}, {"n_features": 20})
    return [
        {"regime": regime, "link": link, "horizon": horizon, **size}
        for regime in REGIMES
        for link in ("identity", "logistic")
        for size in sizes
    ]


def by_share(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with the budget as a number: per cent of what asking about every task would cost."""
    return frame.with_columns(share=pl.col("asked_budget").str.strip_suffix("%").cast(pl.Float64))


def means(frame: pl.DataFrame, policy: str, horizon: int, feedback: str = "full") -> list[float]:
    """Return the mean gain over worlds and trials at each budget."""
    part = frame.filter(policy=policy, horizon=horizon, feedback=feedback)
    return [as_float(part.filter(asked_budget=share)["gain"].mean()) for share in SHARES]


def gain_error(frame: pl.DataFrame, horizon: int, share: str) -> float:
    """Return the standard error of the mean gain of the default, over trials of the same worlds."""
    part = frame.filter(policy="default", horizon=horizon, feedback="full", asked_budget=share)
    by_seed = part.group_by("seed").agg(pl.col("gain").mean())["gain"].to_numpy()
    return mean_and_error(by_seed)[1]


def advantage(frame: pl.DataFrame, horizon: int, share: str) -> Difference:
    """Return the difference in gain between the default and intervals, paired by world and seed."""
    part = frame.filter(horizon=horizon, asked_budget=share, feedback="full")
    keys = ["regime", "link", "n_features", "seed"]
    both = part.filter(policy="default").join(part.filter(policy="interval"), on=keys, suffix="_other")
    return mean_and_error((both["gain"] - both["gain_other"]).to_numpy())


@claim(
    "The default reaches the gain that is asked of it on small streams (2, 5, 10, 25 % of asking always),"
    " within two standard errors."
)
def _goals(frame: pl.DataFrame) -> Judgement:
    texts, met = [], []
    for horizon in sorted(set(frame["horizon"].to_list())):
        reached, goals = means(frame, "default", horizon), GOALS[horizon]
        met += [
            got >= goal - 2 * gain_error(frame, horizon, share)
            for share, got, goal in zip(SHARES, reached, goals, strict=True)
        ]
        texts.append(f"T = {horizon:,}: {join_by_slashes(reached, '.1f')} (asked {join_by_slashes(goals, 'g')})")
    return f"Mean gain % over eight worlds: {'; '.join(texts)}.", all(met)


def join_by_slashes(values: Iterable[float], digits: str) -> str:
    """Return numbers with slashes between."""
    return " / ".join(f"{value:{digits}}" for value in values)


@claim("One index for price and decision gains at least as much as intervals, at every length and budget.")
def _index(frame: pl.DataFrame) -> Judgement:
    horizons = sorted(set(frame["horizon"].to_list()))
    ahead = {(horizon, share): advantage(frame, horizon, share) for horizon in horizons for share in SHARES}
    texts = [f"T = {t:,}, {share}: {mean:+.1f} ± {error:.1f}" for (t, share), (mean, error) in ahead.items()]
    return f"Gain % more, paired: {'; '.join(texts)}.", all(map(not_below, ahead.values()))


@claim(f"Where rewards become known only if an expert was asked, {KEPT:.0%} of the gain is kept.")
def _judge_reviewed(frame: pl.DataFrame) -> Judgement:
    full, reviewed = (means(frame, "default", REVIEWED_HORIZON, feedback) for feedback in ("full", "reviewed"))
    before = means(frame, "interval", REVIEWED_HORIZON, "reviewed")
    kept = {share: r / f for share, r, f in zip(SHARES, reviewed, full, strict=True)}
    measured = (
        f"Share of the gain with full feedback, T = {REVIEWED_HORIZON:,}: "
        + ", ".join(f"{share}: {each:.0%}" for share, each in kept.items())
        + f"; gain % {join_by_slashes(reviewed, '.0f')} (with intervals {join_by_slashes(before, '.0f')})."
    )
    return measured, (each >= KEPT for each in kept.values())


EXPERIMENT = Experiment(
    title="Small streams",
    description="Most teams have hundreds or thousands of tasks, not fifty thousand. What is learned must pay within"
    " the asks that are left, so that the bonus for what is not known fades with the budget; and the price is solved"
    " with the same index that decides, or a short stream is over before the two agree.",
    grids=(
        *(Grid(policies=POLICIES, budgets=SHARES, worlds=worlds(horizon), **SEEDS) for horizon in (300, 1_000)),
        Grid(policies=POLICIES, budgets=SHARES, worlds=worlds(4_000), seeds=SEEDS["seeds"], quick=None),
        Grid(
            policies=("default", "interval"),
            budgets=SHARES,
            worlds=worlds(REVIEWED_HORIZON),
            feedbacks=["reviewed"],
            **SEEDS,
        ),
    ),
    rows=by_share,
    figure=Figure(
        title="Small streams: what is gained",
        panels=(
            Lines(
                title="T = {horizon:,}, {feedback} feedback",
                value="gain",
                y_title="gain %",
                x=log_axis("share", "budget, % of asking about every task", [2, 5, 10, 25], "~g"),
                split=["horizon", "feedback"],
                y_scale=alt.Scale(domain=[-20, 105], clamp=True),
            ),
        ),
        notes=[
            "of each of eight worlds: two regimes, identity and logistic rewards, d = 5 and 20",
            "best-reject is told what the model is expected to earn, and has the best threshold in hindsight",
        ],
    ),
    claims=(_goals, _index, _judge_reviewed),
    tables=(
        MeanTable(
            caption="{value}, T = {horizon:,}, {feedback} feedback, by budget",
            columns="asked_budget",
            split=["horizon", "feedback"],
        ),
    ),
)
