"""Binary rewards and the logistic link."""

import math

import altair as alt
import polars as pl
from scipy.stats import t as student

from deferkit.study.drawing.charts import bands, finished, log_axis, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    REGIMES,
    Experiment,
    Finding,
    as_float,
    cell,
    mean_and_error,
    mean_of,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.store import Trial

HORIZON = 5_000
BUDGETS = (200, 800, 2_500)
EXACT_BUDGETS = (200, 800)
ALLOWED = 0.05  # per cent of OPT that one Newton step may be away from the exact estimate
NAMES = {"logistic": "default", "identity": "linear link", "always": "exact at every step"}


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials, or 3; exact refits at every step on 4 (or 1), Algorithm 1, which needs them, on 2."""
    seeds, few, exact_budgets = (3, 1, EXACT_BUDGETS[:1]) if quick else (20, 4, EXACT_BUDGETS)
    worlds = [{"regime": regime, "link": "logistic", "horizon": HORIZON} for regime in REGIMES]
    return (
        trials_of(("default", "best-reject"), BUDGETS, seeds, worlds)
        + trials_of(("default",), BUDGETS, seeds, worlds, parameters={"link": "identity"})
        + trials_of(("default",), exact_budgets, few, worlds, parameters={"refit": "always"})
        + ([] if quick else trials_of(("paper",), exact_budgets, few // 2, worlds))
    )


def named(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with a name for each variant of the learner."""
    exact = pl.col("policy_refit").fill_null("") == "always"
    linear = pl.col("policy_link").fill_null("") == "identity"
    name = (
        pl.when(pl.col("policy") != "default")
        .then(pl.col("policy"))
        .when(exact)
        .then(pl.lit(NAMES["always"]))
        .when(linear)
        .then(pl.lit(NAMES["identity"]))
        .otherwise(pl.lit(NAMES["logistic"]))
    )
    return frame.with_columns(variant=name)


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain over budgets; exact refits are judged in pairs instead, as their few seeds would mislead here."""
    rows = named(frame).filter(pl.col("variant") != NAMES["always"])
    charts = [
        bands(
            over_trials(rows.filter(regime=regime), ["variant", "budget"], "gain"),
            x=log_axis("budget", "budget B", BUDGETS),
            y_title="gain %",
            y_scale=alt.Scale(domain=[-10, 105]),
            by="variant",
        ).properties(title=f"{regime} human")
        for regime in REGIMES
    ]
    return finished(
        side_by_side(charts),
        "Binary rewards: the logistic link",
        f"T = 5,000, rewards 0 or 1, full feedback; mean ± sd over {seeds_text(rows, 'variant')}"
        + (" (the paper's algorithm has the few)" if "paper" in rows["policy"] else ""),
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge one Newton step against exact refits, and against the wrong link."""
    rows = named(frame)
    step, exact, linear = (rows.filter(variant=NAMES[k]) for k in ("logistic", "always", "identity"))
    paired = exact.join(step, on=["regime", "asked_budget", "seed"], suffix="_step").with_columns(
        lost=pl.col("pct_opt") - pl.col("pct_opt_step")
    )
    lost = over_trials(paired, ["regime", "budget"], "lost")
    streams = paired.group_by("regime", "seed").agg(pl.col("lost").mean())["lost"].to_numpy()
    mean, error = mean_and_error(streams)
    reach = float(student.ppf(0.975, len(streams) - 1)) * error if len(streams) > 1 else math.inf
    gained = [
        mean_of(step, "gain", regime=r, budget=float(b)) - mean_of(linear, "gain", regime=r, budget=float(b))
        for r in REGIMES
        for b in BUDGETS
    ]
    return [
        Finding(
            f"One Newton step loses at most {ALLOWED} % of OPT against the exact estimate at every step.",
            "deferkit",
            f"Lost, {len(streams)} streams: {mean:+.3f} % of OPT (95 % interval ± {reach:.3f}); "
            + ", ".join(
                f"{r} B = {b:,.0f}: {cell(m, s, 3)}"
                for r, b, m, s in lost.select("regime", "budget", "mean", "sd").rows()
            )
            + f"; at {as_float(step['us_per_step'].median()):.0f} µs a step instead of"
            f" {as_float(exact['us_per_step'].median()):,.0f}.",
            FAILS if mean - reach > ALLOWED else HOLDS if mean + reach <= ALLOWED else PARTLY,
        ),
        Finding(
            "The logistic link is worth having for binary rewards.",
            "deferkit",
            "Gain % over the linear link, B = 200, 800, 2,500, complementary then dominant: "
            + ", ".join(f"{g:+.1f}" for g in gained)
            + ".",
            HOLDS if min(gained) > 0 else PARTLY if max(gained) > 0 else FAILS,
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gains and times."""
    rows = named(frame)
    result = {
        f"Gain %, {r} human, by budget": pivot(rows.filter(regime=r), "variant", "budget", "gain") for r in REGIMES
    }
    result["µs a step, both regimes, by budget"] = pivot(
        rows.filter(pl.col("policy") != "best-reject"), "variant", "budget", "us_per_step"
    )
    return result


EXPERIMENT = Experiment(
    "logistic",
    "Binary rewards",
    "Rewards are 0 or 1 with a logistic mean. The default takes one Newton step a task and refits"
    " exactly each time the sample"
    " has doubled; beside it exact refits at every step, a linear link, Algorithm 1 and BestReject.",
    trials,
    figure,
    findings,
    tables,
)
