"""Other people's budgeted bandits beside ours: long, short and drifting streams."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, finished, layered
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    REGIMES,
    Experiment,
    Finding,
    cell_of,
    over_trials,
    seeds_text,
    trials_of,
)
from deferkit.study.peers import PEERS
from deferkit.study.store import Trial

HORIZON = 10_000
BUDGETS = (400, 2_500)
SHORT, SHARE = 1_000, "10%"
KINDS, RATE = ("abrupt", "seasonal"), "0.1T"
OURS = ("default", "paper")
ALL = (*OURS, *PEERS, "best-reject")


def trials(quick: bool) -> list[Trial]:
    """Return 5 trials of each, or 1; bandit feedback, which is all that a peer can use."""
    seeds = 1 if quick else 5
    made = []
    for world, horizon, budgets, differ in (
        ("synthetic", HORIZON, BUDGETS, {"regime": REGIMES}),
        ("synthetic", SHORT, (SHARE,), {"regime": REGIMES}),
        ("drift", HORIZON, (RATE,), {"kind": KINDS}),
    ):
        worlds = [{"horizon": horizon, name: value} for name, values in differ.items() for value in values]
        made += trials_of(ALL, budgets, seeds, worlds, world=world, feedbacks=["bandit"])
    return made


def by_setting(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with their setting as text, in the order in which they were asked for."""
    budget = pl.col("budget").map_elements("{:,.0f}".format, return_dtype=pl.String)
    tasks = pl.col("horizon").map_elements("{:,}".format, return_dtype=pl.String)
    which = pl.when(world="drift").then("drift " + pl.col("kind")).otherwise(pl.col("regime"))
    size = pl.when(pl.col("asked_budget").is_in([SHARE, RATE])).then(pl.col("asked_budget")).otherwise(budget)
    return frame.with_columns(setting=which + ", T = " + tasks + ", B = " + size)


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain against time."""
    placed = by_setting(frame)
    rows = over_trials(placed, ["policy", "setting"], "gain").join(
        over_trials(placed, ["policy", "setting"], "us_per_step").select("policy", "setting", us="mean"),
        on=["policy", "setting"],
    )
    label = pl.struct("mean", "us").map_elements(
        lambda r: f"{r['mean']:.0f}" + ("" if r["us"] is None else f"  ({r['us']:,.{0 if r['us'] > 10 else 1}f} µs)"),
        return_dtype=pl.String,
    )
    rows = rows.with_columns(label=label)
    settings = rows["setting"].unique(maintain_order=True).to_list()
    base = chart_of(rows).encode(
        y=alt.Y("policy:N", sort=list(ALL), title=None),
        color=alt.condition("datum.policy == 'default'", alt.value("#0b5fa5"), alt.value("#9aa5b1")),
    )
    bars = base.mark_bar().encode(
        x=alt.X("mean:Q", title="gain % (µs a step)", scale=alt.Scale(domain=[-10, 150])),
        tooltip=["policy:N", alt.Tooltip("mean:Q", format=".1f"), alt.Tooltip("us:Q", format=".1f", title="µs a step")],
    )
    lines = base.mark_rule(strokeWidth=2, color="#333").encode(x="low:Q", x2="high:Q", color=alt.value("#333"))
    labels = base.mark_text(align="left", dx=6, fontSize=12).encode(x="high:Q", text="label:N", color=alt.value("#222"))
    chart = layered(bars, lines, labels).properties(width=330, height=210)
    return finished(
        chart.facet(facet=alt.Facet("setting:N", title=None, sort=settings), columns=2),
        "Rivals: gain on the same tasks",
        f"bandit feedback, the same hard stop for all; σ = 0.1, drift σ = 0.3; mean ± sd over {seeds_text(frame)}",
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge whether any peer is ahead."""
    placed = by_setting(frame)
    gains = over_trials(placed, ["policy", "setting"], "gain")
    speed = over_trials(frame.filter(pl.col("us_per_step").is_not_nan()), ["policy"], "us_per_step")
    texts, ahead = [], 0
    for setting in placed["setting"].unique(maintain_order=True):
        part = gains.filter(setting=setting).sort("mean", descending=True)
        peers = part.filter(pl.col("policy").is_in(list(PEERS)))
        ours = float(part.filter(policy="default")["mean"][0])
        ahead += ours > float(peers["mean"][0])
        texts.append(f"{setting}: {ours:.0f} against {peers['mean'][0]:.0f} of {peers['policy'][0]}, the best of them")
    times = ", ".join(f"{name} {us:,.1f}" for name, us in speed.sort("mean").select("policy", "mean").rows())
    return [
        Finding(
            "The default gains more than every peer.",
            "deferkit",
            f"Gain %: {'; '.join(texts)}. µs a step (ours in bulk, peers one task at a time from Python): {times}.",
            HOLDS if ahead == len(texts) else PARTLY if ahead else FAILS,
        )
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return reward, gain, spending and time in one table."""
    shown = {
        "reward": ("reward", 0),
        "gain %": ("gain", 1),
        "spent %": ("spent_pct", 1),
        "µs a step": ("us_per_step", 1),
    }
    rows = [
        {"policy": key[0], "setting": key[1]}
        | {name: cell_of(part, column, digits) for name, (column, digits) in shown.items()}
        for key, part in by_setting(frame).group_by("policy", "setting", maintain_order=True)
    ]
    return {"Rivals (mean ± sd)": pl.DataFrame(rows)}


EXPERIMENT = Experiment(
    "rivals",
    "Rivals: other people's methods",
    "Budgeted bandits that people could install instead, each behind a small adapter, and AUPD (Guo and Liu 2025),"
    " written here with our estimates, on the same tasks with the same hard stop: long streams, short ones, and ones"
    " that drift. They are told the mean cost of asking; methods for unit costs need it.",
    trials,
    figure,
    findings,
    tables,
)
