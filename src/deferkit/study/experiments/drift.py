"""Drift: rewards that change while the tasks come, against an optimum that knows the phase."""

from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, colour, finished, in_order, layered, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    Experiment,
    Finding,
    as_float,
    mean_and_error,
    paired,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.experiments.people import difference, share_verdict, surely
from deferkit.study.store import Trial
from deferkit.worlds.drift import KINDS, phases

BUDGETS = ("0.1T", "0.25T")
DRIFTING = KINDS[1:]
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
TOLD = "best-reject and threshold are told what the model is expected to earn, phase included"


def trials(quick: bool) -> list[Trial]:
    """Return ten seeds of each kind and budget with bandit and with full feedback, or four with bandit feedback."""
    worlds = [{"family": "lin", "kind": kind} for kind in KINDS]
    seeds = QUICK if quick else (*GIVEN, *OWN)
    slow = QUICK[::2] if quick else seeds

    def made(policies: tuple[str, ...], feedback: str, seeds: tuple[int, ...]) -> list[Trial]:
        asked = trials_of(policies, BUDGETS, 1, worlds, world="drift", feedbacks=[feedback], trace="path")
        return [(spec, seed) for spec, _ in asked for seed in seeds]

    full = [] if quick else made(LEARNERS, "full", seeds)
    return made((*LEARNERS, *RULES), "bandit", seeds) + made((RIVAL,), "bandit", slow) + full


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


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain over time for each kind above its phase, and the gain at the end beside the goals."""
    bandit = frame.filter(feedback="bandit")
    lines = drawn(over_time(bandit.filter(asked_budget=BUDGETS[0])))
    among = in_order(lines, "policy")
    tasks = int(as_float(lines["at"].max()))
    panels = [panel(lines.filter(kind=kind), kind, tasks, among) for kind in KINDS]
    return finished(
        side_by_side([*panels, goals_chart(bandit, among)], columns=3),
        f"Drift: what is gained against an optimum that knows the phase (lin, T = {tasks:,}, d = 20, σ = 0.3)",
        [
            f"bandit feedback, {seeds_text(bandit)} each; over time: B = {BUDGETS[0]}, gain within"
            f" {tasks * WINDOW // 100:,} tasks, all seeds together; below it the phase: weights of A (black), B (grey)",
            f"{TOLD}; static is the best rule that does not know the phase",
        ],
    )


def drawn(frame: pl.DataFrame) -> pl.DataFrame:
    """Return what figures show, with the default last, so that nothing covers it; `never` is dashed above it."""
    place = {name: at for at, name in enumerate(reversed(DRAWN))} | {"never": len(DRAWN)}
    shown = frame.filter(pl.col("policy").is_in(DRAWN))
    return shown.sort(pl.col("policy").replace_strict(place, return_dtype=pl.Int64), maintain_order=True)


def panel(lines: pl.DataFrame, kind: str, tasks: int, among: list[str]) -> Any:
    """Return gain over time, and the phase below it."""
    scale = alt.Scale(domain=[0, tasks], nice=False)
    gain = (
        chart_of(lines)
        .mark_line(strokeWidth=2.2, clip=True)
        .encode(
            x=alt.X("at:Q", title=None, scale=scale, axis=alt.Axis(labels=False)),
            y=alt.Y("mean:Q", title="gain % within the window", scale=alt.Scale(domain=[-40, 140], nice=False)),
            color=colour("policy", among),
            strokeDash=alt.condition("datum.policy == 'never'", alt.value([5, 4]), alt.value([1, 0])),
            tooltip=["policy:N", "at:Q", alt.Tooltip("mean:Q", format=".1f")],
        )
        .properties(width=330, height=230, title=kind)
    )
    turn = pl.DataFrame({"at": list(range(tasks)), "phase": phases(kind, tasks)})
    few = turn.gather_every(max(tasks // 400, 1)).with_columns(A=pl.col("phase").cos(), B=pl.col("phase").sin())
    strips = [
        chart_of(few.select("at", weight=side))
        .mark_line(
            strokeWidth=1.6, color=ink, interpolate="step-after" if kind in ("abrupt", "recurring") else "linear"
        )
        .encode(
            x=alt.X("at:Q", title="tasks", scale=scale, axis=alt.Axis(format="~s", tickCount=5)),
            y=alt.Y("weight:Q", title="phase", scale=alt.Scale(domain=[-1.3, 1.3]), axis=alt.Axis(values=[-1, 0, 1])),
        )
        for side, ink in (("B", "#b5b5b5"), ("A", "#222222"))
    ]
    return alt.vconcat(gain, layered(*strips).properties(width=330, height=46), spacing=6)


def goals_chart(frame: pl.DataFrame, among: list[str]) -> Any:
    """Return the gain at the end for each kind and budget, and the goals of the default."""
    cell = pl.col("kind") + ", " + pl.col("asked_budget")
    shown = drawn(frame).with_columns(cell=cell)
    cells = [f"{kind}, {budget}" for kind in KINDS for budget in BUDGETS]
    rows = shown.group_by("policy", "cell", maintain_order=True).agg(pl.col("gain").mean())
    goals = [(f"{kind}, {b}", goal) for kind, both in GOALS.items() for b, goal in zip(BUDGETS, both, strict=True)]
    y = alt.Y("cell:N", sort=cells, title=None)
    ticks = (
        chart_of(pl.DataFrame(goals, schema=["cell", "gain"], orient="row"))
        .mark_tick(thickness=3, size=18, color="#222")
        .encode(y=y, x="gain:Q")
    )
    scale = alt.Scale(domain=[-10, 103], nice=False)
    dots = (
        chart_of(rows)
        .mark_point(filled=True, size=75, opacity=0.9, clip=True)
        .encode(
            y=y,
            x=alt.X(
                "gain:Q", title="gain % of the whole stream", scale=scale, axis=alt.Axis(values=list(range(0, 101, 20)))
            ),
            color=colour("policy", among),
            tooltip=["policy:N", "cell:N", alt.Tooltip("gain:Q", format=".1f")],
        )
    )
    return layered(ticks, dots).properties(width=290, height=300, title="mean gain; bars: goals of the default")


def gains(frame: pl.DataFrame, kind: str, budget: str, policy: str = "default") -> tuple[float, float]:
    """Return the mean gain of a policy with bandit feedback over its trials, and the standard error."""
    part = frame.filter(policy=policy, kind=kind, asked_budget=budget, feedback="bandit")
    return mean_and_error(part["gain"].to_numpy())


def goal_finding(frame: pl.DataFrame, seeds: tuple[int, ...], whose: str, errors: float) -> Finding:
    """Judge the goals on some of the seeds, with so many standard errors of tolerance."""
    part = frame.filter(pl.col("seed").is_in(seeds))
    met, texts = [], []
    for kind, goals in GOALS.items():
        found = [gains(part, kind, budget) for budget in BUDGETS]
        met += [
            mean >= goal - (errors * error if errors else 0.0) for (mean, error), goal in zip(found, goals, strict=True)
        ]
        reached = " / ".join(f"{mean:.1f}" for mean, _ in found)
        texts.append(f"{kind} {reached} (asked {' / '.join(f'{goal:g}' for goal in goals)})")
    tolerance = f", within {errors:g} standard errors" if errors else ""
    return Finding(
        f"The default reaches the gain that is asked of it where rewards drift, on {whose}{tolerance}.",
        "deferkit",
        f"Gain % of the dynamic optimum, bandit feedback, B = {' / '.join(BUDGETS)},"
        f" {part['seed'].n_unique()} seeds: {'; '.join(texts)}.",
        share_verdict(met),
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the goals, what forgetting costs and brings, and who else is ahead."""
    still = {
        (feedback, budget): paired(
            frame.filter(kind="none", feedback=feedback, asked_budget=budget), "default", "never"
        )
        for feedback in frame["feedback"].unique(maintain_order=True)
        for budget in BUDGETS
    }
    return [
        goal_finding(frame, GIVEN, "the seeds it was measured on", 0.0),
        goal_finding(frame, OWN, "other seeds", 2.0),
        Finding(
            f"Where nothing drifts, forgetting costs at most {ALLOWED} % of gain.",
            "deferkit",
            "Gain %, default less never, paired: "
            + ", ".join(f"{f} {b} {difference(found, 2)}" for (f, b), found in still.items())
            + ".",
            HOLDS if min(mean for mean, _ in still.values()) >= -ALLOWED else FAILS,
        ),
        against(frame, "never", "Where rewards drift, the default gains more than without forgetting."),
        against(frame, "static", "The default gains more than any rule can that does not know the phase."),
        against(frame, RIVAL, "Where rewards drift, the default gains more than AUPD."),
    ]


