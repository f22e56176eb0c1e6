"""Day one: a scikit-learn classifier, a thousand tasks, a learner with a budget alone, and a rival of eleven lines."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from deferkit.study.drawing.figures import DifferenceDots
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import (
    FEEDBACKS,
    Experiment,
    Grid,
    Judgement,
    MeanTable,
    StudyClaim,
    claim,
    select_rows,
)
from deferkit.study.statistics import Difference, cells_text, difference, mean_and_error, mean_of, paired_cells

RIVAL = "confidence-quantile"
OURS = ("default", "default-2026.11")
"""Learners under test: claims are on the first."""
PRIOR = "confidence"
POLICIES = (*OURS, PRIOR, RIVAL)
MAIN = ("digits-logistic", "cancer-tree")
OTHERS = ("digits-neighbours", "digits-bayes")
FORMS = ("vector", "encoder")
BUDGETS = ("5%", "10%", "30%")
TEAM_BUDGETS = ("10%", "25%")
CELL = ["classifier", "form", "asked_budget", "feedback"]

CLOSE = 1.0  # right answers, in every cell
REVIEWED_CLOSE = {"default": 2.0, PRIOR: 0.5}
LITTLE_SPENT, WORTH_IT, STUCK = 25.0, 5.0, 0.01  # per cent of the budget, right answers, share of streams
BEST_EXPERT_SHARE = 0.88
JUNK_LOSS = 2.0  # right answers
SEEDS: dict[str, Any] = {"seeds": range(60), "quick": {"seeds": range(4), "budgets": ("10%",)}}


def against_rival(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with right answers more than the model alone (`more`) and than the rival (`ahead`)."""
    told = frame.with_columns(more=pl.col("reward") - pl.col("model"))
    keys = ["world", *(name for name in ("classifier", "form", "junk") if name in told.columns)]
    keys += ["asked_budget", "feedback", "seed"]
    rival = told.filter(policy=RIVAL).select(*keys, rival="more")
    joined = told.join(rival, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(
        ahead=pl.col("more") - pl.col("rival"),
        setting=pl.format("{}, {}", pl.col("form"), pl.col("asked_budget")) if "form" in told.columns else pl.lit(""),
    )


def select_classifiers(frame: pl.DataFrame, classifiers: tuple[str, ...] = MAIN, **where: Any) -> pl.DataFrame:
    """Return the trials of some classifiers."""
    return frame.filter(pl.col("classifier").is_in(classifiers), world="classifiers", **where)


def cells(frame: pl.DataFrame, policy: str, classifiers: tuple[str, ...], feedbacks: tuple[str, ...]) -> dict[str, Any]:
    """Return right answers more than the rival's in each cell."""
    part = select_classifiers(frame, classifiers).filter(pl.col("feedback").is_in(feedbacks))
    return paired_cells(part, CELL, policy, RIVAL, "more")


def average(frame: pl.DataFrame, policy: str, classifiers: tuple[str, ...], feedbacks: tuple[str, ...]) -> Difference:
    """Return the mean over cells, and its standard error over seeds: cells of one seed share their tasks."""
    part = select_classifiers(frame, classifiers, policy=policy).filter(pl.col("feedback").is_in(feedbacks))
    by_seed = part.group_by("seed").agg(pl.col("ahead").mean())["ahead"].to_numpy()
    return mean_and_error(by_seed)


def worst(found: Mapping[str, Difference]) -> str:
    """Return the lowest cells as text."""
    lowest = dict(sorted(found.items(), key=lambda item: item[1][0])[:4])
    return f"{len(found)} cells, lowest: {cells_text(lowest)}"


def cell_claim(what: str, classifiers: tuple[str, ...]) -> StudyClaim:
    """Return the claim that the default is as good as the rival in every cell with full and bandit feedback."""

    @claim(
        f"{what}: in every cell the default is not more than {CLOSE:g} right answer below eleven lines of code (mean +"
        " 2 se), with full and bandit feedback.",
    )
    def judge(frame: pl.DataFrame) -> Judgement:
        found = cells(frame, "default", classifiers, ("full", "bandit"))
        return f"Ours − rival: {worst(found)}.", (m + 2 * se >= -CLOSE for m, se in found.values())

    return judge


@claim("On average over these cells the default is not below the rival (mean + 1 se ≥ 0).")
def _average(frame: pl.DataFrame) -> Judgement:
    mean, error = average(frame, "default", MAIN, ("full", "bandit"))
    by_feedback = [f"{f} {difference(average(frame, 'default', MAIN, (f,)), 2)}" for f in ("full", "bandit")]
    text = f"Right answers, ours − rival: {difference((mean, error), 2)}; {', '.join(by_feedback)}."
    return text, mean + error >= 0


def reviewed_claim(policy: str, what: str) -> StudyClaim:
    """Return the claim on reviewed feedback."""
    close = REVIEWED_CLOSE[policy]

    @claim(
        f"Where rewards become known only if an expert was asked, {what} is at most {close:g} right answers below the"
        " rival on average.",
    )
    def judge(frame: pl.DataFrame) -> Judgement | None:
        if policy not in frame["policy"]:
            return None
        found = average(frame, policy, MAIN, ("reviewed",))
        lowest = worst(cells(frame, policy, MAIN, ("reviewed",)))
        return f"Right answers, ours − rival: {difference(found, 2)}; {lowest}.", found[0] >= -close

    return judge


def stuck_share(frame: pl.DataFrame, policy: str) -> tuple[float, int]:
    """Return the share of streams that fell silent, of all streams, and the number of streams."""
    part = select_classifiers(frame, (*MAIN, *OTHERS), policy=policy)
    silent = part.filter((pl.col("spent_pct") < LITTLE_SPENT) & (pl.col("rival") >= WORTH_IT))
    return silent.height / part.height, part.height


@claim(
    f"At most {STUCK:.0%} of the streams fall silent: less than {LITTLE_SPENT:g} % spent although the rival gains"
    f" {WORTH_IT:g} right answers or more."
)
def _silent(frame: pl.DataFrame) -> Judgement:
    shares = {policy: stuck_share(frame, policy) for policy in OURS}
    text = ", ".join(f"{policy} {share:.1%} of {n:,}" for policy, (share, n) in shares.items())
    return f"Silent streams: {text}.", shares["default"][0] <= STUCK


@claim(
    f"Of five experts whose accuracy nobody knows, the default reaches {BEST_EXPERT_SHARE:.0%} of what a threshold"
    " gains that knows the best one."
)
def _team(frame: pl.DataFrame) -> Judgement | None:
    part = frame.filter(world="several-experts")
    if part.is_empty():
        return None
    texts, shares = [], []
    for budget in dict.fromkeys(part["asked_budget"].to_list()):
        ours, best = (mean_of(part, "more", policy=who, asked_budget=budget) for who in ("default", RIVAL))
        shares.append(ours / best)
        texts.append(f"{budget} {ours:.1f} of {best:.1f} ({shares[-1]:.0%})")
    return f"Right answers gained: {', '.join(texts)}.", (share >= BEST_EXPERT_SHARE for share in shares)


@claim(
    f"Junk among the contexts (60 of 1e50 among 1,500, or a first one of 1e6) costs at most {JUNK_LOSS:g} right"
    " answers."
)
def _junk(frame: pl.DataFrame) -> Judgement | None:
    part = frame.filter(world="junk-contexts", policy="default")
    if part.is_empty():
        return None
    clean = mean_of(part, "more", junk="none")
    found = {
        f"{junk} {feedback}": value
        for junk in ("scattered", "first")
        for feedback, value in paired_cells(part, ["feedback"], junk, "none", "more", by="junk").items()
    }
    text = f"Right answers gained without junk: {clean:.1f}; difference: {cells_text(found)}."
    return text, (mean >= -JUNK_LOSS for mean, _ in found.values())


EXPERIMENT = Experiment(
    title="Day one",
    description="What somebody sees who tries deferkit on a classifier: digits (logistic regression, 150 training rows)"
    " and breast cancer (decision tree, 60 rows) of scikit-learn, context [1, confidence, margin] or named features,"
    " an expert who is right in 93 %, cost 1. The rival asks where the confidence is among the lowest that the budget"
    " left affords. Then overconfident classifiers, five experts, and junk among the contexts.",
    realised=True,
    grids=(
        Grid(
            world="classifiers",
            worlds=[{"classifier": each, "form": form} for each in MAIN for form in FORMS],
            policies=POLICIES,
            budgets=BUDGETS,
            feedbacks=FEEDBACKS,
            **SEEDS,
        ),
        Grid(
            world="classifiers",
            worlds=[{"classifier": each, "form": form} for each in OTHERS for form in FORMS],
            policies=POLICIES,
            budgets=("10%",),
            feedbacks=FEEDBACKS,
            seeds=range(20),
            quick={"seeds": range(2)},
        ),
        Grid(
            world="several-experts",
            policies=POLICIES,
            budgets=TEAM_BUDGETS,
            seeds=range(20),
            quick={"seeds": range(4)},
        ),
        Grid(
            world="junk-contexts",
            worlds=[{"junk": junk} for junk in ("none", "scattered", "first")],
            policies=OURS,
            budgets=("10%",),
            feedbacks=("full", "reviewed"),
            seeds=range(20),
            quick={"seeds": range(4)},
        ),
    ),
    rows=against_rival,
    figure=Figure(
        title="Day one: right answers more than eleven lines of code",
        rows=lambda frame: frame.filter(pl.col("policy") != RIVAL, world="classifiers"),
        panels=(
            DifferenceDots(
                value="ahead",
                x_title="right answers, ours − confidence-quantile (mean ± 2 se)",
                title="{policy}: {classifier}",
                y="setting",
                by="feedback",
                split=["policy", "classifier"],
            ),
        ),
        columns=3,
        spread="mean ± 2 se",
        notes=["the rival believes that low confidence is where to ask and that the expert is worth it"],
    ),
    claims=(
        cell_claim("Digits and breast cancer", MAIN),
        _average,
        reviewed_claim("default", "the default"),
        reviewed_claim(PRIOR, "the default with a confidence prior"),
        _silent,
        cell_claim("Neighbours and naive Bayes, which are overconfident", OTHERS),
        _team,
        _junk,
    ),
    tables=(
        MeanTable(
            caption="{value}, {classifier}, {feedback} feedback, by form and budget (mean ± sd)",
            values={"more": "Right answers gained", "spent_pct": "Spent, % of the budget"},
            columns="setting",
            split=["classifier", "feedback"],
            rows=select_rows(world="classifiers"),
        ),
        MeanTable(
            caption="{value}, five experts, by budget (mean ± sd)",
            values={"more": "Right answers gained"},
            columns="asked_budget",
            rows=select_rows(world="several-experts"),
        ),
        MeanTable(
            caption="{value}, {policy}, by feedback (mean ± sd)",
            values={"more": "Right answers gained with junk contexts"},
            index="junk",
            columns="feedback",
            split=["policy"],
            rows=select_rows(world="junk-contexts"),
        ),
    ),
)
