"""Small tables: the default against scripts that refit one regression and re-solve the price."""

from collections.abc import Iterable

import polars as pl

from deferkit.study.drawing.figures import DifferenceDots
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import FEEDBACKS, Experiment, Grid, Judgement, MeanTable, StudyClaim, claim
from deferkit.study.statistics import Difference, as_float, difference, mean_and_error, mean_of, paired_cells
from deferkit.worlds.small_tables import GENERATORS

SCRIPT_NAMES = ("script-gam", "script-trees", "script-trees-15", "script-lines")
OLD = "default-2026.11"
OURS = ("default", OLD)
"""Learners under test: claims are on the first, also beside the second."""
POLICIES = (*OURS, *SCRIPT_NAMES)
BUDGETS = ("5%", "10%", "25%")
CELL = ["generator", "asked_budget", "feedback"]
CLOSE = 1.0  # gain %, to the best script of a cell
WORSE, WORSE_CELLS = 1.0, 0.05  # gain % below today (and 2 se), share of cells
QUICK_WORLDS = [{"generator": each} for each in ("tiny", "noise-columns", "overconfident", "grades", "heavy-costs")]
HEAVY, HELD, HEAVY_SPENT = "heavy-costs", "10% hold auto", 90.0


def of_scripts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with how much more of the gain than the best script of the cell each has (`ahead`).

    The best script of a cell is the one with the highest mean over seeds. Trials with other budgets have none.
    """
    scripts = frame.filter(pl.col("policy").is_in(SCRIPT_NAMES))
    means = scripts.group_by(*CELL, "policy", maintain_order=True).agg(mean=pl.col("gain").mean())
    best = means.sort("mean", descending=True, maintain_order=True).group_by(CELL, maintain_order=True).first()
    theirs = scripts.join(best.select(*CELL, "policy"), on=[*CELL, "policy"]).select(*CELL, "seed", best_script="gain")
    joined = frame.join(theirs, on=[*CELL, "seed"], how="left", maintain_order="left")
    return joined.with_columns(ahead=pl.col("gain") - pl.col("best_script"))


def by_budget(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials of the grid, without those with a hold."""
    return frame.filter(pl.col("asked_budget").is_in(BUDGETS))


def compare_cells(frame: pl.DataFrame, one: str, other: str) -> Difference:
    """Return the mean difference in gain between two policies over cells, and its standard error over cells."""
    found = paired_cells(by_budget(frame), CELL, one, other)
    return mean_and_error(pl.Series([mean for mean, _ in found.values()]).to_numpy())


def script_means(frame: pl.DataFrame) -> dict[str, float]:
    """Return the mean gain of each script over all trials, best first."""
    grid = by_budget(frame)
    means = {name: mean_of(grid, "gain", policy=name) for name in SCRIPT_NAMES}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


@claim("On small tables the default gains more on average than the best single script.")
def _best_single(frame: pl.DataFrame) -> Judgement:
    means, ours = script_means(frame), mean_of(by_budget(frame), "gain", policy="default")
    best = next(iter(means))
    texts = [f"{name} {mean:.1f}" for name, mean in means.items()]
    parts = [
        f"{feedback} {difference(compare_cells(frame.filter(feedback=feedback), 'default', best))}"
        for feedback in dict.fromkeys(by_budget(frame)["feedback"].to_list())
    ]
    text = f"Mean gain %: default {ours:.1f}; {', '.join(texts)}. Default − {best}: {', '.join(parts)}."
    return text, ours > means[best]


def lowest(found: Iterable[tuple[str, Difference]]) -> str:
    """Return the four lowest cells as text."""
    return ", ".join(f"{label} {difference(each)}" for label, each in sorted(found, key=lambda item: item[1][0])[:4])


@claim(f"On average the default is at most {CLOSE:g} % of gain below the best script of each cell.")
def _each_best(frame: pl.DataFrame) -> Judgement:
    ours = by_budget(frame).filter(policy="default")
    found = {
        " ".join(map(str, key)): mean_and_error(part["ahead"].to_numpy())
        for key, part in ours.group_by(CELL, maintain_order=True)
    }
    mean = as_float(pl.Series([each for each, _ in found.values()]).mean())
    surely_below = sum(m + 2 * se < -CLOSE for m, se in found.values())
    text = (
        f"Gain % less that of the cell's best script, chosen in hindsight: {mean:+.1f} over {len(found)} cells;"
        f" {surely_below} of them below −{CLOSE:g} by 2 se; lowest: {lowest(found.items())}."
    )
    return text, mean >= -CLOSE


