"""Trials on streams whose tasks come at times, or whose outcomes come late: renewing budgets, ends, holds.

Everybody is judged by expected rewards, against the best for someone who knows all tasks to come. Of simulated
tasks, two periods at the start of a renewing budget are not judged: when tasks come must have been seen.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.representation_text import representation_text
from deferkit.study.allowance import Allowance
from deferkit.study.optimum import best_shares, period_numbers
from deferkit.study.policy_registry import is_learner, make_learner, sure_cost, warm_started
from deferkit.study.spec import Spec
from deferkit.types import Budget
from deferkit.worlds.base import Floats, TaskStream

NOT_JUDGED = 2  # periods


def is_timed(stream: TaskStream, budget: str) -> bool:
    """Whether a trial is run here: a budget has a period, an end or a hold, or outcomes come late.

    Simulated tasks with times are run here whatever the budget, so that all of them are judged alike.
    """
    given = Allowance.from_text(budget)
    simulated = stream.times is not None and stream.truth is not None
    return stream.delay > 0 or simulated or given.is_timed or bool(given.hold)


def run_timed(spec: Spec, stream: TaskStream, seed: int) -> dict[str, Any]:
    """Return the outcome of a trial as a row of a table.

    Raises:
        InvalidArgument: If there are several experts or resources, or the policy is neither a learner nor
            "arbitrary-human" (which asks until the budget is empty), "model-only" or "opt".
    """
    if stream.costs.shape[1:] != (1, 1):
        raise InvalidArgument("Budgets with times are studied with one expert and one resource.")
    if not stream.complete:
        raise InvalidArgument("Budgets with a period, an end or a hold need a table in which every outcome is known.")
    budget = Allowance.from_text(spec.budget).budget(stream, sure_cost(stream))
    expected_rewards, expected_costs = stream.known()
    gains, costs = expected_rewards[:, 1] - expected_rewards[:, 0], expected_costs[:, 0, 0]
    periods = period_numbers(np.arange(float(stream.n_tasks)) if stream.times is None else stream.times, budget)
    judged = periods >= (NOT_JUDGED if budget.every is not None and stream.truth is not None else 0)
    best = best_shares(gains, costs, periods, budget)
    us, more, represented, remark = math.nan, {"stopped": 0.0, "overrun": 0.0}, None, None
    if is_learner(spec.policy):
        parameters = {**spec.policy_parameters, "budget": budget}
        learner = warm_started(make_learner(spec.policy, stream, [1.0], seed=seed, parameters=parameters), stream)
        begin = time.perf_counter()
        done, paid = run_late(learner, stream) if stream.delay else run_at_times(learner, stream, spec.feedback)
        us = (time.perf_counter() - begin) / stream.n_tasks * 1e6
        summary, represented = learner.summary(), representation_text(learner)
        remark = summary.remark
        more = {"stopped": float(summary.stopped), "overrun": float(summary.overrun)}  # type: ignore[arg-type]
    else:
        done = asked_by(spec.policy, stream, budget, periods, best)
        paid = np.where(done > 0, done * stream.costs[:, 0, 0], 0.0)
    allowed = budget.total * (len(np.unique(periods[judged])) if budget.every is not None else 1)
    top, model = float((best * gains)[judged].sum()), float(expected_rewards[judged, 0].sum())
    gained = float((done * gains)[judged].sum())
    return {
        "reward": model + gained,
        "pct_opt": 100 * (model + gained) / (model + top) if model + top > 0 else math.nan,
        "gain": 100 * gained / top if top > 0 else math.nan,
        "regret": top - gained,
        "spent": float(paid[judged].sum()),
        "spent_pct": 100 * float(paid[judged].sum()) / allowed if allowed else math.nan,
        "defer_rate": 100 * float((paid > 0)[judged].mean()),
        "us_per_step": us,
        "budget": float(budget.total),
        "opt": model + top,
        "model": model,
        "opt_price": math.nan,
        "opt_spent": float((best * costs)[judged].sum()),
        "gained_se": math.nan,
        "representation": represented,
        "remark": remark,
        **more,
    }


def asked_by(policy: str, stream: TaskStream, budget: Budget, periods: NDArray[np.int64], best: Floats) -> Floats:
    """Return the share of each task that a policy asks about, which does not learn."""
    if policy == "opt":
        return best
    if policy == "model-only":
        return np.zeros(stream.n_tasks)
    if policy != "arbitrary-human":
        raise InvalidArgument(f"The policy {policy!r} knows nothing of times and late outcomes.")
    asked, left, now = np.zeros(stream.n_tasks), float(budget.total), 0
    for task, cost in enumerate(stream.costs[:, 0, 0].tolist()):
        for _ in range(now, int(periods[task])):
            left = min(left, budget.carry * budget.total if budget.carry else 0.0) + budget.total
        now = int(periods[task])
        if left >= (budget.max_cost_of("human") or 0.0):
            asked[task] = 1.0
            left -= cost
    return asked


def run_at_times(learner: Deferrer, stream: TaskStream, feedback: str) -> tuple[Floats, Floats]:
    """Run a learner in the compiled loop; return which reviews were done [n], and what was paid."""
    rewards = {name: stream.rewards[:, i] for i, name in enumerate(learner.settings.deciders)}
    times = stream.times if learner.settings.is_timed else None
    run = learner.run(stream.contexts, rewards, stream.costs, feedback=feedback, at=times)
    stopped = run.costs[:, 0] < stream.costs[:, 0, 0]
    return np.where((run.routes > 0) & ~stopped, 1.0, 0.0), run.costs[:, 0]


def run_late(learner: Deferrer, stream: TaskStream) -> tuple[Floats, Floats]:
    """Run a learner that observes outcomes `delay` tasks late; return which reviews were done [n], and what was paid.

    A review that needs more than its hold extends it, or is stopped if nothing is left.
    """
    n = stream.n_tasks
    done, paid = np.zeros(n), np.zeros(n)
    holds: list[float | None] = []
    can_be_stopped = any(budget.can_be_stopped for budget in learner.settings.budget.values())
    for t in range(n + stream.delay + 1):
        task = t - stream.delay - 1
        if 0 <= task < n:
            model, human = stream.rewards[task].tolist()
            hold, cost = holds[task], float(stream.costs[task, 0, 0])
            if hold is None:
                learner.observe(task, {"model": model})
            elif (most := allowed_cost(learner, task, hold, cost, can_be_stopped)) < cost:
                learner.stop(task, most, {"model": model})
                paid[task] = most
            else:
                learner.observe(task, {"model": model, "human": human}, cost)
                done[task], paid[task] = 1.0, cost
        if t < n:
            decision = learner.decide(stream.contexts[t])
            holds.append(None if decision.route == "model" else first_of([decision.reserved]))
    return done, paid


def allowed_cost(learner: Deferrer, task: int, hold: float, cost: float, can_be_stopped: bool) -> float:
    """Return the cost that a review may reach: its hold and the extension that is granted."""
    if not can_be_stopped or cost <= hold:
        return cost
    needed = cost - hold
    granted = first_of([learner.extend(task, needed)])
    return cost if granted == needed else hold + granted


def first_of(amounts: Sequence[Any]) -> float:
    """Return the amount of the only resource."""
    return float(amounts[0])
