"""model-vs-human: two networks, people with real response times, in the order of the experiments and shuffled."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import finished, in_order, side_by_side
from deferkit.study.experiments.experiment import Experiment, Finding, mean_and_error, mean_of
from deferkit.study.experiments.people import (
    BUDGETS,
    OPT,
    PRICED,
    PRINTED,
    Entrant,
    both_ran,
    by_budget,
    compare,
    count,
    default_is_best,
    difference,
    named,
    not_below,
    present,
    remark,
    share_verdict,
    subtitle,
    surely,
    tables_by_budget,
    trials_with,
)
from deferkit.study.store import Trial

WORLD, KIND = "model-vs-human", "Logistic"
NEURAL = {"embedding": {"learning_rate": 5e-4, "every": [[0, 20], [4000, 100]], "batch": 500}}
SETTINGS = tuple((model, order) for model in ("clip", "resnet50") for order in ("experiment", "shuffled"))
ORDERS = {"experiment": "one experiment after another", "shuffled": "shuffled"}
EVERYWHERE = tuple(map(Entrant, ("linear", "best-reject", "arbitrary-human", "model-only", "opt")))
SMALL_LOSS = 5.0  # gain %
HINDSIGHT = "BestReject's threshold is set in hindsight"


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials of each at five budgets, or 2 at two of them; what is slow, fewer and where it matters most."""
    n, slow, budgets = count(quick), count(quick, slow=True), ("inf", "0.25T") if quick else tuple(BUDGETS)
    worlds = [{"model": model, "order": order} for model, order in SETTINGS]
    return (
        trials_with(EVERYWHERE, budgets, n, WORLD, worlds)
        + trials_with([Entrant("human-only")], ["inf"], n, WORLD, worlds)
        + trials_with([Entrant("linear", PRICED)], [b for b in budgets if b != "inf"], n, WORLD, worlds)
        + trials_with([Entrant("default")], ["0.25T"] if quick else ["0.1T", "0.25T"], slow, WORLD, worlds)
        + trials_with([Entrant("tree")], ["0.25T"], slow, WORLD, worlds[:2] if quick else worlds)
        + trials_with([Entrant("tree")], [] if quick else ["0.1T"], slow, WORLD, worlds)
        + trials_with([Entrant("tree")], [] if quick else ["inf", "0.05T"], slow, WORLD, worlds[:2])
        + trials_with([Entrant("neural", NEURAL)], [] if quick else ["0.25T"], slow, WORLD, worlds[:2])
    )


def settings(frame: pl.DataFrame) -> list[tuple[str, str, pl.DataFrame]]:
    """Return the trials of each network and order."""
    shown = named(frame, KIND)
    return [(model, order, shown.filter(world_model=model, order=order)) for model, order in SETTINGS]


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain over budgets."""
    shown = named(frame, KIND).filter(~pl.col("who").is_in([OPT, "ModelOnly"]))
    among = in_order(shown, "who")
    charts = [
        by_budget(part.filter(pl.col("who").is_in(among)), "gain", "gain %", among=among).properties(
            title=f"{model}, {ORDERS[order]}"
        )
        for model, order, part in settings(frame)
        if len(part)
    ]
    return finished(
        side_by_side(charts),
        "model-vs-human: what is gained over the network alone, with real response times",
        subtitle(shown, "; ".join(filter(None, [remark(WORLD, {}), HINDSIGHT]))),
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the learners on real times, and what a real shift costs."""
    parts = [(f"{model} {ORDERS[order]}", part) for model, order, part in settings(frame) if len(part)]
    return [
        better_than_either(parts),
        against_rules(parts),
        shift(frame),
        default_is_best({f"{model} {order} ": part for model, order, part in settings(frame)}, KIND, "model-vs-human"),
        against(
            parts,
            "TreeLogistic never loses to Logistic by more than noise (model-vs-human).",
            "TreeLogistic",
            "Logistic",
            strictly=False,
        ),
        against(
            parts,
            "With the same estimates, our price gains more than the printed one (model-vs-human).",
            "Logistic",
            "Logistic" + PRINTED,
            strictly=True,
        ),
    ]


