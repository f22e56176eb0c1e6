"""Knapsacks with five budgets: regret over time."""

import math

import altair as alt
import numpy as np
import polars as pl

from deferkit.study.drawing.charts import finished, in_order, side_by_side
from deferkit.study.experiments.experiment import Experiment, Finding, as_float, mean_and_error, mean_of
from deferkit.study.experiments.knapsacks import (
    KIND,
    LEARNERS,
    NETWORK_WITH_PRINTED_PRICE,
    OTHER_NETWORKS,
    RULES,
    WITH_PRINTED_PRICE,
    WORLD,
    paths,
    said,
)
from deferkit.study.experiments.people import (
    BUDGETS,
    OF_PAPER,
    PRINTED,
    at_budgets,
    both_ran,
    budgets_text,
    by_budget,
    compare,
    count,
    default_is_best,
    difference,
    named,
    not_below,
    over_time,
    present,
    share_verdict,
    subtitle,
    surely,
    tables_by_budget,
    trials_with,
)
from deferkit.study.store import Trial

CLOSE = 0.1  # of an exponent to 2/3
UNDRAWN = ("HumanOnly", "ModelOnly", "ArbitraryHuman", "hindsight OPT")


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials of each at five budgets, or 2 at two of them; what is slow, where it matters most."""
    n, budgets = count(quick), ("inf", "0.25T") if quick else tuple(BUDGETS)
    limited = [budget for budget in budgets if budget != "inf"]  # without a limit there is no price
    return (
        trials_with((*LEARNERS, *RULES), budgets, n, WORLD)
        + trials_with(WITH_PRINTED_PRICE, limited, n, WORLD)
        + trials_with([NETWORK_WITH_PRINTED_PRICE], ["0.25T"], n, WORLD)
        + trials_with(() if quick else OTHER_NETWORKS, ["0.25T"], count(quick, slow=True), WORLD)
    )


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw regret over time at each budget, and gain over budgets."""
    shown = named(frame, KIND)
    long = paths(frame).filter(~pl.col("who").is_in(UNDRAWN))
    among = in_order(long, "who")
    charts = [
        over_time(
            long.filter(asked_budget=b), "regret_at", "regret against hindsight OPT", among=among, width=330
        ).properties(title=f"budget: {BUDGETS[b]}")
        for b in present(frame)
    ]
    charts.append(
        by_budget(shown.filter(pl.col("who").is_in(among)), "gain", "gain %", among=among, width=330).properties(
            title="gain by budget"
        )
    )
    return finished(
        side_by_side(charts, columns=3),
        f"Knapsacks: regret over time, at {budgets_text(frame)}",
        subtitle(shown, said()),
    )


