"""ImageNet16H: two networks, people, five budgets (Section 5.3)."""

from collections.abc import Callable
from typing import Any

import polars as pl

from deferkit.study.drawing.charts import tasks_text
from deferkit.study.drawing.panels import Figure, Rows
from deferkit.study.experiments.experiment import Experiment, Judgement, claim, select_rows
from deferkit.study.experiments.people import (
    BUDGETS,
    LIMITED,
    OF_PAPER,
    OPT,
    PRICED,
    PRINTED,
    QUICK_BUDGETS,
    SLOW_SEEDS,
    add_names,
    budget_tables,
    compare,
    default_claim,
    grid,
    over_budgets,
    present,
    ran,
    remark,
)
from deferkit.study.statistics import (
    as_float,
    cells_text,
    difference,
    mean_and_error,
    mean_of,
    not_below,
    paired_cells,
    surely,
)

KIND = "Logistic"
MODELS = ("baseline", "fine-tuned")
NEURAL: dict[str, Any] = {"embedding": {"learning_rate": 1e-4, "every": [[0, 20], [4000, 100]], "batch": 500}}
"""The paper's: retrained every 20 tasks, after 4,000 tasks every 100, on mini-batches of 500."""
SIMILAR = 1.0  # % of OPT
WEAK = {"world_model": "baseline", "asked_budget": "0.25T"}
"""The cell that the paper calls its weak spot."""
REPEATS = (
    "Every picture comes about six times, once for each of six people: who can recognise a picture again (trees,"
    " networks) profits from that."
)
WORLDS = [{"model": model} for model in MODELS]
BOTH: dict[str, Any] = {"world": "imagenet16h", "worlds": WORLDS}
BASELINE: dict[str, Any] = {"world": "imagenet16h", "worlds": WORLDS[:1]}
TUNED: dict[str, Any] = {"world": "imagenet16h", "worlds": WORLDS[1:], "seeds": SLOW_SEEDS, "skip_quick": True}
ONCE: dict[str, Any] = {
    "world": "imagenet16h",
    "worlds": [world | {"repeats": False} for world in WORLDS],
    "budgets": ["0.25T"],
    "skip_quick": True,
}
FOURTH: dict[str, Any] = {"budgets": ["0.25T"]}


def again(judge: Callable[[pl.DataFrame], Judgement]) -> Callable[[pl.DataFrame], Judgement]:
    """Return a judge of the trials in which pictures come again."""
    return lambda frame: judge(frame.filter("repeats"))


def shown_rows(model: str, left_out: str) -> Rows:
    """Return a filter of the trials of a network, without a policy."""
    return lambda frame: frame.filter(pl.col("who") != left_out, world_model=model)


def data_note(frame: pl.DataFrame) -> str:
    """Return the number of tasks of each network, and the remark on its data."""
    parts = {model: frame.filter(world_model=model) for model in MODELS}
    there = {model: tasks_text(part) for model, part in parts.items() if len(part)}
    return "\n".join(f"{model}: T = {n}; {remark('imagenet16h', {'model': model})}" for model, n in there.items())


@claim("The combined performance is better than that of the model or the human alone (ImageNet16H, no limit).", "paper")
@again
def _alone(frame: pl.DataFrame) -> Judgement:
    found, texts = [], []
    for model in MODELS:
        part = frame.filter(world_model=model, asked_budget="inf")
        for who in ran(part, "Logistic", "NeuralLogistic"):
            each = [compare(part, who, alone, "pct_opt") for alone in ("HumanOnly", "ModelOnly")]
            found += each
            texts.append(f"{model} {who} {difference(each[0])} and {difference(each[1])}")
    measured = f"% of OPT more than HumanOnly and ModelOnly: {'; '.join(texts)}."
    return measured, map(surely, found)


@claim("NeuralLogistic and Logistic achieve similar performance (ImageNet16H).", "paper")
@again
def _similar(frame: pl.DataFrame) -> Judgement:
    cells = paired_cells(frame, ["world_model", "limit"], "NeuralLogistic", "Logistic", "pct_opt", by="who")
    measured = f"% of OPT, NeuralLogistic less Logistic: {cells_text(cells, 2)}. Similar: within {SIMILAR} % of OPT."
    return measured, (abs(mean) <= SIMILAR for mean, _ in cells.values())


@claim("The weak spot is the baseline network at B = T/4 (ImageNet16H).", "paper")
@again
def _weak(frame: pl.DataFrame) -> Judgement:
    printed = KIND + PRINTED
    there = frame.filter(who=printed, **WEAK)
    worse = {}
    for model in MODELS:
        for b in present(frame):
            if b in OF_PAPER and {"world_model": model, "asked_budget": b} != WEAK:
                # without a limit there is no price, and the printed one is ours
                part = frame.filter(world_model=model, asked_budget=b, who=KIND if b == "inf" else printed)
                both = there.join(part, on="seed", suffix="_other")
                more = both["pct_opt_other"] - both["pct_opt"]
                worse[f"{model} {BUDGETS[b]}"] = mean_and_error(more.to_numpy())
    measured = (
        f"With the printed price Logistic has {mean_of(there, 'pct_opt'):.1f} % of OPT there and spends"
        f" {mean_of(there, 'spent_pct'):.0f} % of the budget; more % of OPT elsewhere: {cells_text(worse)}."
    )
    return measured, map(surely, worse.values())


