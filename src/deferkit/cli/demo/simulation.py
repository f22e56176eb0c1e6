"""The simulated tasks of a demonstration: contexts, rewards of each decider, costs, a budget."""

import math
import threading
from typing import Any

import numpy as np

from deferkit.cli.demo.office_hours import daily, from_now
from deferkit.errors import InvalidArgument
from deferkit.study.allowance import Allowance
from deferkit.study.optimum import Benchmark
from deferkit.types import MODEL, Budget
from deferkit.worlds import make_world
from deferkit.worlds.running import Follower

WORLDS: dict[str, dict[str, Any]] = {"synthetic": {"link": "logistic", "scaled": True}, "knapsack": {}}
UNITS = {"synthetic": "minute", "knapsack": "unit"}
REWARDS = {"synthetic": "right answers", "knapsack": "reward"}
HUMAN = "human"


class Simulation:
    """The tasks of a world with a budget; what is known of a task when it comes, and what comes of it.

    >>> simulation = Simulation("synthetic", tasks=100, budget="10%", seed=0)
    >>> simulation.n_tasks, simulation.budget.horizon, simulation.unit
    (100, 100, 'minute')
    >>> simulation.place_of(simulation.name_of(17))
    17
    """

    rewards_by_rule = False

    def __init__(self, world: str, *, tasks: int, budget: str, seed: int, days: int | None = None) -> None:
        if world not in WORLDS:
            raise InvalidArgument(f"A demo is played in one of the worlds {', '.join(WORLDS)}. Got {world!r}.")
        allowance = Allowance.from_text(budget)
        more = {"horizon": tasks} if world == "synthetic" else {}
        whole = make_world(world, {**WORLDS[world], **more}).draw(seed)
        n = min(tasks, whole.n_tasks)
        self.stream = stream = whole._replace(
            contexts=whole.contexts[:n], rewards=whole.rewards[:n], costs=whole.costs[:n]
        )
        self.world, self.unit, self.gained_in = world, UNITS[world], REWARDS[world]
        self.n_tasks = n
        self.costs = stream.costs[:, 0, 0].round(6)
        total = allowance.total(stream)
        dearest = math.ceil(10 * float(self.costs.max())) / 10
        self.budget = Budget.unlimited() if math.isinf(total) else Budget(round(total, 6), horizon=n, max_cost=dearest)
        if days is not None and not math.isinf(total):
            self.budget = daily(self.budget, days)
        self.expected = stream.known()[0]  # [n, 2] what each decider earns, as far as somebody knows
        best = Benchmark(stream).at([total])[0]
        self.possible = np.cumsum((best * self.expected).sum(axis=1) - self.expected[:, 0])
        self._follower = None if stream.running is None else Follower(stream.contexts, stream.running)
        self._following = threading.Lock()

    def settings(self) -> dict[str, Any]:
        """Return what the policy is made with."""
        return {
            "features": self.stream.contexts.shape[1],
            "budget": {f"{self.unit}s": from_now(self.budget)},
            "link": self.stream.link,
            "lease_s": 60,
        }

    def name_of(self, place: int) -> str:
        """Return the id of a task."""
        return f"task-{place:05d}"

    def place_of(self, name: str) -> int:
        """Return which task has an id."""
        return int(name.removeprefix("task-"))

    def context(self, place: int) -> list[float]:
        """Return what is known of a task when it comes."""
        if self._follower is None:
            known = self.stream.contexts[place]
        else:
            with self._following:
                known = self._follower.context(place).copy()
        return [float(value) for value in known]

    def payload(self, place: int) -> dict[str, str]:
        """Return what a reviewer sees of a task."""
        return {"text": f"{self.world} task {place}"}

    def model_answer(self, place: int) -> str:  # noqa: ARG002 - they are all alike
        """Return what the model answers."""
        return "the model's answer"

    def answer(self, place: int, reviewer: str) -> str:  # noqa: ARG002
        """Return what a reviewer answers."""
        return "a person's answer"

    def reward(self, place: int, decider: str) -> float:
        """Return what a decider earns on a task."""
        return float(self.stream.rewards[place, int(decider != MODEL)])

    def cost(self, place: int) -> float:
        """Return what asking costs."""
        return float(self.costs[place])

    def reviewed(self, place: int) -> None:
        """Record that a person has answered: how people did so far is part of the next context."""
        if self._follower is not None:
            with self._following:
                self._follower.asked(place, self.reward(place, HUMAN), self.cost(place))

    def gain(self, place: int) -> float:
        """Return what asking about a task brings above the model, as it is to be expected."""
        return float(self.expected[place, 1] - self.expected[place, 0])
