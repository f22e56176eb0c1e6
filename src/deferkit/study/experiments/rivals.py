"""Other people's budgeted bandits beside ours: long, short and drifting streams."""

from typing import Any

import polars as pl

from deferkit.study.drawing.figures import GainBars
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import REGIMES, Experiment, Grid, Judgement, OutcomeTable, claim
from deferkit.study.peers import PEERS
from deferkit.study.statistics import over_trials

LONG, SHORT = 10_000, 1_000
SHARE, RATE = "10%", "0.1T"
POLICIES = ("default", "paper", *PEERS, "best-reject")
GRID: dict[str, Any] = {
    "policies": POLICIES,
    "feedbacks": ["bandit"],  # all that a peer can use
    "seeds": range(5),
    "quick": {"seeds": range(1)},
}


def by_setting(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with their setting as text (`setting`)."""
    budget = pl.col("budget").map_elements("{:,.0f}".format, return_dtype=pl.String)
    tasks = pl.col("horizon").map_elements("{:,}".format, return_dtype=pl.String)
    which = pl.when(world="drift").then("drift " + pl.col("kind")).otherwise(pl.col("regime"))
    size = pl.when(pl.col("asked_budget").is_in([SHARE, RATE])).then(pl.col("asked_budget")).otherwise(budget)
    return frame.with_columns(setting=which + ", T = " + tasks + ", B = " + size)


@claim("The default gains more than every peer.")
def _ahead(frame: pl.DataFrame) -> Judgement:
    gains = over_trials(frame, ["policy", "setting"], "gain")
    speed = over_trials(frame.filter(pl.col("us_per_step").is_not_nan()), ["policy"], "us_per_step")
    texts, ahead = [], []
    for setting in frame["setting"].unique(maintain_order=True):
        part = gains.filter(setting=setting).sort("mean", descending=True)
        best, theirs = part.filter(pl.col("policy").is_in(list(PEERS))).select("policy", "mean").row(0)
        ours = float(part.filter(policy="default")["mean"][0])
        ahead.append(ours > theirs)
        texts.append(f"{setting}: {ours:.0f} against {theirs:.0f} of {best}, the best of them")
    times = ", ".join(f"{name} {us:,.1f}" for name, us in speed.sort("mean").select("policy", "mean").rows())
    measured = f"Gain %: {'; '.join(texts)}. µs a step (ours in bulk, peers one task at a time from Python): {times}."
    return measured, ahead


EXPERIMENT = Experiment(
    title="Rivals: other people's methods",
    description="Budgeted bandits that people could install instead, each behind a small adapter, and AUPD (Guo and Liu"
    " 2025), written here with our estimates, on the same tasks with the same hard stop: long streams, short ones, and"
    " ones that drift. They are told the mean cost of asking; methods for unit costs need it.",
    grids=(
        Grid(budgets=(400, 2_500), worlds=[{"horizon": LONG, "regime": regime} for regime in REGIMES], **GRID),
        Grid(budgets=[SHARE], worlds=[{"horizon": SHORT, "regime": regime} for regime in REGIMES], **GRID),
        Grid(
            world="drift",
            budgets=[RATE],
            worlds=[{"horizon": LONG, "kind": kind} for kind in ("abrupt", "seasonal")],
            **GRID,
        ),
    ),
    rows=by_setting,
    figure=Figure(
        title="Rivals: gain on the same tasks",
        panels=(GainBars(policies=POLICIES),),
        notes=["the same hard stop for all; σ = 0.1, where rewards drift 0.3"],
    ),
    claims=(_ahead,),
    tables=(
        OutcomeTable(
            caption="Rivals (mean ± sd)",
            index=("policy", "setting"),
            values={
                "reward": ("reward", 0),
                "gain %": ("gain", 1),
                "spent %": ("spent_pct", 1),
                "µs a step": ("us_per_step", 1),
            },
        ),
    ),
)
