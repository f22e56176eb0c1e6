"""One stream, several policies, what each of them came to."""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import AssumptionWarning, expected
from deferkit.learn.deferrer import Deferrer
from deferkit.study.baselines import arbitrary_human, model_only
from deferkit.study.optimum import Optimum, optimum
from deferkit.types import Budget
from deferkit.worlds.stream import Stream
from deferkit.worlds.synthetic import Synthetic

LEARNERS = ("paper", "gradient", "adaptive", "default")
POLICIES = ("model-only", "arbitrary-human", *LEARNERS, "opt")
SURE_COST = 3.0  # above what a synthetic task costs at σ = 0.1; a stream that costs more raises it

Progress = Callable[[int], None]


class Outcome(NamedTuple):
    """What a policy came to on a stream. Rewards are expected ones, on just these tasks."""

    policy: str
    reward: float
    pct_opt: float
    gain: float  # per cent of what lies between ModelOnly and OPT; NaN if nothing does
    regret: float
    spent: float  # realised, of the first resource
    spent_pct: float
    defer_rate: float
    us_per_step: float  # NaN where no learner ran


def sure_cost(stream: Stream) -> float:
    """Return a cost that no task of the stream passes."""
    return max(SURE_COST, math.ceil(float(stream.costs.max())))


def make_learner(name: str, world: Synthetic, budgets: Sequence[float], stream: Stream, seed: int) -> Deferrer:
    """Return a fresh learner of this name for a stream."""
    each = [Budget(total, horizon=world.horizon, max_cost=sure_cost(stream)) for total in budgets]
    reward_range = (0.0, 1.0) if world.binary else (-math.inf, math.inf)
    link = "logistic" if world.binary else "identity"
    if name == "paper":
        with warnings.catch_warnings():
            # The experiments of the paper break its own assumption; the table says so once.
            warnings.simplefilter("ignore", AssumptionWarning)
            return Deferrer.paper(
                n_features=world.n_features,
                budget=each[0],
                noise=world.noise,
                reward_range=reward_range,
                link=link,
                seed=seed,
            )
    if name not in LEARNERS:
        raise expected("policy", "study", "one of " + ", ".join(map(repr, POLICIES)), name)
    experts = ["human"] if world.n_experts == 1 else [f"expert {i + 1}" for i in range(world.n_experts)]
    return Deferrer(
        n_features=world.n_features,
        experts=experts,
        budget=each[0] if len(each) == 1 else {f"resource {i + 1}": b for i, b in enumerate(each)},
        pacing="resolve" if name == "default" else name,
        link=link,
        reward_range=reward_range,
        seed=seed,
    )


def run_learner(
    learner: Deferrer, stream: Stream, feedback: str, progress: Progress | None = None
) -> tuple[NDArray[np.int64], float]:
    """Run a learner over a stream; return its routes and the microseconds a step took."""
    rewards = {name: stream.rewards[:, i] for i, name in enumerate(learner.settings.deciders)}
    begin = time.perf_counter()
    run = learner.run(stream.contexts, rewards, stream.costs, feedback=feedback, progress=progress)
    return run.routes, (time.perf_counter() - begin) / len(run.routes) * 1e6


def judge(
    name: str, routes: NDArray[np.int64], stream: Stream, best: Optimum, budget: float, us: float = math.nan
) -> Outcome:
    """Return what these routes came to."""
    every = np.arange(len(routes))
    reward = float(stream.expected_rewards[every, routes].sum())
    costs = np.where(routes > 0, stream.costs[every, np.maximum(routes - 1, 0), 0], 0.0)
    return outcome(name, reward, stream, best, budget, float(costs.sum()), float((routes > 0).mean()), us)


def outcome(
    name: str,
    reward: float,
    stream: Stream,
    best: Optimum,
    budget: float,
    spent: float,
    defer_rate: float,
    us: float = math.nan,
) -> Outcome:
    """Return an outcome, measured against OPT and ModelOnly on the same tasks."""
    top = best.reward_on(stream)
    floor = float(stream.expected_rewards[:, 0].sum())
    gain = 100 * (reward - floor) / (top - floor) if top > floor else math.nan
    spent_pct = 100 * spent / budget if budget > 0 else math.nan
    return Outcome(name, reward, 100 * reward / top, gain, top - reward, spent, spent_pct, 100 * defer_rate, us)


def trial(
    world: Synthetic,
    budget: float,
    policies: Sequence[str],
    *,
    seed: int,
    feedback: str = "full",
    progress: Progress | None = None,
) -> list[Outcome]:
    """Draw a stream and run policies over it, each on the same tasks with the same outcomes.

    >>> [row.policy for row in trial(Synthetic(horizon=500), 50, ["model-only", "default", "opt"], seed=0)]
    ['model-only', 'default', 'opt']
    """
    stream = world.draw(seed)
    best = optimum(stream.population, [budget / world.horizon] * world.n_resources)
    results = []
    for name in policies:
        if name == "model-only":
            results.append(judge(name, model_only(stream), stream, best, budget))
        elif name == "arbitrary-human":
            results.append(judge(name, arbitrary_human(stream, budget, sure_cost(stream)), stream, best, budget))
        elif name == "opt":
            asked = best.choice[stream.kind, 1:]
            spent = float((asked * stream.costs[:, :, 0]).sum())
            results.append(
                outcome(name, best.reward_on(stream), stream, best, budget, spent, float(asked.sum(axis=1).mean()))
            )
        else:
            learner = make_learner(name, world, [budget] * world.n_resources, stream, seed)
            routes, us = run_learner(learner, stream, feedback, progress)
            results.append(judge(name, routes, stream, best, budget, us))
    return results
