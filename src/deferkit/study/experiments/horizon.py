"""How regret grows with the horizon."""

import math

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.study.drawing.charts import bands, chart_of, finished, layered, log_axis
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    Experiment,
    Finding,
    mean_of,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.store import Trial

HORIZONS = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
POLICIES = ("default", "gradient", "paper")
SHARE, LARGE = "0.16T", "0.64T"  # the corollary asks for more than √d·T^¾: LARGE has that from T = 2,400 on
GOAL = 0.35
ROOT = 0.55  # a slope that still counts as √T, logarithms and all


def trials(quick: bool) -> list[Trial]:
    """Return 40 trials for each horizon, or 4."""
    worlds = [{"regime": "random", "horizon": horizon} for horizon in HORIZONS]
    seeds = 4 if quick else 40
    return trials_of(POLICIES, [SHARE], seeds, worlds) + trials_of(("paper",), [LARGE], seeds, worlds[1:])


def steadied(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with OPT's luck taken out of the regret.

    OPT keeps the budget on average only: on a stream that happens to suit it, it spends and earns more. What it spends
    beyond the budget, at its own price, has mean 0, so that the mean regret stays what it is; its spread shrinks.
    """
    luck = pl.col("opt_price") * (pl.col("opt_spent") - pl.col("budget"))
    return frame.with_columns(steady=pl.col("regret") - luck)


def exponents(frame: pl.DataFrame, policy: str, share: str = SHARE) -> tuple[float, float]:
    """Return the slope of log mean regret over log T, and its standard error over resampled trials.

    NaN where a mean regret is not above 0: then there is no power to find.
    """
    rows = steadied(frame).filter(policy=policy, asked_budget=share)
    wide = rows.pivot(on="horizon", index="seed", values="steady").drop("seed")
    logs, regrets = np.log([float(name) for name in wide.columns]), wide.to_numpy()

    def slope(some: NDArray[np.float64]) -> float:
        means = some.mean(axis=0)
        return float(np.polyfit(logs, np.log(means), 1)[0]) if means.min() > 0 else math.nan

    rng = np.random.default_rng(0)
    again = [slope(regrets[rng.integers(len(regrets), size=len(regrets))]) for _ in range(200)]
    return slope(regrets), float(np.std(again))


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw regret over the horizon, both on a logarithmic scale, with the line that was fitted."""
    slopes = {policy: exponents(frame, policy)[0] for policy in POLICIES}
    summary = over_trials(steadied(frame).filter(asked_budget=SHARE), ["policy", "horizon"], "steady").with_columns(
        pl.col("low").clip(lower_bound=1.0), pl.col("mean").clip(lower_bound=1.0)
    )
    chart = bands(
        summary,
        x=log_axis("horizon", "tasks T", HORIZONS),
        y_title="regret at T",
        y_scale=alt.Scale(type="log", domain=[5, 3_000], nice=False),
        width=560,
        height=340,
    )
    ends = [
        {
            "horizon": HORIZONS[-1],
            "y": float(summary.filter(policy=p, horizon=HORIZONS[-1])["mean"][0]),
            "label": f"T^{s:.2f}",
        }
        for p, s in slopes.items()
    ]
    labels = (
        chart_of(pl.DataFrame(ends))
        .mark_text(align="right", dx=-8, dy=-16, fontSize=14, fontWeight="bold")
        .encode(x="horizon:Q", y="y:Q", text="label:N")
    )
    return finished(
        layered(chart, labels),
        "Regret against the horizon",
        "random regime, B = 0.16·T, σ = 0.1, full feedback; mean ± sd over"
        f" {seeds_text(frame.filter(asked_budget=SHARE))}, fitted"
        " exponent at the end",
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the rate."""
    large, large_error = exponents(frame, "paper", LARGE)
    small = {policy: exponents(frame, policy) for policy in POLICIES}
    ours, ours_error = small["default"]
    pct = {
        t: mean_of(frame, "pct_opt", policy="paper", horizon=t, asked_budget=SHARE) for t in (HORIZONS[0], HORIZONS[-1])
    }
    return [
        Finding(
            "Regret is of order √T, up to logarithms, if B > √d·T^¾ (Corollary 1).",
            "paper",
            f"At B = 0.64·T, where the premise is met, it grows as T^{large:.2f} (standard error"
            f" {large_error:.3f}) from"
            f" T = 4,000. At B = 0.16·T, where it is not, as T^{small['paper'][0]:.2f}"
            f" ({small['paper'][1]:.3f}); with the"
            f" gradient of Agrawal & Devanur as T^{small['gradient'][0]:.2f} ({small['gradient'][1]:.3f}).",
            HOLDS if large <= ROOT else FAILS,
        ),
        Finding(
            "The performance gets closer to OPT as T increases (Experiment 1).",
            "paper",
            f"{pct[HORIZONS[0]]:.2f} % of OPT at T = 2,000, {pct[HORIZONS[-1]]:.2f} % at T = 128,000.",
            HOLDS if pct[HORIZONS[-1]] > pct[HORIZONS[0]] else FAILS,
        ),
        Finding(
            f"The default's regret grows as T^{GOAL} at most.",
            "deferkit",
            f"T^{ours:.2f} (standard error {ours_error:.3f}).",
            HOLDS if ours <= GOAL else FAILS,
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the regret for each horizon."""
    return {
        "Regret at T, B = 0.16·T (mean ± sd)": pivot(frame.filter(asked_budget=SHARE), "policy", "horizon", "regret"),
        "The same without OPT's luck (mean ± sd)": pivot(
            steadied(frame.filter(asked_budget=SHARE)), "policy", "horizon", "steady"
        ),
        "Regret at T, B = 0.64·T (mean ± sd)": pivot(frame.filter(asked_budget=LARGE), "policy", "horizon", "regret"),
    }


EXPERIMENT = Experiment(
    "horizon",
    "How regret grows with the horizon",
    "The same random world with horizons from 2,000 to 128,000 and a budget of 0.16 for each task; the"
    " exponent is the slope"
    " of log mean regret over log T, its error from resampling trials. OPT keeps the budget on average only; what it"
    " earns by spending more than that on a lucky stream, at its own price, has mean 0 and is taken out of the regret.",
    trials,
    figure,
    findings,
    tables,
)
