"""A table as teams have them: made-up moderation items, on which nothing is linear and cells are missing."""

import polars as pl

from deferkit.study.drawing.figures import Dots
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import FEEDBACKS, Experiment, Grid, Judgement, MeanTable, StudyClaim, claim
from deferkit.study.statistics import Difference, compare_paired, difference, mean_of, surely

BUDGETS = ("10%", "25%")
OTHERS = ("linear", "tree")
POLICIES = ("default", *OTHERS, "best-reject", "informed")
CLOSE = 1.0  # gain %


def more_right(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with how many more answers were right than the model's alone (`more`)."""
    return frame.with_columns(more=pl.col("reward") - pl.col("model"))


def panel_title(part: pl.DataFrame) -> str:
    """Return the budget and the size of the table."""
    minutes, tasks = mean_of(part, "budget"), int(part["horizon"][0])
    return f"budget {part['asked_budget'][0]} of asking always: {minutes:,.0f} minutes for {tasks:,} items"


def compare_default(frame: pl.DataFrame, other: str) -> tuple[list[Difference], str]:
    """Return the gain of the default less that of another policy by setting, and that in right answers as text."""
    found, texts = [], []
    for (budget, feedback), part in frame.group_by("asked_budget", "feedback", maintain_order=True):
        found.append(compare_paired(part, "default", other))
        ours, theirs, best = (mean_of(part, "more", policy=who) for who in ("default", other, "informed"))
        texts.append(
            f"{budget} {feedback} {ours:.0f} against {theirs:.0f}, informed {best:.0f} (gain % {difference(found[-1])})"
        )
    return found, f"Right answers more than the model alone: {'; '.join(texts)}."


@claim("On a table whose effects are not linear, the default gains more than best-reject.")
def _rule(frame: pl.DataFrame) -> Judgement:
    found, text = compare_default(frame, "best-reject")
    return text, map(surely, found)


def close_claim(other: str) -> StudyClaim:
    """Return the claim that the default is as good as another representation."""

    @claim(f"On such a table nobody needs to choose: the default is at most {CLOSE:.0f} % of gain below {other}.")
    def judge(frame: pl.DataFrame) -> Judgement | None:
        if other not in frame["policy"]:
            return None
        found, text = compare_default(frame, other)
        return text, (mean >= -CLOSE for mean, _ in found)

    return judge


EXPERIMENT = Experiment(
    title="A table as teams have them",
    description="5,000 made-up moderation items: the model's score, whose effect is U-shaped, category, length,"
    " language, a flag, reports, and missing cells; 0/1 rewards of the model and the reviewer; minutes as cost. Read as"
    " a CSV file is.",
    realised=True,
    grids=(
        Grid(
            world="moderation",
            policies=POLICIES,
            budgets=BUDGETS,
            feedbacks=FEEDBACKS,
            seeds=range(20),
            quick={"seeds": range(3), "budgets": BUDGETS[:1]},
        ),
    ),
    rows=more_right,
    figure=Figure(
        title="A table as teams have them: made-up moderation items",
        panels=(
            Dots(
                value="more",
                x_title="right answers more than the model alone (mean ± sd)",
                title=panel_title,
                y="policy",
                by="feedback",
                split=["asked_budget"],
            ),
        ),
        notes=[
            "another table for each trial; best-reject has a cross-validated estimate of the model, and the best"
            " threshold in hindsight",
            "informed knows the true probabilities, which nobody else is told",
        ],
    ),
    claims=(_rule, *map(close_claim, OTHERS)),
    tables=(
        MeanTable(
            caption="{value}, budget {asked_budget}, by feedback (mean ± sd)",
            values={
                "more": "Right answers more than the model alone",
                "gain": "Gain % of hindsight OPT",
                "spent_pct": "Spent, % of the budget",
            },
            columns="feedback",
            split=["asked_budget"],
        ),
    ),
)
