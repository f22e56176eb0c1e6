"""Small streams: a few hundred to a few thousand tasks, which is what most teams have."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import bands, finished, log_axis, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    REGIMES,
    Experiment,
    Finding,
    as_float,
    mean_and_error,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.store import Trial

SHARES = ("2%", "5%", "10%", "25%")  # of what asking about every task would cost
GOALS = {300: (10.0, 44.0, 65.0, 83.0), 1_000: (50.0, 77.0, 86.0, 93.0), 4_000: (82.0, 91.5, 94.5, 97.5)}
FIRST_SEED, SEEDS, QUICK_SEEDS = 2_000, 16, 3
REVIEWED_HORIZON = 1_000
KEPT = 0.8  # of the gain with full feedback, where rewards become known only if an expert was asked
POLICIES = ("default", "interval", "best-reject")


def worlds(horizon: int) -> list[dict[str, object]]:
    """Return the eight worlds: two regimes, two links, two dimensions."""
    sizes = ({"n_features": 5, "most_ones": 4}, {"n_features": 20})
    return [
        {"regime": regime, "link": link, "horizon": horizon, **size}
        for regime in REGIMES
        for link in ("identity", "logistic")
        for size in sizes
    ]


def trials(quick: bool) -> list[Trial]:
    """Return 16 trials for each world and budget, or 3 of the two shorter streams."""
    seeds = QUICK_SEEDS if quick else SEEDS
    horizons = [horizon for horizon in GOALS if horizon < max(GOALS) or not quick]
    made = [trial for horizon in horizons for trial in trials_of(POLICIES, SHARES, seeds, worlds(horizon))]
    made += trials_of(("default", "interval"), SHARES, seeds, worlds(REVIEWED_HORIZON), feedbacks=["reviewed"])
    return [(spec, FIRST_SEED + seed) for spec, seed in made]


def by_share(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with the budget as a number: per cent of what asking about every task would cost."""
    return frame.with_columns(share=pl.col("asked_budget").str.strip_suffix("%").cast(pl.Float64))


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain against budget for each length, with full and with reviewed feedback."""
    charts = []
    for (horizon, feedback), part in by_share(frame).group_by("horizon", "feedback", maintain_order=True):
        charts.append(
            bands(
                over_trials(part, ["policy", "share"], "gain"),
                x=log_axis("share", "budget, % of asking about every task", [2, 5, 10, 25], "~g"),
                y_title="gain %",
                y_scale=alt.Scale(domain=[-20, 105], clamp=True),
            ).properties(title=f"T = {horizon:,}, {feedback} feedback")
        )
    return finished(
        side_by_side(charts),
        "Small streams: what is gained",
        "mean ± sd over eight worlds (two regimes, identity and logistic rewards, d = 5 and 20) and their"
        f" {seeds_text(frame.filter(n_features=20, link='identity'))} each",
    )


def means(frame: pl.DataFrame, policy: str, horizon: int, feedback: str = "full") -> list[float]:
    """Return the mean gain over worlds and trials at each budget."""
    part = frame.filter(policy=policy, horizon=horizon, feedback=feedback)
    return [as_float(part.filter(asked_budget=share)["gain"].mean()) for share in SHARES]


def gain_error(frame: pl.DataFrame, horizon: int, share: str) -> float:
    """Return the standard error of the mean gain of the default, over trials of the same worlds."""
    part = frame.filter(policy="default", horizon=horizon, feedback="full", asked_budget=share)
    by_seed = part.group_by("seed").agg(pl.col("gain").mean())["gain"].to_numpy()
    return mean_and_error(by_seed)[1]


def advantage(frame: pl.DataFrame, horizon: int, share: str) -> tuple[float, float]:
    """Return how much more the default gains than with intervals, world by world and seed by seed."""
    part = frame.filter(horizon=horizon, asked_budget=share, feedback="full")
    keys = ["regime", "link", "n_features", "seed"]
    both = part.filter(policy="default").join(part.filter(policy="interval"), on=keys, suffix="_other")
    return mean_and_error((both["gain"] - both["gain_other"]).to_numpy())


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the goals, the advantage over intervals, and reviewed feedback."""
    horizons = sorted(set(frame["horizon"].to_list()))
    reached = {horizon: means(frame, "default", horizon) for horizon in horizons}
    errors = {(h, share): gain_error(frame, h, share) for h in horizons for share in SHARES}
    met = all(
        got >= goal - 2 * errors[horizon, share]
        for horizon in horizons
        for share, got, goal in zip(SHARES, reached[horizon], GOALS[horizon], strict=True)
    )
    goals = "; ".join(
        f"T = {horizon:,}: {' / '.join(f'{x:.1f}' for x in got)} (asked {' / '.join(f'{x:g}' for x in GOALS[horizon])})"
        for horizon, got in reached.items()
    )
    ahead = {(horizon, share): advantage(frame, horizon, share) for horizon in horizons for share in SHARES}
    worse = [cell for cell, (mean, error) in ahead.items() if mean < -2 * error]
    full, reviewed = (means(frame, "default", REVIEWED_HORIZON, feedback) for feedback in ("full", "reviewed"))
    before = means(frame, "interval", REVIEWED_HORIZON, "reviewed")
    kept = [r / f for r, f in zip(reviewed, full, strict=True)]
    return [
        Finding(
            "The default reaches the gain that is asked of it on small streams (2, 5, 10, 25 % of asking always),"
            " within two standard errors.",
            "deferkit",
            f"Mean gain % over eight worlds: {goals}.",
            HOLDS if met else FAILS,
        ),
        Finding(
            "One index for price and decision gains at least as much as intervals, at every length and budget.",
            "deferkit",
            "Gain % more, paired: "
            + "; ".join(f"T = {t:,}, {share}: {mean:+.1f} ± {error:.1f}" for (t, share), (mean, error) in ahead.items())
            + ".",
            FAILS if worse else HOLDS,
        ),
        Finding(
            f"Where rewards become known only if an expert was asked, {KEPT:.0%} of the gain is kept.",
            "deferkit",
            f"Share of the gain with full feedback, T = {REVIEWED_HORIZON:,}: "
            + ", ".join(f"{share}: {k:.0%}" for share, k in zip(SHARES, kept, strict=True))
            + f"; gain % {' / '.join(f'{x:.0f}' for x in reviewed)}"
            + f" (with intervals {' / '.join(f'{x:.0f}' for x in before)}).",
            HOLDS if min(kept) >= KEPT else PARTLY if max(kept) >= KEPT else FAILS,
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gains for each length and feedback."""
    return {
        f"Gain %, T = {horizon:,}, {feedback} feedback, by budget": pivot(part, "policy", "asked_budget", "gain")
        for (horizon, feedback), part in frame.group_by("horizon", "feedback", maintain_order=True)
    }


EXPERIMENT = Experiment(
    "small-streams",
    "Small streams",
    "Most teams have hundreds or thousands of tasks, not fifty thousand. What is learned must pay within the"
    " asks that are left, so that the bonus for what is not known fades with the budget; and the price is solved"
    " with the same index that decides, or a short stream is over before the two agree.",
    trials,
    figure,
    findings,
    tables,
)
