"""The gain of the default over budgets, regimes and feedbacks, beside what it is to reach."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from deferkit.study.optimum import optimum
from deferkit.study.trial import judge, make_learner, run_learner
from deferkit.worlds.synthetic import Synthetic


class Row(NamedTuple):
    """Mean gain of a learner in a setting."""

    regime: str
    noise: float
    horizon: int
    feedback: str
    budget: float
    gain: float
    gain_sd: float
    goal: float
    spent_pct: float


BUDGETS = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
GOALS = {
    ("complementary", 0.1, 50_000): dict(zip(BUDGETS, (94, 97, 97.7, 98.5, 99.2, 99.5, 99.9), strict=True)),
    ("dominant", 0.1, 50_000): dict(zip(BUDGETS, (94.5, 96.7, 98.2, 99, 99.3, 99.7, 99.7), strict=True)),
    ("complementary", 0.5, 50_000): {500: 71, 2_000: 89, 8_000: 97, 32_000: 99.8},
    ("dominant", 0.5, 50_000): {500: 64, 2_000: 84, 8_000: 94.5, 32_000: 98.6},
    ("complementary", 0.1, 4_000): {160: 86, 1_000: 97.5, 2_000: 98.5},
    ("dominant", 0.1, 4_000): {160: 86, 1_000: 97.5, 2_000: 98.5},
}
"""Gain in per cent that the default is to reach, by (regime, noise, horizon) and budget."""


def gains(policy: str, seeds: int, first_seed: int = 0, progress: Callable[[int], None] | None = None) -> Iterator[Row]:
    """Yield the gains of a learner in every setting that has a goal, each over this many seeds."""
    for (regime, noise, horizon), goals in GOALS.items():
        world = Synthetic(regime=regime, noise=noise, horizon=horizon)
        measured = np.zeros((seeds, len(goals), 2, 2))
        for s in range(seeds):
            stream = world.draw(first_seed + s)
            for i, budget in enumerate(goals):
                best = optimum(stream.population, [budget / horizon])
                for j, feedback in enumerate(("full", "bandit")):
                    learner = make_learner(policy, world, [budget], stream, first_seed + s)
                    routes, _ = run_learner(learner, stream, feedback)
                    outcome = judge(policy, routes, stream, best, budget)
                    measured[s, i, j] = outcome.gain, outcome.spent_pct
            if progress is not None:
                progress(1)
        for i, (budget, goal) in enumerate(goals.items()):
            for j, feedback in enumerate(("full", "bandit")):
                mean, sd = measured[:, i, j].mean(axis=0), measured[:, i, j].std(axis=0)
                yield Row(regime, noise, horizon, feedback, budget, mean[0], sd[0], goal, mean[1])
