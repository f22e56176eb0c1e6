"""The trials of a plan: which budgets, which policies, how many orders, in which rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deferkit.errors import InvalidArgument, closest
from deferkit.study.policy_registry import LEARNERS, POLICIES, has_embedding, is_learner
from deferkit.study.spec import Spec
from deferkit.study.trial_store import Trial
from deferkit.worlds.task_stream import TaskStream

# per cent of what asking about every task costs: the first of it brings most, so that is where a plan looks closest
SHARES = (0, 1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100)
RULES = ("best-reject", "random")
ORDERS = 5
FEWEST = 200  # complete rows that are worth planning on
FEWEST_ORDERS = 2  # of one alone nobody knows how much it depends on the order
MOST_DECISIONS = 60_000_000  # of the learner in all: a few minutes
ROUND = 4_000_000  # tasks × budgets of an order that are run in one go, so that an interrupt does not lose more
SLOWER = 50  # how many times as long a decision takes with a learned representation
MANY = 5_000_000  # decisions from which on more than one process is worth starting


def orders_for(n_tasks: int) -> int:
    """Return the default number of orders: 5, or down to 2 where there are many tasks.

    >>> orders_for(5_000), orders_for(700_000), orders_for(1_000_000), orders_for(50_000_000)
    (5, 5, 3, 2)
    """
    return max(FEWEST_ORDERS, min(ORDERS, MOST_DECISIONS // (n_tasks * len(SHARES))))


def worth_workers(n_tasks: int, orders: int, policy: str = "default") -> bool:
    """Return whether there are enough decisions to start more than one process.

    >>> worth_workers(5_000, 5), worth_workers(100_000, 5), worth_workers(5_000, 5, "tree")
    (False, True, True)
    """
    return n_tasks * len(SHARES) * orders * (SLOWER if has_embedding(policy) else 1) > MANY


def check_plannable(stream: TaskStream, policy: str) -> None:
    """Raise InvalidArgument, with the reason, if no plan can be made for a stream and policy."""
    if not is_learner(policy):
        meant = "" if policy in POLICIES else closest(policy, LEARNERS)
        raise InvalidArgument(f"A plan is for a learner: {', '.join(LEARNERS)}. Got {policy!r} instead.{meant}")
    if stream.costs.shape[2] > 1:
        raise InvalidArgument(f"A plan is for one resource. This world has {stream.costs.shape[2]}.")
    if not stream.complete:
        lost = np.isnan(stream.rewards).any(axis=1) | np.isnan(stream.costs).any(axis=(1, 2))
        complete = stream.n_tasks - int(lost.sum())
        advice = (
            "keep the complete rows, and plan on those"
            if complete >= FEWEST
            else (f"{complete:,} rows with a human outcome are too few to plan on, it takes some hundred")
        )
        raise InvalidArgument(
            "Planning needs to know what the human would have done on every row, and"
            f" {int(lost.sum()):,} of {stream.n_tasks:,} rows do not say: {advice}."
        )


def plan_trials(
    world: str,
    parameters: Mapping[str, Any],
    *,
    policy: str,
    seeds: Sequence[int],
    feedback: str = "full",
    free: bool = False,
    achievable: bool = False,
) -> list[Trial]:
    """Return the trials of a plan; where asking is `free`, no budget is the only one.

    `achievable`: with the achievable optimum, which is what the others are measured by then.

    >>> trials = plan_trials("synthetic", {"horizon": 50}, policy="default", seeds=[0])
    >>> len(trials), trials[0][0].policy, trials[0][0].budget
    (69, 'opt', 'inf')
    """
    budgets = [f"{share}%" for share in SHARES]
    beside = ("achievable",) if achievable else ()
    wanted = [(name, "inf") for name in ("opt", *beside)]
    wanted += [(name, text) for text in (["inf"] if free else budgets) for name in ("opt", policy, *beside, *RULES)]
    specs = [
        Spec.of(world, parameters, policy=name, budget=text, feedback=feedback) for name, text in dict.fromkeys(wanted)
    ]
    return [(spec, seed) for seed in seeds for spec in specs]


def rounds_of(trials: Sequence[Trial], n_tasks: int) -> list[list[Trial]]:
    """Return the trials in rounds of a few budgets each, which are done and kept one after the other.

    >>> trials = plan_trials("synthetic", {"horizon": 50}, policy="default", seeds=[0, 1])
    >>> [len(each) for each in rounds_of(trials, 50)], len(rounds_of(trials, 1_000_000))
    ([138], 5)
    """
    budgets = list(dict.fromkeys(spec.budget for spec, _ in trials))
    size = max(1, ROUND // n_tasks)
    parts = [set(budgets[start : start + size]) for start in range(0, len(budgets), size)]
    return [[trial for trial in trials if trial[0].budget in part] for part in parts]
