"""Knapsacks without a limit: reward over time (the paper's Figure of Section 5.2)."""

import altair as alt
import numpy as np
import polars as pl

from deferkit.study.drawing.charts import chart_of, finished, in_order, layered, side_by_side
from deferkit.study.experiments.experiment import (
    Experiment,
    Finding,
    as_float,
    cell_of,
    mean_and_error,
    mean_of,
    over_trials,
)
from deferkit.study.experiments.knapsacks import KIND, LEARNERS, RULES, WORLD, paths, said
from deferkit.study.experiments.people import (
    OPT,
    compare,
    count,
    difference,
    named,
    over_time,
    share_verdict,
    subtitle,
    surely,
    trials_with,
)
from deferkit.study.store import Trial
from deferkit.worlds.knapsack_calibration import calibration

EARLY = 400  # "the first few hundred steps"
SIMILAR = 0.01  # reward a task, where what separates them later is about twice that
DRAWN = ("Linear", "NeuralLinear", "TreeLinear", "HumanOnly", "ModelOnly")


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials of each, or 2."""
    return trials_with((*LEARNERS, *RULES), ["inf"], count(quick), WORLD)


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw the mean reward so far, and what was earned more than by the model alone."""
    shown = named(frame, KIND)
    long = paths(frame).filter(pl.col("who").is_in(DRAWN)).with_columns(so_far=pl.col("reward_at") / pl.col("at"))
    among = [*in_order(long, "who"), OPT]
    best = long.filter(who="ModelOnly").with_columns(
        who=pl.lit(OPT), so_far=(pl.col("reward_at") + pl.col("regret_at")) / pl.col("at")
    )
    means = over_trials(best, ["who", "at"], "so_far")
    line = chart_of(means).mark_line(strokeDash=[6, 4], strokeWidth=2, color="#000").encode(x="at:Q", y="mean:Q")
    settled = over_trials(long.filter(pl.col("at") >= pl.col("at").max() / 10), ["who", "at"], "so_far")
    reach = [as_float(settled["mean"].min()) - 0.03, as_float(means["mean"].max()) + 0.01]
    reward = over_time(
        long,
        "so_far",
        "mean reward of a task so far",
        among=among,
        y_scale=alt.Scale(domain=reach),
        width=430,
        height=330,
    )
    model = long.filter(who="ModelOnly").select("seed", "at", model_at="reward_at")
    more = long.join(model, on=["seed", "at"]).with_columns(more=pl.col("reward_at") - pl.col("model_at"))
    ahead = over_time(
        more.filter(pl.col("who") != "ModelOnly"),
        "more",
        "reward more than ModelOnly's",
        among=among,
        width=430,
        height=330,
    )
    return finished(
        side_by_side(
            [
                layered(reward, line).properties(title="mean reward so far (dashed: hindsight OPT)"),
                ahead.properties(title="cumulated, on the same tasks as ModelOnly"),
            ]
        ),
        "Knapsacks without a limit: RatioMax4, a person, or the better one of both?",
        subtitle(shown, said()),
    )


def between(frame: pl.DataFrame, one: str, other: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return how much more of reward a task someone has than another in the first tasks, and in all later ones."""
    long = paths(frame).filter(pl.col("who").is_in([one, other])).sort("at")
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


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge what the paper says of the reward."""
    shown = named(frame, KIND)
    alone = {
        (who, decider): compare(shown, who, decider, "reward")
        for who in ("Linear", "NeuralLinear", "TreeLinear")
        for decider in ("HumanOnly", "ModelOnly")
    }
    of_paper = [found for (who, _), found in alone.items() if who != "TreeLinear"]
    early, late = between(frame, "NeuralLinear", "Linear")
    tree = compare(shown, "TreeLinear", "Linear")
    gains = {who: mean_of(shown, "gain", who=who) for who in ("Linear", "NeuralLinear", "TreeLinear")}
    return [
        Finding(
            "Linear and NeuralLinear improve significantly over the human or the model alone (knapsacks, no limit).",
            "paper",
            "Reward more than theirs, paired, with its standard error: "
            + ", ".join(f"{who} over {decider} {difference(found, 0)}" for (who, decider), found in alone.items())
            + f". {said().capitalize() or 'People of a file'}.",
            share_verdict(map(surely, of_paper)),
        ),
        Finding(
            "NeuralLinear and Linear are alike in the first few hundred steps, NeuralLinear is better over time"
            " (knapsacks).",
            "paper",
            f"Reward a task, NeuralLinear less Linear: {difference(early, 3)} in the first {EARLY} tasks,"
            f" {difference(late, 3)} after them.",
            share_verdict([abs(early[0]) <= max(SIMILAR, 2 * early[1]), surely(late)]),
        ),
        Finding(
            "TreeLinear gains more than Linear (knapsacks, no limit).",
            "deferkit",
            f"Gain %, TreeLinear less Linear: {difference(tree)}; "
            + ", ".join(f"{who} {gain:.1f}" for who, gain in gains.items())
            + f"; TreeLinear less NeuralLinear {difference(compare(shown, 'TreeLinear', 'NeuralLinear'))}.",
            share_verdict([surely(tree)]),
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return all policies, and what the people are like."""
    rows = [
        {
            "policy": key[0],
            "reward": cell_of(part, "reward", 0),
            "% of hindsight OPT": cell_of(part, "pct_opt", 1),
            "gain %": cell_of(part, "gain", 1),
            "asked %": cell_of(part, "defer_rate", 1),
            "µs a step": cell_of(part, "us_per_step", 0),
        }
        for key, part in named(frame, KIND).group_by("who", maintain_order=True)
    ]
    facts = [
        {"figure": f.name, "known": "–" if f.target is None else f"{f.target:.3f}", "simulated": f"{f.measured:.3f}"}
        for f in calibration()
    ]
    return {
        "Knapsacks, no limit (mean ± sd over trials)": pl.DataFrame(rows),
        "The simulated people, beside what is known of real ones": pl.DataFrame(facts),
    }


EXPERIMENT = Experiment(
    "knapsack-reward",
    "Knapsacks: reward over time",
    "396 people with ten knapsacks each, one after another; RatioMax4 is as good on average, on other tasks. Without"
    " a limit on time: how much better than either alone, and how soon? The answers of the paper's study are not"
    " public, so that people are simulated unless a file is given; what a learner gains here is not what it would gain"
    " with the real ones. Rewards are those that came; OPT sees them, noise and all.",
    trials,
    figure,
    findings,
    tables,
)
