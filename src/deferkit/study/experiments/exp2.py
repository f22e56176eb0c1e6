"""Experiment 2: performance over budgets, in two regimes."""

import altair as alt
import polars as pl

from deferkit.study.charts import bands, finished, log_axis, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    Experiment,
    Finding,
    as_float,
    mean_of,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.experiments.goals import BUDGETS, PRINTED_PCT, goal_finding
from deferkit.study.store import Trial

REGIMES = ("complementary", "dominant")
DRAWN = ("default", "gradient", "paper", "best-reject", "threshold", "arbitrary-human", "model-only")
SIMPLE = ("model-only", "arbitrary-human", "random", "threshold", "best-reject")
POLICIES = (*DRAWN, "adaptive", "greedy", "thompson", "random", "human-only", "opt")


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials of each policy at each budget, or 3; learners with both feedbacks."""
    seeds = 3 if quick else 20
    worlds = [{"regime": regime} for regime in REGIMES]
    return trials_of(POLICIES, BUDGETS, seeds, worlds) + trials_of(
        ("default", "paper"), BUDGETS, seeds, worlds, feedbacks=["bandit"]
    )


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw per cent of OPT, as the paper does, and gain."""
    full = frame.filter(pl.col("feedback") == "full", pl.col("policy").is_in(DRAWN))
    charts = []
    for value, title, bottom in (("pct_opt", "% of OPT", 40), ("gain", "gain %", -5)):
        for regime in REGIMES:
            part = over_trials(full.filter(regime=regime), ["policy", "budget"], value)
            if value == "gain":
                part = part.filter(pl.col("policy") != "model-only")
            charts.append(
                bands(
                    part,
                    x=log_axis("budget", "budget B", BUDGETS),
                    among=DRAWN,
                    y_title=title,
                    y_scale=alt.Scale(domain=[bottom, 102]),
                ).properties(title=f"{regime} human: {title}")
            )
    return finished(
        side_by_side(charts),
        "Experiment 2: per cent of OPT flatters, gain tells",
        f"T = 50,000, σ = 0.1, full feedback, budgets of 1 % to 64 % of T; mean ± sd over {seeds_text(full)}",
    )


def against_baselines(frame: pl.DataFrame, policy: str) -> tuple[int, int, str]:
    """Return in how many settings a policy beats every simple baseline, of how many, and where not."""
    lost, count = [], 0
    for regime in REGIMES:
        for budget in BUDGETS:
            at = {"regime": regime, "budget": float(budget), "feedback": "full"}
            rivals = {name: mean_of(frame, "gain", policy=name, **at) for name in SIMPLE}
            best = max(rivals, key=lambda name: rivals[name])
            own = mean_of(frame, "gain", policy=policy, **at)
            count += 1
            if own <= rivals[best]:
                lost.append(f"{regime} B = {budget:,} ({own:.0f} against {rivals[best]:.0f} of {best})")
    return count - len(lost), count, "; ".join(lost)


def low(summary: pl.DataFrame) -> float:
    """Return the least mean."""
    return as_float(summary["mean"].min())


def high(summary: pl.DataFrame) -> float:
    """Return the largest mean."""
    return as_float(summary["mean"].max())


def ahead(frame: pl.DataFrame, policy: str, other: str, regime: str) -> list[float]:
    """Return how much more a policy gains than another, by budget."""
    return [
        mean_of(frame, "gain", policy=policy, regime=regime, budget=float(b))
        - mean_of(frame, "gain", policy=other, regime=regime, budget=float(b))
        for b in BUDGETS
    ]


