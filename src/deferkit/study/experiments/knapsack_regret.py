"""Knapsacks with five budgets: regret over time."""

from typing import Any

import polars as pl

from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Judgement, claim
from deferkit.study.experiments.knapsacks import KIND, NEURAL, RULES, WORLD, by_name, people_remark
from deferkit.study.experiments.people import (
    BUDGETS,
    LIMITED,
    OF_PAPER,
    PRICED,
    PRINTED,
    SLOW_SEEDS,
    at_budgets,
    both_ran,
    budget_tables,
    compare,
    default_claim,
    grid,
    over_budgets,
    over_tasks,
    paths,
    present,
)
from deferkit.study.statistics import (
    as_float,
    cells_text,
    difference,
    mean_and_error,
    mean_of,
    not_below,
    paired_cells,
    power_of,
    surely,
)

CLOSE = 0.1  # of an exponent to 2/3
UNDRAWN = ("HumanOnly", "ModelOnly", "ArbitraryHuman", "hindsight OPT")
LEARNERS = ("Linear", "NeuralLinear")
FOURTH: dict[str, Any] = {"budgets": ["0.25T"], "world": WORLD}


def exponent(frame: pl.DataFrame, who: str, budget: str, since: float = 0.5) -> float:
    """Return the slope of log mean regret over log t from this share of the tasks on; NaN where there is no regret."""
    rows = paths(frame.filter(who=who, asked_budget=budget))
    means = rows.group_by("at").agg(pl.col("regret_at").mean()).sort("at")
    late = means.filter(pl.col("at") >= since * as_float(means["at"].max()))
    return power_of(late["at"].to_numpy(), late["regret_at"].to_numpy())


@claim("Regret appears to grow as t^(2/3) (knapsacks).", "paper")
def _exponents(frame: pl.DataFrame) -> Judgement:
    """Judge how regret grows; the claim is about the paper's price, on our estimates, where there is a limit."""
    slopes = {
        (who, b): exponent(frame, who, b)
        for learner in LEARNERS
        for who in (learner + PRINTED, learner)
        for b in present(frame.filter(who=who))
        if b in OF_PAPER
    }
    texts = [
        f"{who} {BUDGETS[b]} {slope:.2f} ({exponent(frame, who, b, 0.05):.2f})" for (who, b), slope in slopes.items()
    ]
    measured = (
        f"Exponent over the second half (over all tasks from 5 % on): {', '.join(texts)}. The OPT of a table sees the"
        " noise, and no policy can: regret against it has a linear part, however well anything is learned. Judged"
        " without a limit and with the paper's price."
    )
    judged = [slope for (who, b), slope in slopes.items() if b == "inf" or who.endswith(PRINTED)]
    return measured, (abs(slope - 2 / 3) <= CLOSE for slope in judged)


@claim("With a limited budget regret is substantially higher (knapsacks).", "paper")
def _limits(frame: pl.DataFrame) -> Judgement:
    more = {}
    for learner in LEARNERS:
        free = frame.filter(who=learner, asked_budget="inf").select("seed", free="regret")
        for who in (learner + PRINTED, learner):
            for b in present(frame.filter(pl.col("asked_budget") != "inf", who=who)):
                both = frame.filter(who=who, asked_budget=b).join(free, on="seed")
                more[f"{who} {BUDGETS[b]}"] = mean_and_error((both["regret"] - both["free"]).to_numpy())
    measured = f"Regret more than without a limit: {cells_text(more, 0)}. Judged with the paper's price."
    return measured, (surely(found) for cell, found in more.items() if PRINTED in cell)


