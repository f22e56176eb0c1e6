"""Drift: rewards that change while the tasks come, against an optimum that knows the phase."""

from typing import Any

import polars as pl

from deferkit.study.drawing.figures import GainOverTime, GoalDots
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Grid, Judgement, MeanTable, StudyClaim, claim, select_rows
from deferkit.study.statistics import Difference, cells_text, mean_and_error, paired_cells, surely
from deferkit.worlds.drift import KINDS

BUDGETS = ("0.1T", "0.25T")
GOALS = {"abrupt": (92.0, 96.0), "gradual": (93.0, 96.0), "seasonal": (77.0, 90.0), "recurring": (83.0, 91.0)}
"""Gain of the default with bandit feedback at each budget."""
ALLOWED = 0.3  # gain % that forgetting may cost where nothing drifts
GIVEN, OWN = tuple(range(5)), tuple(range(100, 105))
"""The seeds that the goals were measured on, and as many others."""
QUICK = (0, 1, 100, 101)
LEARNERS = ("default", "never", "paper")
RULES = ("best-reject", "threshold", "static", "model-only")
RIVAL = "aupd"
DRAWN = ("default", "never", RIVAL, "best-reject", "static")
WINDOW = 5  # points of a path that one point of the figure is the mean of
GRID: dict[str, Any] = {
    "world": "drift",
    "worlds": [{"family": "lin", "kind": kind} for kind in KINDS],
    "budgets": BUDGETS,
    "trace": "path",
    "seeds": (*GIVEN, *OWN),
}


def over_time(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the gain of each policy within windows of the stream, over all seeds.

    The gain of a window is what a policy earns there more than the model, in per cent of what OPT earns there more.
    """
    path = ("at", "reward_at", "regret_at")
    long = frame.select("policy", "kind", "seed", *path).explode(*path)
    model = long.filter(policy="model-only").select("kind", "seed", "at", model="reward_at")
    both = long.filter(pl.col("policy") != "model-only").join(model, on=["kind", "seed", "at"]).sort("at")
    every = ["policy", "kind", "seed"]
    points = both.with_columns(
        more=pl.col("reward_at") - pl.col("model"),
        most=pl.col("reward_at") + pl.col("regret_at") - pl.col("model"),
        place=pl.int_range(pl.len()).over(every) + 1,
    ).filter(pl.col("place") % WINDOW == 0)
    steps = [
        (pl.col(name) - pl.col(name).shift(1, fill_value=0.0)).over(every).alias(name) for name in ("more", "most")
    ]
    summed = points.with_columns(*steps).group_by("policy", "kind", "at", maintain_order=True)
    return summed.agg(pl.col("more").sum(), pl.col("most").sum()).with_columns(
        mean=100 * pl.col("more") / pl.col("most")
    )


def gains(frame: pl.DataFrame, kind: str, budget: str, policy: str = "default") -> Difference:
    """Return the mean gain of a policy with bandit feedback over its trials, and the standard error."""
    part = frame.filter(policy=policy, kind=kind, asked_budget=budget, feedback="bandit")
    return mean_and_error(part["gain"].to_numpy())


def goal_claim(seeds: tuple[int, ...], whose: str, errors: float) -> StudyClaim:
    """Return the claim that the goals are reached on some of the seeds, with so many standard errors of tolerance."""
    tolerance = f", within {errors:g} standard errors" if errors else ""

    @claim(f"The default reaches the gain that is asked of it where rewards drift, on {whose}{tolerance}.")
    def judge(frame: pl.DataFrame) -> Judgement:
        part = frame.filter(pl.col("seed").is_in(seeds))
        met, texts = [], []
        for kind, goals in GOALS.items():
            found = [gains(part, kind, budget) for budget in BUDGETS]
            met += [
                mean >= goal - (errors * error if errors else 0.0)
                for (mean, error), goal in zip(found, goals, strict=True)
            ]
            reached = " / ".join(f"{mean:.1f}" for mean, _ in found)
            texts.append(f"{kind} {reached} (asked {' / '.join(f'{goal:g}' for goal in goals)})")
        measured = (
            f"Gain % of the dynamic optimum, bandit feedback, B = {' / '.join(BUDGETS)},"
            f" {part['seed'].n_unique()} seeds: {'; '.join(texts)}."
        )
        return measured, met

    return judge


@claim(f"Where nothing drifts, forgetting costs at most {ALLOWED} % of gain.")
def _still(frame: pl.DataFrame) -> Judgement:
    cells = paired_cells(frame.filter(kind="none"), ["feedback", "asked_budget"], "default", "never")
    held = min(mean for mean, _ in cells.values()) >= -ALLOWED
    return f"Gain %, default less never, paired: {cells_text(cells, 2)}.", held


def ahead_claim(other: str, text: str) -> StudyClaim:
    """Return the claim that the default is ahead of another policy in every drifting cell, with bandit feedback."""

    @claim(text)
    def judge(frame: pl.DataFrame) -> Judgement:
        drifting = frame.filter(pl.col("kind") != "none", feedback="bandit")
        cells = paired_cells(drifting, ["kind", "asked_budget"], "default", other)
        return f"Gain %, default less {other}, paired: {cells_text(cells)}.", map(surely, cells.values())

    return judge


EXPERIMENT = Experiment(
    title="Drift: rewards that change",
    description="What the model and the human earn turns with a phase: not at all, at once, gradually, with the"
    " seasons, or back and forth. OPT knows the phase of every task (dynamic); static is the best rule that does not."
    " Whoever forgets nothing learns the average of all phases, which with the seasons is nothing.",
    grids=(
        Grid(policies=(*LEARNERS, *RULES), feedbacks=["bandit"], quick={"seeds": QUICK}, **GRID),
        Grid(policies=[RIVAL], feedbacks=["bandit"], quick={"seeds": QUICK[::2]}, **GRID),
        Grid(policies=LEARNERS, quick=None, **GRID),
    ),
    figure=Figure(
        title="Drift: what is gained against an optimum that knows the phase (linear rewards)",
        rows=select_rows(feedback="bandit"),
        columns=3,
        panels=(
            GainOverTime(
                rows=lambda frame: over_time(frame.filter(asked_budget=BUDGETS[0])), policies=DRAWN, dashed="never"
            ),
            GoalDots(
                title="mean gain; bars: goals of the default",
                goals={(kind, b): goal for kind, both in GOALS.items() for b, goal in zip(BUDGETS, both, strict=True)},
                policies=DRAWN,
                last="never",
            ),
        ),
        spread="mean",
        notes=[
            f"over time: B = {BUDGETS[0]}, gain within {WINDOW} % of the tasks, all seeds together; below it the phase:"
            " weights of A (black), B (grey)",
            "best-reject and threshold are told what the model is expected to earn, phase included; static is the best"
            " rule that does not know the phase",
        ],
    ),
    claims=(
        goal_claim(GIVEN, "the seeds it was measured on", 0.0),
        goal_claim(OWN, "other seeds", 2.0),
        _still,
        ahead_claim("never", "Where rewards drift, the default gains more than without forgetting."),
        ahead_claim("static", "The default gains more than any rule can that does not know the phase."),
        ahead_claim(RIVAL, "Where rewards drift, the default gains more than AUPD."),
    ),
    tables=(
        MeanTable(
            caption="{value}, {feedback} feedback, B = {asked_budget}, by kind",
            values={"gain": "Gain % of the dynamic optimum", "spent_pct": "Spent, % of the budget"},
            columns="kind",
            split=["feedback", "asked_budget"],
        ),
    ),
)