def by_regime(values: dict[str, list[float]], digits: int) -> str:
    """Return signed numbers for each regime as text."""
    return "; ".join(f"{r} " + ", ".join(f"{v:+.{digits}f}" for v in values[r]) for r in REGIMES)


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the claims of Experiment 2."""
    full = frame.filter(feedback="full")
    won, count, lost = against_baselines(frame, "paper")
    won_ours, _, lost_ours = against_baselines(frame, "default")
    paper, ours = (over_trials(full.filter(policy=p), ["regime", "budget"], "gain") for p in ("paper", "default"))
    shares = over_trials(full.filter(policy="paper"), ["regime", "budget"], "pct_opt")
    margin = {r: ahead(full, "paper", "best-reject", r) for r in REGIMES}
    optimism = {r: ahead(full, "default", "greedy", r) for r in REGIMES}
    off = [
        (abs(mean_of(full, "pct_opt", policy="paper", regime=r, budget=float(b)) - PRINTED_PCT[r][i]), r, b)
        for r in REGIMES
        for i, b in enumerate(BUDGETS)
    ]
    allowed = [1.0 if r == "dominant" and b <= 2_000 else 0.5 for _, r, b in off]
    bound = full.filter(~pl.col("policy").is_in(["human-only", "opt"]))
    overspent = as_float(bound["spent_pct"].max())
    return [
        Finding(
            "Algorithm 1 performs near to optimal whatever the budget, attaining close to OPT (Experiment 2).",
            "paper",
            f"{low(shares):.1f} to {high(shares):.1f} % of OPT, but the gain over the model alone is"
            f" {low(paper):.0f} to {high(paper):.0f} %: close at B ≥ 8,000 (16 % of T), not at"
            " small budgets.",
            PARTLY,
        ),
        Finding(
            "It significantly outperforms all simple baselines (Experiment 2).",
            "paper",
            f"It beats every simple baseline in {won} of {count} settings" + (f"; not at {lost}." if lost else "."),
            HOLDS if won == count else PARTLY,
        ),
        Finding(
            "In the complementary setting it does not outperform BestReject by a significant margin; in the"
            " other it does.",
            "paper",
            f"Gain less BestReject's, B = 500 … 32,000: {by_regime(margin, 0)}.",
            HOLDS if max(margin["complementary"]) < 10 and min(margin["dominant"]) > 10 else PARTLY,
        ),
        Finding(
            "The budget is never passed.",
            "paper",
            f"The most that any policy but HumanOnly and OPT (which keeps it on average) spent: {overspent:.2f} %"
            " of B.",
            HOLDS if overspent <= 100 else FAILS,
        ),
        Finding(
            "Our Algorithm 1 has the per cents of OPT of an independent implementation,"
            " within 0.5 (1.0 dominant at B ≤ 2,000).",
            "deferkit",
            f"Largest difference {max(off)[0]:.2f}, {max(off)[1]} at B = {max(off)[2]:,}.",
            HOLDS if all(o[0] <= a for o, a in zip(off, allowed, strict=True)) else FAILS,
        ),
        Finding(
            "The default beats every simple baseline at every budget.",
            "deferkit",
            f"In {won_ours} of {count} settings; its gain is {low(ours):.1f} to {high(ours):.2f} %"
            + (f"; not at {lost_ours}." if lost_ours else "."),
            HOLDS if won_ours == count else FAILS,
        ),
        Finding(
            "The default's optimism pays in these worlds.",
            "deferkit",
            f"Gain less that of greedy, which has no optimism: {by_regime(optimism, 1)}. It is an insurance for rewards"
            " that nobody happens to try; here every feature comes often, and nothing has to be insured.",
            HOLDS if min(map(min, optimism.values())) > 0 else FAILS,
        ),
        goal_finding(frame, noise=0.1, horizon=50_000),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gain, per cent of OPT and spending of all policies."""
    full = frame.filter(feedback="full")
    result = {}
    for value, what in (("gain", "Gain %"), ("pct_opt", "% of OPT"), ("spent_pct", "Spent, % of the budget")):
        for regime in REGIMES:
            caption = f"{what}, {regime} human, by budget (mean ± sd)"
            result[caption] = pivot(full.filter(regime=regime), "policy", "budget", value)
    return result


EXPERIMENT = Experiment(
    "exp2",
    "Experiment 2: performance over budgets",
    "Two regimes: a human with complementary skills, and one who dominates. Seven budgets from 1 % to 64"
    " % of the number of"
    " tasks. The upper row is the paper's measure, per cent of OPT; the model alone already has most of"
    " it, so the lower"
    " row shows the gain: how much of what lies between ModelOnly and OPT is reached.",
    trials,
    figure,
    findings,
    tables,
)
