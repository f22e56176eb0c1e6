"""Growth of regret with the horizon."""

from typing import Any

import altair as alt
import numpy as np
import polars as pl

from deferkit.study.drawing.charts import log_axis
from deferkit.study.drawing.panels import Figure, Lines
from deferkit.study.experiments.experiment import Experiment, Grid, Judgement, MeanTable, claim, select_rows
from deferkit.study.statistics import mean_of, power_of

HORIZONS = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
POLICIES = ("default", "gradient", "paper")
SHARE, LARGE = "0.16T", "0.64T"  # the corollary requires more than √d·T^¾: LARGE has that from T = 2,400 on
GOAL = 0.35
ROOT = 0.55  # a slope that still counts as √T, logarithms and all
RESAMPLED = 200  # times, for the standard error of a slope
WORLDS = tuple({"regime": "random", "horizon": horizon} for horizon in HORIZONS)
SEEDS: dict[str, Any] = {"seeds": range(40), "quick": {"seeds": range(4)}}


def add_steady_regret(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with a regret from which the luck of OPT is taken out (`steady`).

    OPT keeps the budget on average only: on a stream that happens to suit it, it spends and earns more. What it spends
    beyond the budget, at its own price, has mean 0, so that the mean regret stays what it is; its spread shrinks.
    """
    luck = pl.col("opt_price") * (pl.col("opt_spent") - pl.col("budget"))
    return frame.with_columns(steady=pl.col("regret") - luck)


def exponents(frame: pl.DataFrame, policy: str, share: str = SHARE) -> tuple[float, float]:
    """Return the slope of log mean regret over log T, and its standard error over resampled trials.

    NaN where a mean regret is not above 0: then there is no power to find.
    """
    rows = add_steady_regret(frame).filter(policy=policy, asked_budget=share)
    wide = rows.pivot(on="horizon", index="seed", values="steady").drop("seed")
    horizons, regrets = np.array([float(name) for name in wide.columns]), wide.to_numpy()
    rng = np.random.default_rng(0)
    samples = [regrets[rng.integers(len(regrets), size=len(regrets))] for _ in range(RESAMPLED)]
    slope, *again = (power_of(horizons, some.mean(axis=0)) for some in (regrets, *samples))
    return slope, float(np.std(again))


def exponent_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the fitted exponent of each policy, at the end of its line."""
    last = HORIZONS[-1]
    ends = {policy: mean_of(frame, "steady", policy=policy, horizon=last) for policy in POLICIES}
    return pl.DataFrame(
        [
            {"horizon": last, "y": max(y, 1.0), "label": f"T^{exponents(frame, policy)[0]:.2f}"}
            for policy, y in ends.items()
        ]
    )


@claim("Regret is of order √T, up to logarithms, if B > √d·T^¾ (Corollary 1).", "paper")
def _rate(frame: pl.DataFrame) -> Judgement:
    large, error = exponents(frame, "paper", LARGE)
    (paper, paper_error), (gradient, gradient_error) = (exponents(frame, name) for name in ("paper", "gradient"))
    measured = (
        f"At B = 0.64·T, where the premise is met, it grows as T^{large:.2f} (standard error {error:.3f}) from"
        f" T = 4,000. At B = 0.16·T, where it is not, as T^{paper:.2f} ({paper_error:.3f}); with the gradient of"
        f" Agrawal & Devanur as T^{gradient:.2f} ({gradient_error:.3f})."
    )
    return measured, large <= ROOT


@claim("The performance gets closer to OPT as T increases (Experiment 1).", "paper")
def _closer(frame: pl.DataFrame) -> Judgement:
    short, long = (
        mean_of(frame, "pct_opt", policy="paper", horizon=t, asked_budget=SHARE) for t in (HORIZONS[0], HORIZONS[-1])
    )
    return f"{short:.2f} % of OPT at T = 2,000, {long:.2f} % at T = 128,000.", long > short


@claim(f"The default's regret grows as T^{GOAL} at most.")
def _default(frame: pl.DataFrame) -> Judgement:
    slope, error = exponents(frame, "default")
    return f"T^{slope:.2f} (standard error {error:.3f}).", slope <= GOAL


EXPERIMENT = Experiment(
    title="How regret grows with the horizon",
    description="The same random world with horizons from 2,000 to 128,000 and a budget of 0.16 for each task; the"
    " exponent is the slope of log mean regret over log T, its error from resampling trials. OPT keeps the budget on"
    " average only; what it earns by spending more than that on a lucky stream, at its own price, has mean 0 and is"
    " taken out of the regret.",
    grids=(
        Grid(policies=POLICIES, budgets=[SHARE], worlds=WORLDS, **SEEDS),
        Grid(policies=["paper"], budgets=[LARGE], worlds=WORLDS[1:], **SEEDS),
    ),
    rows=add_steady_regret,
    figure=Figure(
        title="Regret against the horizon",
        rows=select_rows(asked_budget=SHARE),
        panels=(
            Lines(
                value="steady",
                y_title="regret at T",
                x=log_axis("horizon", "tasks T", HORIZONS),
                y_scale=alt.Scale(type="log", domain=[5, 3_000], nice=False),
                least=1.0,
                labels=exponent_labels,
                width=560,
                height=340,
            ),
        ),
        notes=["fitted exponent at the end"],
    ),
    claims=(_rate, _closer, _default),
    tables=[
        MeanTable(caption=caption, values={value: ""}, columns="horizon", rows=select_rows(asked_budget=budget))
        for caption, value, budget in (
            ("Regret at T, B = 0.16·T (mean ± sd)", "regret", SHARE),
            ("The same without OPT's luck (mean ± sd)", "steady", SHARE),
            ("Regret at T, B = 0.64·T (mean ± sd)", "regret", LARGE),
        )
    ],
)