def script_claim(script: str) -> StudyClaim:
    """Return the claim that the default gains at least as much as a script."""

    @claim(f"The default gains at least as much as {script}, on average over all cells.")
    def judge(frame: pl.DataFrame) -> Judgement:
        cells = paired_cells(by_budget(frame), CELL, "default", script)
        mean, error = compare_cells(frame, "default", script)
        return (
            f"Gain %, default − {script}: {difference((mean, error))}, ahead in"
            f" {sum(m > 0 for m, _ in cells.values())} of {len(cells)} cells; lowest: {lowest(cells.items())}.",
            mean >= 0,
        )

    return judge


@claim(f"At most {WORSE_CELLS:.0%} of the cells are more than {WORSE:g} % of gain + 2 se below the default of 2026.11.")
def _old(frame: pl.DataFrame) -> Judgement | None:
    if OLD not in frame["policy"]:
        return None
    found = paired_cells(by_budget(frame), CELL, "default", OLD)
    worse = {label: each for label, each in found.items() if each[0] < -(WORSE + 2 * each[1])}
    mean = compare_cells(frame, "default", OLD)
    text = f"{len(worse)} of {len(found)} cells; default − {OLD} on average {difference(mean)}; lowest: "
    return text + f"{lowest(found.items())}.", len(worse) <= WORSE_CELLS * len(found)


@claim(
    f"Where the largest cost is 50 × the mean and reviews can be stopped, {HEAVY_SPENT:g} % of a 10 % budget is spent."
)
def _heavy(frame: pl.DataFrame) -> Judgement | None:
    part = frame.filter(generator=HEAVY, policy="default")
    held = part.filter(asked_budget=HELD)
    if held.is_empty():
        return None
    spent, gain = (mean_of(held, value) for value in ("spent_pct", "gain"))
    before, less = (mean_of(part, value, asked_budget="10%", feedback="full") for value in ("spent_pct", "gain"))
    text = f"{spent:.0f} % spent, gain {gain:.1f} %; with the largest cost held back {before:.0f} % and {less:.1f} %."
    return text, spent >= HEAVY_SPENT


EXPERIMENT = Experiment(
    title="Small tables",
    description="Made-up tables of 300 to 5,000 rows, one for each thing that makes a table hard: U-shapes,"
    " interactions, many columns, skewed ones, overconfident scores, missing cells, categories, heavy costs, noise."
    " The rivals refit one regression after every 12 % of the rows and solve the price anew: a script of an afternoon.",
    realised=True,
    grids=(
        Grid(
            world="made-up-tables",
            worlds=[{"generator": each} for each in GENERATORS],
            policies=POLICIES,
            budgets=BUDGETS,
            feedbacks=FEEDBACKS,
            seeds=range(5),
            quick={"seeds": range(2), "budgets": ("10%",), "feedbacks": ("full", "reviewed"), "worlds": QUICK_WORLDS},
        ),
        Grid(
            world="made-up-tables",
            worlds=[{"generator": HEAVY}],
            policies=OURS,
            budgets=(HELD,),
            seeds=range(5),
            quick={"seeds": range(2)},
        ),
    ),
    rows=of_scripts,
    figure=Figure(
        title="Small tables: gain above the best script of each cell",
        rows=lambda frame: by_budget(frame).filter(~pl.col("policy").is_in(SCRIPT_NAMES)),
        panels=(
            DifferenceDots(
                value="ahead",
                x_title="gain %, ours − best script (mean ± 2 se)",
                title="{policy}, budget {asked_budget}",
                y="generator",
                by="feedback",
                split=["policy", "asked_budget"],
            ),
        ),
        columns=2,
        spread="mean ± 2 se",
        notes=["another table for each trial; the best of four scripts is chosen in hindsight, in each cell"],
    ),
    claims=(_best_single, _each_best, *map(script_claim, SCRIPT_NAMES), _old, _heavy),
    tables=(
        MeanTable(
            caption="{value}, budget {asked_budget}, {feedback} feedback, by table (mean ± sd)",
            values={"gain": "Gain % of hindsight OPT"},
            columns="generator",
            split=["asked_budget", "feedback"],
            rows=by_budget,
        ),
        MeanTable(
            caption="{value}, by feedback, all tables and budgets (mean ± sd)",
            values={"gain": "Gain % of hindsight OPT", "spent_pct": "Spent, % of the budget"},
            columns="feedback",
            rows=by_budget,
        ),
    ),
)