def against(frame: pl.DataFrame, other: str, claim: str) -> Finding:
    """Judge the default against somebody else in every drifting setting, with bandit feedback."""
    cells = {
        (kind, budget): paired(frame.filter(kind=kind, asked_budget=budget, feedback="bandit"), "default", other)
        for kind in DRIFTING
        for budget in BUDGETS
    }
    texts = [f"{kind} {budget} {difference(found)}" for (kind, budget), found in cells.items()]
    return Finding(
        claim,
        "deferkit",
        f"Gain %, default less {other}, paired: {', '.join(texts)}.",
        share_verdict(map(surely, cells.values())),
    )


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gains and spending for each budget and feedback."""
    result = {}
    for (feedback, budget), part in frame.group_by("feedback", "asked_budget", maintain_order=True):
        for value, what in (("gain", "Gain % of the dynamic optimum"), ("spent_pct", "Spent, % of the budget")):
            result[f"{what}, {feedback} feedback, B = {budget}, by kind"] = pivot(part, "policy", "kind", value)
    return result


EXPERIMENT = Experiment(
    "drift",
    "Drift: rewards that change",
    "What the model and the human earn turns with a phase: not at all, at once, gradually, with the seasons, or back"
    " and forth. OPT knows the phase of every task (dynamic); static is the best rule that does not. Whoever forgets"
    " nothing learns the average of all phases, which with the seasons is nothing.",
    trials,
    figure,
    findings,
    tables,
)
