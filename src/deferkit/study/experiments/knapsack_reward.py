"""Knapsacks without a limit: reward over time (the paper's Figure of Section 5.2)."""

import numpy as np
import polars as pl

from deferkit.study.drawing.figures import RewardSoFar
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Judgement, OutcomeTable, claim
from deferkit.study.experiments.knapsacks import NEURAL, RULES, WORLD, by_name, people_remark
from deferkit.study.experiments.people import OPT, compare, grid, over_tasks, paths
from deferkit.study.statistics import Difference, cells_text, difference, mean_and_error, mean_of, surely
from deferkit.worlds.knapsack_data import calibration

EARLY = 400  # "the first few hundred steps"
SIMILAR = 0.01  # reward a task, where what separates them later is about twice that
LEARNERS = ("Linear", "NeuralLinear", "TreeLinear")
DRAWN = (*LEARNERS, "HumanOnly", "ModelOnly")
AMONG = ("Linear", "NeuralLinear", "TreeLinear", "HumanOnly", "ModelOnly", OPT)


def drawn_paths(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the paths that are drawn, with the mean reward so far and the reward more than the model's alone."""
    long = paths(frame.filter(pl.col("who").is_in(DRAWN)))
    model = long.filter(who="ModelOnly").select("seed", "at", model_at="reward_at")
    return long.join(model, on=["seed", "at"], maintain_order="left").with_columns(
        so_far=pl.col("reward_at") / pl.col("at"),
        opt_so_far=(pl.col("reward_at") + pl.col("regret_at")) / pl.col("at"),
        more=pl.col("reward_at") - pl.col("model_at"),
    )


def between(frame: pl.DataFrame, one: str, other: str) -> tuple[Difference, Difference]:
    """Return the difference in reward per task between two deciders, in the first tasks and in all later ones."""
    long = paths(frame.filter(pl.col("who").is_in([one, other]))).sort("at")
    parts: tuple[list[float], list[float]] = ([], [])
    for seed in long["seed"].unique().sort():
        ends = []
        for who in (one, other):
            path = long.filter(who=who, seed=seed)
            at, reward = path["at"].to_numpy(), path["reward_at"].to_numpy()
            first = int(np.searchsorted(at, EARLY))
            ends.append((reward[first] / at[first], (reward[-1] - reward[first]) / (at[-1] - at[first])))
        for place, found in enumerate(parts):
            found.append(float(ends[0][place] - ends[1][place]))
    early, late = (mean_and_error(np.array(found)) for found in parts)
    return early, late


@claim(
    "Linear and NeuralLinear improve significantly over the human or the model alone (knapsacks, no limit).", "paper"
)
def _alone(frame: pl.DataFrame) -> Judgement:
    cells = {
        (who, decider): compare(frame, who, decider, "reward")
        for who in LEARNERS
        for decider in ("HumanOnly", "ModelOnly")
    }
    text = cells_text({f"{who} over {decider}": found for (who, decider), found in cells.items()}, 0)
    measured = (
        f"Reward more than theirs, paired, with its standard error: {text}."
        f" {people_remark(frame).capitalize() or 'People of a file'}."
    )
    return measured, (surely(found) for (who, _), found in cells.items() if who != "TreeLinear")


@claim(
    "NeuralLinear and Linear are alike in the first few hundred steps, NeuralLinear is better over time (knapsacks).",
    "paper",
)
def _networks(frame: pl.DataFrame) -> Judgement:
    early, late = between(frame, "NeuralLinear", "Linear")
    measured = (
        f"Reward a task, NeuralLinear less Linear: {difference(early, 3)} in the first {EARLY} tasks,"
        f" {difference(late, 3)} after them."
    )
    return measured, [abs(early[0]) <= max(SIMILAR, 2 * early[1]), surely(late)]


@claim("TreeLinear gains more than Linear (knapsacks, no limit).")
def _trees(frame: pl.DataFrame) -> Judgement:
    tree = compare(frame, "TreeLinear", "Linear")
    gains = ", ".join(f"{who} {mean_of(frame, 'gain', who=who):.1f}" for who in LEARNERS)
    measured = (
        f"Gain %, TreeLinear less Linear: {difference(tree)}; {gains}; TreeLinear less NeuralLinear"
        f" {difference(compare(frame, 'TreeLinear', 'NeuralLinear'))}."
    )
    return measured, [surely(tree)]


def people_table(_: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return a table of the simulated people's characteristics beside those of real ones."""
    facts = [
        {"figure": f.name, "known": "–" if f.target is None else f"{f.target:.3f}", "simulated": f"{f.measured:.3f}"}
        for f in calibration()
    ]
    return {"The simulated people, beside what is known of real ones": pl.DataFrame(facts)}


EXPERIMENT = Experiment(
    title="Knapsacks: reward over time",
    description="396 people with ten knapsacks each, one after another; RatioMax4 is as good on average, on other"
    " tasks. Without a limit on time: how much better than either alone, and how soon? The answers of the paper's study"
    " are not public, so that people are simulated unless a file is given; what a learner gains here is not what it"
    " would gain with the real ones. Rewards are those that came; OPT sees them, noise and all.",
    realised=True,
    grids=[
        *grid("linear", "default", budgets=["inf"], world=WORLD),
        *grid("neural", budgets=["inf"], world=WORLD, parameters=NEURAL),
        *grid("tree", *RULES, budgets=["inf"], world=WORLD),
    ],
    rows=by_name,
    figure=Figure(
        title="Knapsacks without a limit: RatioMax4, a person, or the better one of both?",
        by="who",
        panels=(
            RewardSoFar(title="mean reward so far (dashed: hindsight OPT)", rows=drawn_paths, among=AMONG),
            over_tasks(
                "more",
                "reward more than ModelOnly's",
                "cumulated, on the same tasks as ModelOnly",
                rows=lambda frame: drawn_paths(frame).filter(pl.col("who") != "ModelOnly"),
                among=AMONG,
                width=430,
                height=330,
            ),
        ),
        seed="the people in another order",
        notes=[people_remark],
    ),
    claims=(_alone, _networks, _trees),
    tables=(
        OutcomeTable(
            caption="Knapsacks, no limit (mean ± sd over trials)",
            index=["who"],
            heading="policy",
            values={
                "reward": ("reward", 0),
                "% of hindsight OPT": ("pct_opt", 1),
                "gain %": ("gain", 1),
                "asked %": ("defer_rate", 1),
                "µs a step": ("us_per_step", 0),
            },
        ),
        people_table,
    ),
)