@claim("With the same estimates, our price gains more than the printed one at every budget (knapsacks).")
def _price(frame: pl.DataFrame) -> Judgement:
    found, texts = [], []
    for who in LEARNERS:
        for b in both_ran(frame, who, who + PRINTED):
            part = frame.filter(asked_budget=b)
            found.append(compare(part, who, who + PRINTED))
            spent = [mean_of(part, "spent_pct", who=each) for each in (who + PRINTED, who)]
            texts.append(f"{who} {BUDGETS[b]} {difference(found[-1])} (spent {spent[0]:.0f} % then {spent[1]:.0f} %)")
    return f"Gain % more than with the printed price: {'; '.join(texts)}.", map(surely, found)


@claim("The budget is never passed (knapsacks).", "paper")
def _never_passed(frame: pl.DataFrame) -> Judgement:
    bound = frame.filter(~pl.col("policy").is_in(["human-only", "opt"]))
    most = as_float(bound["spent_pct"].drop_nans().drop_nulls().max())
    measured = f"The most that anyone but HumanOnly and OPT spent in any trial: {most:.2f} % of B."
    return measured, [most <= 100]


@claim("TreeLinear never loses to Linear by more than noise (knapsacks).")
def _trees(frame: pl.DataFrame) -> Judgement:
    cells = paired_cells(frame, ["limit"], "TreeLinear", "Linear", by="who")
    gains = [[mean_of(frame, "gain", who=who, limit=limit) for who in ("TreeLinear", "Linear")] for limit in cells]
    times = max(tree / max(linear, 1e-9) for tree, linear in gains)
    measured = (
        f"Gain %, TreeLinear less Linear: {cells_text(cells)}; at best {times:.1f} × the gain. TreeLinear:"
        f" {at_budgets(frame, 'TreeLinear', 'gain')}; Linear: {at_budgets(frame, 'Linear', 'gain')}."
    )
    return measured, map(not_below, cells.values())


@claim("NeuralUCB and NeuralTS, with our price, gain no more than NeuralLinear (knapsacks).")
def _networks(frame: pl.DataFrame) -> Judgement | None:
    found, texts = [], []
    for who in ("NeuralUCB", "NeuralTS"):
        for b in both_ran(frame, who, "NeuralLinear"):
            found.append(compare(frame.filter(asked_budget=b), "NeuralLinear", who))
            us = mean_of(frame, "us_per_step", who=who, asked_budget=b)
            texts.append(f"{who} {BUDGETS[b]} {difference(found[-1])} at {us:,.0f} µs a step")
    if not found:
        return None
    return f"Gain %, NeuralLinear less theirs: {'; '.join(texts)}.", map(not_below, found)


EXPERIMENT = Experiment(
    title="Knapsacks: regret over time",
    description="The same tasks with the paper's three budgets and two small ones. Beside the learners: the same"
    " estimates with the paper's printed price, Algorithm 1 as printed, and networks with other widths (NeuralUCB,"
    " NeuralTS). The two prices differ only where there is a limit.",
    realised=True,
    grids=[
        *grid("linear", "default", world=WORLD),
        *grid("neural", world=WORLD, parameters=NEURAL),
        *grid("tree", *RULES, world=WORLD),
        *grid("linear", world=WORLD, budgets=LIMITED, parameters=PRICED),
        *grid("paper", world=WORLD, budgets=LIMITED),
        *grid("neural", parameters=NEURAL | PRICED, **FOURTH),
        *grid("neural-ucb", "neural-ts", seeds=SLOW_SEEDS, skip_quick=True, **FOURTH),
    ],
    rows=by_name,
    figure=Figure(
        title="Knapsacks: regret over time, and gain by budget",
        rows=lambda frame: frame.filter(~pl.col("who").is_in(UNDRAWN)),
        columns=3,
        by="who",
        panels=(
            over_tasks("regret_at", "regret against hindsight OPT", "budget: {limit}", split=["limit"], width=330),
            over_budgets("gain", "gain %", "gain by budget", width=330),
        ),
        seed="the people in another order",
        notes=[people_remark],
    ),
    claims=(_exponents, _limits, _price, _never_passed, _trees, _networks, default_claim(KIND, "knapsacks")),
    tables=budget_tables(),
)