def better_than_either(parts: list[tuple[str, pl.DataFrame]]) -> Finding:
    """Judge whether both together are better than either alone."""
    found, texts = [], []
    for title, part in parts:
        free = part.filter(asked_budget="inf")
        each = [compare(free, "Logistic", alone, "pct_opt") for alone in ("HumanOnly", "ModelOnly")]
        found += each
        texts.append(f"{title} {difference(each[0])} and {difference(each[1])}")
    return Finding(
        "Both together are better than the model or the human alone (model-vs-human, no limit).",
        "deferkit",
        f"% of OPT that Logistic has more than HumanOnly and ModelOnly: {'; '.join(texts)}.",
        share_verdict(map(surely, found)),
    )


def against_rules(parts: list[tuple[str, pl.DataFrame]]) -> Finding:
    """Judge the default against rules."""
    found, lost = [], []
    for title, part in parts:
        for b in present(part):
            for rule in ("BestReject", "ArbitraryHuman"):
                found.append(compare(part.filter(asked_budget=b), "Logistic", rule))
                if not surely(found[-1]):
                    lost.append(f"{title} {BUDGETS[b]}, {rule}: {difference(found[-1])}")
    least = min(mean for mean, _ in found)
    return Finding(
        "Logistic gains more than BestReject, which knows its threshold, and ArbitraryHuman (model-vs-human).",
        "deferkit",
        f"In {len(found) - len(lost)} of {len(found)} comparisons; gain % more: at least {least:.1f}."
        + (f" Not in: {'; '.join(lost)}." if lost else ""),
        share_verdict(map(surely, found)),
    )


def shift(frame: pl.DataFrame) -> Finding:
    """Judge what the order of the experiments costs."""
    shown = named(frame, KIND)
    texts, losses = [], []
    for who in (KIND, f"Neural{KIND}", f"Tree{KIND}"):
        for model in ("clip", "resnet50"):
            rows = shown.filter(who=who, world_model=model)
            each = {}
            for b in present(rows):
                of_order = [rows.filter(asked_budget=b, order=order) for order in ("shuffled", "experiment")]
                both = of_order[0].join(of_order[1], on="seed", suffix="_other")
                each[b] = mean_and_error((both["gain"] - both["gain_other"]).to_numpy())
            if each:
                texts.append(f"{who} {model} " + ", ".join(f"{BUDGETS[b]} {difference(d)}" for b, d in each.items()))
            losses += [mean for mean, _ in each.values() if who == KIND]
    return Finding(
        f"A real shift, one experiment after another, costs Logistic less than {SMALL_LOSS:.0f} % of gain.",
        "deferkit",
        f"Gain % lost against shuffled people: {'; '.join(texts)}."
        " The budget is paced as if what comes were like what came.",
        share_verdict(loss < SMALL_LOSS for loss in losses),
    )


def against(parts: list[tuple[str, pl.DataFrame]], claim: str, one: str, other: str, *, strictly: bool) -> Finding:
    """Judge someone against another wherever both were run."""
    found, texts = [], []
    for title, part in parts:
        each = {b: compare(part.filter(asked_budget=b), one, other) for b in both_ran(part, one, other)}
        if not each:
            continue
        found += list(each.values())
        spent = [
            f"{mean_of(part, 'spent_pct', who=who, asked_budget='0.25T'):.0f} %"
            for who in (one, other)
            if "0.25T" in each
        ]
        texts.append(
            f"{title}: {', '.join(f'{BUDGETS[b]} {difference(d)}' for b, d in each.items())}"
            + (f" (spent at T/4: {' and '.join(spent)})" if spent else "")
        )
    return Finding(
        claim,
        "deferkit",
        f"Gain %, {one} less {other}: {'; '.join(texts)}.",
        share_verdict(map(surely if strictly else not_below, found)),
    )


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gain, per cent of OPT and spending for each network and order."""
    return {
        caption: table
        for model, order, part in settings(frame)
        for caption, table in tables_by_budget(part, f"{model}, {ORDERS[order]}: ").items()
    }


EXPERIMENT = Experiment(
    "mvh",
    "model-vs-human: real response times",
    "37 people name drawings, edges, silhouettes and pictures with contradicting texture within 1.5 s; two networks"
    " name them too. Times are real. In the order of the experiments what both can do changes three times; shuffled, it"
    " does not.",
    trials,
    figure,
    findings,
    tables,
)