@claim("Our price gains more there, and leaves less of the budget unspent (ImageNet16H).")
@again
def _price(frame: pl.DataFrame) -> Judgement:
    there = frame.filter(**WEAK)
    gain, spent = (
        {who: mean_of(there, value, who=who) for who in there["who"].unique(maintain_order=True)}
        for value in ("gain", "spent_pct")
    )
    ours = {who: compare(there, who, who + PRINTED) for who in (KIND, f"Neural{KIND}")}
    texts = [
        f"{who} {gain[who]:.1f} (spends {spent[who]:.0f} %) against {gain[who + PRINTED]:.1f} with the printed price"
        f" (spends {spent[who + PRINTED]:.0f} %), {difference(found)}"
        for who, found in ours.items()
    ]
    measured = (
        f"Gain % there: {'; '.join(texts)}; BestReject {gain['BestReject']:.1f}, ArbitraryHuman"
        f" {gain['ArbitraryHuman']:.1f}. What is kept back is the largest cost of the stream: the budget is never"
        " passed, whatever comes."
    )
    held = [surely(found) and spent[who] > spent[who + PRINTED] for who, found in ours.items()]
    return measured, held


@claim("TreeLogistic never loses to Logistic by more than noise (ImageNet16H).")
@again
def _trees(frame: pl.DataFrame) -> Judgement:
    cells = paired_cells(frame, ["world_model", "limit"], "TreeLogistic", "Logistic", by="who")
    gains = frame.group_by("world_model", "limit", "who").agg(pl.col("gain").mean())
    tree, linear = (gains.filter(who=who) for who in ("TreeLogistic", "Logistic"))
    both = tree.join(linear, on=["world_model", "limit"], suffix="_linear")
    times = as_float((both["gain"] / both["gain_linear"].clip(lower_bound=1e-9)).max())
    measured = f"Gain %, TreeLogistic less Logistic: {cells_text(cells)}; at best {times:.1f} × the gain. {REPEATS}"
    return measured, map(not_below, cells.values())


@claim("TreeLogistic gains more than Logistic also where each picture comes once (ImageNet16H).")
def _once(frame: pl.DataFrame) -> Judgement | None:
    once = frame.filter(~pl.col("repeats"))
    if once.is_empty():
        return None
    found, texts = [], []
    for model in MODELS:
        here, other = (
            frame.filter(pl.col("repeats") == repeats, world_model=model, asked_budget="0.25T")
            for repeats in (False, True)
        )
        for who in ran(here, "TreeLogistic", "NeuralLogistic"):
            more = compare(here, who, KIND)
            found += [more] if who == "TreeLogistic" else []
            repeated = f" (with repeats {difference(compare(other, who, KIND))})" if who in set(other["who"]) else ""
            texts.append(f"{model} {who} {difference(more)}{repeated}")
    gains = ", ".join(f"{model} {mean_of(once, 'gain', who=KIND, world_model=model):.1f}" for model in MODELS)
    measured = (
        f"T = {tasks_text(once)}, B = T/4, gain % more than Logistic: {'; '.join(texts)}. Logistic itself: {gains}."
    )
    return measured, map(surely, found)


EXPERIMENT = Experiment(
    title="ImageNet16H: a network or a person",
    description="145 people name noisy pictures, a network names them too; reward 1 if right, the person's time is the"
    " cost. Two networks, the paper's budgets and two small ones, the same estimates with the paper's printed price."
    " The times of the subset that can be had without registration are a stand-in. "
    + REPEATS
    + " BestReject's confidence"
    " is a cross-validated estimate from the context; its threshold is the best one in hindsight.",
    realised=True,
    grids=[
        *grid("linear", "best-reject", "arbitrary-human", "model-only", "opt", **BOTH),
        *grid("human-only", budgets=["inf"], **BOTH),
        *grid("linear", budgets=LIMITED, parameters=PRICED, **BOTH),
        *grid("neural", parameters=NEURAL | PRICED, **FOURTH, **BASELINE),
        *grid("default", "tree", quick=FOURTH, **BASELINE),
        *grid("neural", budgets=OF_PAPER, quick=FOURTH, parameters=NEURAL, **BASELINE),
        *grid("default", "tree", budgets=("inf", "0.25T", "0.05T"), **TUNED),
        *grid("neural", budgets=QUICK_BUDGETS, parameters=NEURAL, **TUNED),
        *grid("linear", "default", "tree", **ONCE),
        *grid("neural", parameters=NEURAL, **ONCE),
    ],
    rows=lambda frame: add_names(frame, KIND),
    figure=Figure(
        title="ImageNet16H: a network or a person, over budgets",
        rows=lambda frame: frame.filter(pl.col("who") != OPT, repeats=True),
        by="who",
        panels=[
            over_budgets(value, title, f"{model} network: {title}", rows=shown_rows(model, left_out))
            for model in MODELS
            for value, title, left_out in (("pct_opt", "% of hindsight OPT", ""), ("gain", "gain %", "ModelOnly"))
        ],
        seed="the people in another order",
        notes=[data_note, "BestReject's threshold is set in hindsight"],
    ),
    claims=(
        _alone,
        _similar,
        _weak,
        _price,
        _trees,
        default_claim(KIND, "ImageNet16H", "world_model", where=pl.col("repeats")),
        _once,
    ),
    tables=[
        table
        for model in MODELS
        for table in budget_tables(f"{model} network: ", rows=select_rows(repeats=True, world_model=model))
    ],
)
