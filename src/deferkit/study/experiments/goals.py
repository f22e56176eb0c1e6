"""What the default is to reach: gains in per cent, and what Algorithm 1 as printed has elsewhere."""

import polars as pl

from deferkit.study.experiments.experiment import Judgement, StudyClaim, share_verdict
from deferkit.study.trial_statistics import mean_of

BUDGETS = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
NOISY_BUDGETS = (500, 2_000, 8_000, 32_000)
SHORT_BUDGETS = (160, 1_000, 2_000)  # T = 4,000
PRINTED_PCT = {
    "complementary": (97.2, 96.0, 95.5, 97.3, 98.9, 99.4, 99.9),
    "dominant": (97.5, 95.4, 93.5, 95.1, 97.8, 99.4, 99.8),
}
"""Per cent of OPT of Algorithm 1 by budget, in an independent implementation on other seeds."""

GOALS = {
    ("complementary", 0.1, 50_000): dict(zip(BUDGETS, (94, 97, 97.7, 98.5, 99.2, 99.5, 99.9), strict=True)),
    ("dominant", 0.1, 50_000): dict(zip(BUDGETS, (94.5, 96.7, 98.2, 99, 99.3, 99.7, 99.7), strict=True)),
    ("complementary", 0.5, 50_000): dict(zip(NOISY_BUDGETS, (71, 89, 97, 99.8), strict=True)),
    ("dominant", 0.5, 50_000): dict(zip(NOISY_BUDGETS, (64, 84, 94.5, 98.6), strict=True)),
    ("complementary", 0.1, 4_000): dict(zip(SHORT_BUDGETS, (86, 97.5, 98.5), strict=True)),
    ("dominant", 0.1, 4_000): dict(zip(SHORT_BUDGETS, (86, 97.5, 98.5), strict=True)),
}
"""Gain that the default is to reach at least, by (regime, noise, horizon) and budget."""


def goal_claim(*, noise: float, horizon: int) -> StudyClaim:
    """Return the claim that the default reaches its goals, with full and with bandit feedback.

    Args:
        noise: σ of the world.
        horizon: T, the number of tasks.
    """
    return StudyClaim(
        f"The default reaches the gain that is asked of it (T = {horizon:,}, σ = {noise:g}).",
        "deferkit",
        lambda frame: _judge(frame, noise, horizon),
    )


def _judge(frame: pl.DataFrame, noise: float, horizon: int) -> Judgement:
    goals_by_regime = {key[0]: goals for key, goals in GOALS.items() if key[1:] == (noise, horizon)}
    parts, missed, met = [], [], []
    for regime, goals in goals_by_regime.items():
        for feedback in ("full", "bandit"):
            where = {"policy": "default", "regime": regime, "noise": noise, "horizon": horizon, "feedback": feedback}
            gains = {b: mean_of(frame, "gain", budget=float(b), **where) for b in goals}
            met += [gains[b] >= goals[b] for b in goals]
            missed += [
                f"{regime}, {feedback}, B = {b:,}: {gains[b]:.1f} < {goals[b]}"
                for b in goals
                if not gains[b] >= goals[b]
            ]
            parts.append(f"{regime}, {feedback}: " + ", ".join(f"{gain:.1f}" for gain in gains.values()))
    budgets = ", ".join(f"{b:,}" for b in next(iter(goals_by_regime.values())))
    measured = f"{sum(met)} of {len(met)} goals. Gain % at B = {budgets}: {'; '.join(parts)}."
    return measured + (f" Missed: {'; '.join(missed)}." if missed else ""), share_verdict(met)
