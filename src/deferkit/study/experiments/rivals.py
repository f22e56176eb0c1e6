"""Other libraries' budgeted bandits beside ours."""

import altair as alt
import polars as pl

from deferkit.study.charts import chart_of, finished, layered
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
OURS = ("default", "paper")


def trials(quick: bool) -> list[Trial]:
    """Return 5 trials of each, or 1; bandit feedback, which is all that a peer can use."""
    worlds = [{"regime": regime, "horizon": HORIZON} for regime in REGIMES]
    return trials_of((*OURS, *PEERS, "best-reject"), BUDGETS, 1 if quick else 5, worlds, feedbacks=["bandit"])


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain against time."""
    rows = over_trials(frame, ["policy", "regime", "budget"], "gain").join(
        over_trials(frame, ["policy", "regime", "budget"], "us_per_step").select(
            "policy", "regime", "budget", us="mean"
        ),
        on=["policy", "regime", "budget"],
    )
    setting = pl.col("regime") + ", B = " + pl.col("budget").map_elements("{:,.0f}".format, return_dtype=pl.String)
    rows = rows.with_columns(setting=setting)
    label = pl.struct("mean", "us").map_elements(
        lambda r: f"{r['mean']:.0f}" + ("" if r["us"] is None else f"  ({r['us']:,.{0 if r['us'] > 10 else 1}f} µs)"),
        return_dtype=pl.String,
    )
    rows = rows.with_columns(label=label)
    settings = rows["setting"].unique(maintain_order=True).to_list()
    order = (*OURS, *PEERS, "best-reject")
    base = chart_of(rows).encode(
        y=alt.Y("policy:N", sort=list(order), title=None),
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
        f"T = 10,000, σ = 0.1, bandit feedback, the same hard stop for all; mean ± sd over {seeds_text(frame)}",
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge whether any peer is ahead."""
    gains = over_trials(frame, ["policy", "regime", "budget"], "gain")
    speed = over_trials(frame.filter(pl.col("us_per_step").is_not_nan()), ["policy"], "us_per_step")
    texts, ahead = [], 0
    for regime in REGIMES:
        for budget in BUDGETS:
            part = gains.filter(regime=regime, budget=float(budget)).sort("mean", descending=True)
            peers = part.filter(pl.col("policy").is_in(list(PEERS)))
            ours = float(part.filter(policy="default")["mean"][0])
            ahead += ours > float(peers["mean"][0])
            texts.append(
                f"{regime} B = {budget:,}: {ours:.0f} against {peers['mean'][0]:.0f} of {peers['policy'][0]}, the"
                " best of them"
            )
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
        {"policy": key[0], "regime": key[1], "B": f"{key[2]:,.0f}"}
        | {name: cell_of(part, column, digits) for name, (column, digits) in shown.items()}
        for key, part in frame.group_by("policy", "regime", "budget", maintain_order=True)
    ]
    return {"Rivals (mean ± sd)": pl.DataFrame(rows)}


EXPERIMENT = Experiment(
    "rivals",
    "Rivals: other libraries",
    "Budgeted bandits that people could install instead, each behind a small adapter, on the same tasks"
    " with the same hard"
    " stop. They are told the mean cost of asking; methods for unit costs need it.",
    trials,
    figure,
    findings,
    tables,
)