def exponent(frame: pl.DataFrame, who: str, budget: str, since: float = 0.5) -> float:
    """Return the slope of log mean regret over log t from this share of the tasks on; NaN where there is no regret."""
    rows = paths(frame).filter(who=who, asked_budget=budget)
    means = rows.group_by("at").agg(pl.col("regret_at").mean()).sort("at")
    late = means.filter(pl.col("at") >= since * as_float(means["at"].max()))
    at, regret = late["at"].to_numpy(), late["regret_at"].to_numpy()
    return float(np.polyfit(np.log(at), np.log(regret), 1)[0]) if len(regret) > 1 and regret.min() > 0 else math.nan


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge regret, price and embeddings."""
    shown = named(frame, KIND)
    return [*of_paper(frame), *of_price(shown), *of_embeddings(shown), default_is_best({"": shown}, KIND, "knapsacks")]


def of_paper(frame: pl.DataFrame) -> list[Finding]:
    """Judge what the paper says of the regret."""
    shown = named(frame, KIND)
    slopes, more = {}, {}
    for learner in ("Linear", "NeuralLinear"):
        free = shown.filter(who=learner, asked_budget="inf").select("seed", free="regret")
        for who in (learner + PRINTED, learner):
            for b in present(shown.filter(who=who)):
                if b in OF_PAPER:
                    slopes[who, b] = exponent(frame, who, b)
                if b != "inf":
                    both = shown.filter(who=who, asked_budget=b).join(free, on="seed")
                    more[who, b] = mean_and_error((both["regret"] - both["free"]).to_numpy())
    # the claim is about the paper's price, on our estimates; without a limit there is none
    judged = [(who, b) for who, b in slopes if b == "inf" or who.endswith(PRINTED)]
    texts = [f"{who} {BUDGETS[b]} {difference(found, 0)}" for (who, b), found in more.items()]
    return [
        Finding(
            "Regret appears to grow as t^(2/3) (knapsacks).",
            "paper",
            "Exponent over the second half (over all tasks from 5 % on): "
            + ", ".join(
                f"{who} {BUDGETS[b]} {slope:.2f} ({exponent(frame, who, b, 0.05):.2f})"
                for (who, b), slope in slopes.items()
            )
            + ". The OPT of a table sees the noise, and no policy can: regret against it has a linear part, however"
            " well anything is learned. Judged without a limit and with the paper's price.",
            share_verdict(abs(slopes[setting] - 2 / 3) <= CLOSE for setting in judged),
        ),
        Finding(
            "With a limited budget regret is substantially higher (knapsacks).",
            "paper",
            f"Regret more than without a limit: {', '.join(texts)}. Judged with the paper's price.",
            share_verdict(surely(found) for (who, _), found in more.items() if who.endswith(PRINTED)),
        ),
    ]


def of_price(shown: pl.DataFrame) -> list[Finding]:
    """Judge what the price does, with the same estimates."""
    found, texts = [], []
    for who in ("Linear", "NeuralLinear"):
        for b in both_ran(shown, who, who + PRINTED):
            part = shown.filter(asked_budget=b)
            found.append(compare(part, who, who + PRINTED))
            spent = [mean_of(part, "spent_pct", who=each) for each in (who + PRINTED, who)]
            texts.append(f"{who} {BUDGETS[b]} {difference(found[-1])} (spent {spent[0]:.0f} % then {spent[1]:.0f} %)")
    passed = as_float(
        shown.filter(~pl.col("policy").is_in(["human-only", "opt"]))["spent_pct"].drop_nans().drop_nulls().max()
    )
    return [
        Finding(
            "With the same estimates, our price gains more than the printed one at every budget (knapsacks).",
            "deferkit",
            f"Gain % more than with the printed price: {'; '.join(texts)}.",
            share_verdict(map(surely, found)),
        ),
        Finding(
            "The budget is never passed (knapsacks).",
            "paper",
            f"The most that anyone but HumanOnly and OPT spent in any trial: {passed:.2f} % of B.",
            share_verdict([passed <= 100]),
        ),
    ]


def of_embeddings(shown: pl.DataFrame) -> list[Finding]:
    """Judge trees and other networks."""
    found = {b: compare(shown.filter(asked_budget=b), "TreeLinear", "Linear") for b in present(shown)}
    means = {b: [mean_of(shown, "gain", who=who, asked_budget=b) for who in ("TreeLinear", "Linear")] for b in found}
    times = max(tree / max(linear, 1e-9) for tree, linear in means.values())
    networks, texts = [], []
    for who in ("NeuralUCB", "NeuralTS"):
        for b in both_ran(shown, who, "NeuralLinear"):
            networks.append(compare(shown.filter(asked_budget=b), "NeuralLinear", who))
            us = mean_of(shown, "us_per_step", who=who, asked_budget=b)
            texts.append(f"{who} {BUDGETS[b]} {difference(networks[-1])} at {us:,.0f} µs a step")
    result = [
        Finding(
            "TreeLinear never loses to Linear by more than noise (knapsacks).",
            "deferkit",
            "Gain %, TreeLinear less Linear: "
            + ", ".join(f"{BUDGETS[b]} {difference(d)}" for b, d in found.items())
            + f"; at best {times:.1f} × the gain. TreeLinear: {at_budgets(shown, 'TreeLinear', 'gain')};"
            f" Linear: {at_budgets(shown, 'Linear', 'gain')}.",
            share_verdict(map(not_below, found.values())),
        ),
    ]
    claim = Finding(
        "NeuralUCB and NeuralTS, with our price, gain no more than NeuralLinear (knapsacks).",
        "deferkit",
        f"Gain %, NeuralLinear less theirs: {'; '.join(texts)}.",
        share_verdict(map(not_below, networks)),
    )
    return [*result, claim] if networks else result


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gain, per cent of OPT and spending."""
    return tables_by_budget(named(frame, KIND))


EXPERIMENT = Experiment(
    "knapsack-regret",
    "Knapsacks: regret over time",
    "The same tasks with the paper's three budgets and two small ones. Beside the learners: the same estimates with the"
    " paper's printed price, Algorithm 1 as printed, and networks with other widths (NeuralUCB, NeuralTS). The two"
    " prices differ only where there is a limit.",
    trials,
    figure,
    findings,
    tables,
)
