"""ImageNet16H: two networks, people, five budgets (Section 5.3)."""

from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import finished, in_order, side_by_side
from deferkit.study.experiments.experiment import Experiment, Finding, mean_and_error, mean_of
from deferkit.study.experiments.people import (
    BUDGETS,
    OF_PAPER,
    OPT,
    PRICED,
    PRINTED,
    Entrant,
    both_ran,
    budgets_text,
    by_budget,
    compare,
    count,
    default_is_best,
    difference,
    named,
    not_below,
    present,
    ran,
    remark,
    share_verdict,
    subtitle,
    surely,
    tables_by_budget,
    tasks,
    trials_with,
)
from deferkit.study.store import Trial

WORLD, KIND = "imagenet16h", "Logistic"
MODELS = ("baseline", "fine-tuned")
NEURAL: dict[str, Any] = {"embedding": {"learning_rate": 1e-4, "every": [[0, 20], [4000, 100]], "batch": 500}}
"""The paper's: retrained every 20 tasks, after 4,000 tasks every 100, on mini-batches of 500."""
NETWORK = Entrant("neural", NEURAL)
ONCE = (Entrant("linear"), Entrant("default"), Entrant("tree"), NETWORK)
EVERYWHERE = tuple(map(Entrant, ("linear", "best-reject", "arbitrary-human", "model-only", "opt")))
SIMILAR = 1.0  # % of OPT
WEAK = ("baseline", "0.25T")
REPEATS = (
    "Every picture comes about six times, once for each of six people: who can recognise a picture again (trees,"
    " networks) profits from that."
)


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials of each at five budgets, or 2 at two of them; what is slow, fewer and where it matters most."""
    n, slow, budgets = count(quick), count(quick, slow=True), ("inf", "0.25T") if quick else tuple(BUDGETS)
    baseline, tuned = ([{"model": model}] for model in MODELS)
    worlds = [*baseline, *tuned]
    return (
        trials_with(EVERYWHERE, budgets, n, WORLD, worlds)
        + trials_with([Entrant("human-only")], ["inf"], n, WORLD, worlds)
        + trials_with([Entrant("linear", PRICED)], [b for b in budgets if b != "inf"], n, WORLD, worlds)
        + trials_with([Entrant("neural", NEURAL | PRICED)], WEAK[1:], n, WORLD, baseline)
        + trials_with([Entrant("default"), Entrant("tree")], WEAK[1:] if quick else budgets, n, WORLD, baseline)
        + trials_with([NETWORK], WEAK[1:] if quick else OF_PAPER, n, WORLD, baseline)
        + trials_with(
            [Entrant("default"), Entrant("tree")], [] if quick else ["inf", "0.25T", "0.05T"], slow, WORLD, tuned
        )
        + trials_with([NETWORK], [] if quick else ["inf", "0.25T"], slow, WORLD, tuned)
        + trials_with(
            () if quick else ONCE, WEAK[1:], n, WORLD, [{"model": model, "repeats": False} for model in MODELS]
        )
    )


def by_repeats(frame: pl.DataFrame, repeats: bool) -> pl.DataFrame:
    """Return the trials in which pictures come again, or those in which each comes once; named."""
    return named(frame.filter(pl.col("repeats") == repeats), KIND)


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw per cent of OPT and gain over budgets, for both networks."""
    shown = by_repeats(frame, True).filter(pl.col("who") != OPT)
    among = in_order(shown, "who")
    charts, lines = [], []
    for model in MODELS:
        part = shown.filter(world_model=model)
        if part.is_empty():
            continue
        lines.append(f"{model}: T = {tasks(part)}; {remark(WORLD, {'model': model})}")
        for value, title in (("pct_opt", "% of hindsight OPT"), ("gain", "gain %")):
            rows = part if value == "pct_opt" else part.filter(pl.col("who") != "ModelOnly")
            charts.append(by_budget(rows, value, title, among=among).properties(title=f"{model} network: {title}"))
    first = subtitle(shown, "")[0].partition("; ")[2] + "; BestReject's threshold is set in hindsight"
    return finished(
        side_by_side(charts), f"ImageNet16H: a network or a person, at {budgets_text(frame)}", [first, *lines]
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the claims of Section 5.3, and ours."""
    shown = by_repeats(frame, True)
    findings = [better_than_either(shown), similar(shown), *weak_spot(shown), *trees(shown)]
    return [*findings, *recognised(by_repeats(frame, False), shown)]


def better_than_either(shown: pl.DataFrame) -> Finding:
    """Judge whether both together are better than either alone."""
    found, texts = [], []
    for model in MODELS:
        part = shown.filter(world_model=model, asked_budget="inf")
        for who in ran(part, "Logistic", "NeuralLogistic"):
            each = [compare(part, who, alone, "pct_opt") for alone in ("HumanOnly", "ModelOnly")]
            found += each
            texts.append(f"{model} {who} {difference(each[0])} and {difference(each[1])}")
    return Finding(
        "The combined performance is better than that of the model or the human alone (ImageNet16H, no limit).",
        "paper",
        f"% of OPT more than HumanOnly and ModelOnly: {'; '.join(texts)}.",
        share_verdict(map(surely, found)),
    )


def similar(shown: pl.DataFrame) -> Finding:
    """Judge whether the networks change anything."""
    found, texts = [], []
    for model in MODELS:
        part = shown.filter(world_model=model)
        for b in both_ran(part, "NeuralLogistic", "Logistic"):
            found.append(compare(part.filter(asked_budget=b), "NeuralLogistic", "Logistic", "pct_opt"))
            texts.append(f"{model} {BUDGETS[b]} {difference(found[-1], 2)}")
    return Finding(
        "NeuralLogistic and Logistic achieve similar performance (ImageNet16H).",
        "paper",
        f"% of OPT, NeuralLogistic less Logistic: {', '.join(texts)}. Similar: within {SIMILAR} % of OPT.",
        share_verdict(abs(mean) <= SIMILAR for mean, _ in found),
    )


def weak_spot(shown: pl.DataFrame) -> list[Finding]:
    """Judge the paper's weak spot, the baseline network at B = T/4, and what our price does to it."""
    model, budget = WEAK
    there = shown.filter(world_model=model, asked_budget=budget)
    printed = KIND + PRINTED
    worse, texts = [], []
    for other in MODELS:
        for b in [b for b in present(shown) if b in OF_PAPER and (other, b) != WEAK]:
            # without a limit there is no price, and the printed one is ours
            part = shown.filter(world_model=other, asked_budget=b, who=KIND if b == "inf" else printed)
            both = there.filter(who=printed).join(part, on="seed", suffix="_other")
            worse.append(mean_and_error((both["pct_opt_other"] - both["pct_opt"]).to_numpy()))
            texts.append(f"{other} {BUDGETS[b]} {difference(worse[-1])}")
    spent = {who: mean_of(there, "spent_pct", who=who) for who in there["who"].unique(maintain_order=True)}
    ours = {who: compare(there, who, who + PRINTED) for who in (KIND, f"Neural{KIND}")}
    gains = {who: mean_of(there, "gain", who=who) for who in spent}
    return [
        Finding(
            "The weak spot is the baseline network at B = T/4 (ImageNet16H).",
            "paper",
            f"With the printed price Logistic has {mean_of(there, 'pct_opt', who=printed):.1f} % of OPT there and"
            f" spends {spent[printed]:.0f} % of the budget; more % of OPT elsewhere: {', '.join(texts)}.",
            share_verdict(map(surely, worse)),
        ),
        Finding(
            "Our price gains more there, and leaves less of the budget unspent (ImageNet16H).",
            "deferkit",
            "Gain % there: "
            + "; ".join(
                f"{who} {gains[who]:.1f} (spends {spent[who]:.0f} %) against {gains[who + PRINTED]:.1f} with the"
                f" printed price (spends {spent[who + PRINTED]:.0f} %), {difference(found)}"
                for who, found in ours.items()
            )
            + f"; BestReject {gains['BestReject']:.1f}, ArbitraryHuman {gains['ArbitraryHuman']:.1f}. What is kept back"
            " is the largest cost of the stream: the budget is never passed, whatever comes.",
            share_verdict(surely(found) and spent[who] > spent[who + PRINTED] for who, found in ours.items()),
        ),
    ]


def trees(shown: pl.DataFrame) -> list[Finding]:
    """Judge TreeLogistic, and say what it lives on."""
    found, texts, times = [], [], []
    for model in MODELS:
        for b in both_ran(shown.filter(world_model=model), "TreeLogistic", "Logistic"):
            part = shown.filter(world_model=model, asked_budget=b)
            found.append(compare(part, "TreeLogistic", "Logistic"))
            gains = [mean_of(part, "gain", who=who) for who in ("TreeLogistic", "Logistic")]
            times.append(gains[0] / max(gains[1], 1e-9))
            texts.append(f"{model} {BUDGETS[b]} {difference(found[-1])}")
    return [
        Finding(
            "TreeLogistic never loses to Logistic by more than noise (ImageNet16H).",
            "deferkit",
            f"Gain %, TreeLogistic less Logistic: {', '.join(texts)}; at best {max(times):.1f} × the gain. {REPEATS}",
            share_verdict(map(not_below, found)),
        ),
        default_is_best({f"{model} ": shown.filter(world_model=model) for model in MODELS}, KIND, "ImageNet16H"),
    ]


def recognised(once: pl.DataFrame, again: pl.DataFrame) -> list[Finding]:
    """Judge whether trees and networks gain more than the linear learner where no picture comes twice."""
    if once.is_empty():
        return []
    found, texts = [], []
    for model in MODELS:
        part, other = (each.filter(world_model=model, asked_budget=WEAK[1]) for each in (once, again))
        for who in ran(part, "TreeLogistic", "NeuralLogistic"):
            if who == "TreeLogistic":
                found.append(compare(part, who, KIND))
            with_them = f" (with repeats {difference(compare(other, who, KIND))})" if who in set(other["who"]) else ""
            texts.append(f"{model} {who} {difference(compare(part, who, KIND))}{with_them}")
    gains = ", ".join(f"{model} {mean_of(once, 'gain', who=KIND, world_model=model):.1f}" for model in MODELS)
    return [
        Finding(
            "TreeLogistic gains more than Logistic also where each picture comes once (ImageNet16H).",
            "deferkit",
            f"T = {tasks(once)}, B = T/4, gain % more than Logistic: {'; '.join(texts)}. Logistic itself: {gains}.",
            share_verdict(map(surely, found)),
        )
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gain, per cent of OPT and spending for both networks."""
    shown = by_repeats(frame, True)
    return {
        caption: table
        for model in MODELS
        for caption, table in tables_by_budget(shown.filter(world_model=model), f"{model} network: ").items()
    }


EXPERIMENT = Experiment(
    "imagenet16h",
    "ImageNet16H: a network or a person",
    "145 people name noisy pictures, a network names them too; reward 1 if right, the person's time is the cost. Two"
    " networks, the paper's budgets and two small ones, the same estimates with the paper's printed price. The times of"
    " the subset that can be had without registration are a stand-in. " + REPEATS + " BestReject's confidence is"
    " a cross-validated estimate from the context; its threshold is the best one in hindsight.",
    trials,
    figure,
    findings,
    tables,
)
