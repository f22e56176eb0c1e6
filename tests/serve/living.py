"""A policy that lives through tasks of which everything is known, in memory: what was, and what would have been."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve.audit.counterfactual.logged_decisions import DecisionLog
from deferkit.serve.domain import log_records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_spec import BudgetSpec, PolicySpec
from deferkit.serve.domain.request_bodies import TaskBody
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.outcome import book, cost_of
from deferkit.serve.engine.unit_of_work import UnitOfWork

Floats = NDArray[np.float64]


class World(NamedTuple):
    """Tasks with what every decider would bring and cost."""

    contexts: Floats  # [n, d]
    rewards: Floats  # [n, K]
    costs: Floats  # [n, K − 1]

    @classmethod
    def draw(cls, seed: int, n: int, *, experts: int = 1, bent: float = 0.0, noise: float = 0.15) -> "World":
        """Draw tasks; `bent` is how far rewards are from linear."""
        rng = np.random.default_rng(seed)
        contexts = np.column_stack([np.ones(n), rng.random((n, 2))]).round(3)
        x, z = contexts[:, 1], contexts[:, 2]
        means = [0.3 + 0.5 * x - bent * (x - 0.5) ** 2]
        means += [0.75 - 0.15 * x + 0.1 * k * z + bent * (z - 0.5) ** 2 for k in range(experts)]
        rewards = np.column_stack(means) + noise * rng.uniform(-1.5, 1.5, (n, experts + 1))
        costs = (0.2 + 0.5 * z)[:, None] + 0.1 * rng.random((n, experts))
        return cls(contexts, rewards.clip(0, 1).round(4), costs.round(4))


class Life(NamedTuple):
    """What a policy did in a world."""

    log: list[log_records.AnyRecord]
    policy: Policy
    decision_log: DecisionLog
    reward: float  # of a task, on average

    def spent(self) -> float:
        return sum(each.posted for each in self.policy.accounts.values()) / 1e6


def spec_of(n: int, share: float, **given: Any) -> PolicySpec:
    """Return a policy for n tasks that may spend this share of what asking always costs."""
    budget = {"cost": BudgetSpec(total=round(0.5 * share * n, 6), horizon=n, max_cost=1)}
    return PolicySpec(**{"name": "p", "features": 3, "budget": budget, "explore_floor": 0.1, **given})


def live(
    spec: PolicySpec,
    world: World,
    *,
    delay: int = 0,
    feedback: str = "full",
    task: Callable[[int], dict[str, Any]] = lambda _: {},
    contexts: Sequence[Any] = (),
) -> Life:
    """Let a policy decide all tasks through the service's own commands; outcomes come `delay` decisions later."""
    given = contexts or world.contexts.tolist()
    work, owned = UnitOfWork(), OwnedPolicy(1, "default", Policy(spec), 1, 0)
    work.record(owned, log_records.CreatedRecord(spec=owned.policy.spec), 0)
    earned = 0.0
    routes: list[int] = []
    n = len(world.contexts)
    for t in range(n + delay):
        if t < n:
            key = (1, f"t{t}")
            work.decisions[key] = None
            Decide(TaskBody(task=key[1], context=given[t], **task(t))).run(owned, work, t)
            row = work.decisions[key]
            assert row is not None
            routes.append(spec.deciders.index(row.route))
            earned += world.rewards[t, routes[t]]
        if (s := t - delay) >= 0:
            row, route = work.decisions[1, f"t{s}"], routes[s]
            assert row is not None
            seen = {spec.deciders[route]: float(world.rewards[s, route])}
            if feedback == "full":
                seen["model"] = float(world.rewards[s, 0])
            if feedback == "reviewed":
                seen = seen | {"model": float(world.rewards[s, 0])} if route else {}
            if feedback == "none":
                seen = {}
            book(owned, work, t, row, seen, cost_of(owned, float(world.costs[s, route - 1]) if route else None))
    log = [log_records.decode(line.body) for line in work.log]
    decision_log = DecisionLog()
    for record in log:
        decision_log.see(record)
    return Life(log, owned.policy, decision_log, earned / n)
