"""model-vs-human: two networks, people with real response times, in the order of the experiments and shuffled."""

from collections.abc import Callable
from typing import Any

import polars as pl

from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Judgement, StudyClaim, claim, select_rows
from deferkit.study.experiments.people import (
    BUDGETS,
    LIMITED,
    OPT,
    PRICED,
    PRINTED,
    SLOW_SEEDS,
    add_names,
    both_ran,
    budget_tables,
    compare,
    default_claim,
    grid,
    over_budgets,
    present,
    remark,
)
from deferkit.study.statistics import Difference, cells_text, difference, mean_and_error, mean_of, not_below, surely

WORLD, KIND = "model-vs-human", "Logistic"
NEURAL = {"embedding": {"learning_rate": 5e-4, "every": [[0, 20], [4000, 100]], "batch": 500}}
MODELS = ("clip", "resnet50")
ORDERS = {"experiment": "one experiment after another", "shuffled": "shuffled"}
WORLDS = [{"model": model, "order": order} for model in MODELS for order in ORDERS]
SMALL_LOSS = 5.0  # gain %
ALL: dict[str, Any] = {"world": WORLD, "worlds": WORLDS}
CLIP: dict[str, Any] = {"world": WORLD, "worlds": WORLDS[:2], "seeds": SLOW_SEEDS, "skip_quick": True}
FOURTH = ["0.25T"]


def named_settings(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with names of policies and budgets, and with network and order as text (`setting`)."""
    order = pl.col("order").replace_strict(ORDERS)
    return add_names(frame, KIND).with_columns(setting=pl.col("world_model") + " " + order)


def settings(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Return the trials of each network and order that was run."""
    return [(str(key[0]), part) for key, part in frame.group_by("setting", maintain_order=True)]


@claim("Both together are better than the model or the human alone (model-vs-human, no limit).")
def _alone(frame: pl.DataFrame) -> Judgement:
    found, texts = [], []
    for title, part in settings(frame.filter(asked_budget="inf")):
        each = [compare(part, "Logistic", alone, "pct_opt") for alone in ("HumanOnly", "ModelOnly")]
        found += each
        texts.append(f"{title} {difference(each[0])} and {difference(each[1])}")
    measured = f"% of OPT that Logistic has more than HumanOnly and ModelOnly: {'; '.join(texts)}."
    return measured, map(surely, found)


@claim("Logistic gains more than BestReject, which knows its threshold, and ArbitraryHuman (model-vs-human).")
def _rules(frame: pl.DataFrame) -> Judgement:
    found, lost = [], []
    for title, part in settings(frame):
        for b in present(part):
            for rule in ("BestReject", "ArbitraryHuman"):
                found.append(compare(part.filter(asked_budget=b), "Logistic", rule))
                if not surely(found[-1]):
                    lost.append(f"{title} {BUDGETS[b]}, {rule}: {difference(found[-1])}")
    least = min(mean for mean, _ in found)
    measured = f"In {len(found) - len(lost)} of {len(found)} comparisons; gain % more: at least {least:.1f}."
    return measured + (f" Not in: {'; '.join(lost)}." if lost else ""), map(surely, found)


@claim(f"A real shift, one experiment after another, costs Logistic less than {SMALL_LOSS:.0f} % of gain.")
def _shift(frame: pl.DataFrame) -> Judgement:
    texts, losses = [], []
    for who in (KIND, f"Neural{KIND}", f"Tree{KIND}"):
        for model in MODELS:
            rows = frame.filter(who=who, world_model=model)
            shuffled, in_order = (rows.filter(order=order) for order in ("shuffled", "experiment"))
            both = shuffled.join(in_order, on=["seed", "limit", "asked_budget"], suffix="_other")
            each = {
                BUDGETS[b]: mean_and_error((part["gain"] - part["gain_other"]).to_numpy())
                for b in present(both)
                for part in [both.filter(asked_budget=b)]
            }
            texts += [f"{who} {model} {cells_text(each)}"] if each else []
            losses += [mean for mean, _ in each.values() if who == KIND]
    measured = (
        f"Gain % lost against shuffled people: {'; '.join(texts)}."
        " The budget is paced as if what comes were like what came."
    )
    return measured, (loss < SMALL_LOSS for loss in losses)


def pair_claim(text: str, one: str, other: str, rule: Callable[[Difference], bool]) -> StudyClaim:
    """Return a claim about one policy against another, wherever both were run."""

    @claim(text)
    def judge(frame: pl.DataFrame) -> Judgement:
        found: list[Difference] = []
        texts = []
        for title, part in settings(frame):
            each = {BUDGETS[b]: compare(part.filter(asked_budget=b), one, other) for b in both_ran(part, one, other)}
            found += each.values()
            spent = [
                f"{mean_of(part, 'spent_pct', who=who, asked_budget='0.25T'):.0f} %"
                for who in (one, other)
                if "T/4" in each
            ]
            at_fourth = f" (spent at T/4: {' and '.join(spent)})" if spent else ""
            texts += [f"{title}: {cells_text(each)}{at_fourth}"] if each else []
        return f"Gain %, {one} less {other}: {'; '.join(texts)}.", map(rule, found)

    return judge


EXPERIMENT = Experiment(
    title="model-vs-human: real response times",
    description="37 people name drawings, edges, silhouettes and pictures with contradicting texture within 1.5 s; two"
    " networks name them too. Times are real. In the order of the experiments what both can do changes three times;"
    " shuffled, it does not.",
    realised=True,
    grids=[
        *grid("linear", "best-reject", "arbitrary-human", "model-only", "opt", **ALL),
        *grid("human-only", budgets=["inf"], **ALL),
        *grid("linear", budgets=LIMITED, parameters=PRICED, **ALL),
        *grid("default", budgets=("0.1T", "0.25T"), seeds=SLOW_SEEDS, **ALL),
        *grid("tree", budgets=FOURTH, seeds=SLOW_SEEDS, quick={"worlds": WORLDS[:2]}, **ALL),
        *grid("tree", budgets=["0.1T"], seeds=SLOW_SEEDS, skip_quick=True, **ALL),
        *grid("tree", budgets=("inf", "0.05T"), **CLIP),
        *grid("neural", budgets=FOURTH, parameters=NEURAL, **CLIP),
    ],
    rows=named_settings,
    figure=Figure(
        title="model-vs-human: what is gained over the network alone, with real response times",
        rows=lambda frame: frame.filter(~pl.col("who").is_in([OPT, "ModelOnly"])),
        by="who",
        panels=[over_budgets("gain", "gain %", "{setting}", split=["setting"])],
        seed="the people in another order",
        notes=[lambda _: remark(WORLD, {}), "BestReject's threshold is set in hindsight"],
    ),
    claims=(
        _alone,
        _rules,
        _shift,
        default_claim(KIND, "model-vs-human", "world_model", "order"),
        pair_claim(
            "TreeLogistic never loses to Logistic by more than noise (model-vs-human).",
            "TreeLogistic",
            "Logistic",
            not_below,
        ),
        pair_claim(
            "With the same estimates, our price gains more than the printed one (model-vs-human).",
            "Logistic",
            "Logistic" + PRINTED,
            surely,
        ),
    ),
    tables=[
        table
        for world in WORLDS
        for table in budget_tables(
            f"{world['model']}, {ORDERS[world['order']]}: ",
            rows=select_rows(world_model=world["model"], order=world["order"]),
        )
    ],
)
