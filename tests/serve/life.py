"""A policy's life as it may go, drawn from a seed: decisions, outcomes early and late, corrections, reviews, money."""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from deferkit.serve.domain.policy_spec import FeatureSpec, PolicySpec
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import (
    BudgetBody,
    ClaimBody,
    CompleteBody,
    CorrectionBody,
    EffortBody,
    LeaseBody,
    OutcomeBody,
    TaskBody,
)
from deferkit.serve.engine.commands.budget import ChangeBudget
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.expire import Expire
from deferkit.serve.engine.commands.lease import Claim, Release
from deferkit.serve.engine.commands.outcome import Correct, Observe
from deferkit.serve.engine.commands.review import Complete, Effort
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import Command
from tests.serve.playing import KEY

DOINGS = {
    "decide": 8,
    "observe": 6,
    "part": 2,
    "early": 1,
    "correct": 2,
    "expire": 1,
    "budget": 1,
    "claim": 3,
    "complete": 3,
    "effort": 1,
    "release": 1,
}


class Said(NamedTuple):
    """A command and its reply, or why there is none."""

    command: Command
    reply: Reply | Problem


class Life:
    """Draws the next command; remembers what may come of it."""

    def __init__(self, seed: int, spec: PolicySpec) -> None:
        self.rng = np.random.default_rng(seed)
        self.spec = spec
        self.decided = 0
        self.requests = 0
        self.leases: list[dict[str, Any]] = []

    async def step(self, engine: Engine) -> Said:
        """Do the next thing; what contradicts what is known is refused, and so is a cost of the model."""
        weights = np.array(list(DOINGS.values())) / sum(DOINGS.values())
        command: Command = getattr(self, "_" + str(self.rng.choice(list(DOINGS), p=weights)))()
        try:
            reply = await engine.submit(KEY, command)
        except Problem as problem:
            if problem.status not in (404, 409) and "there is no cost to book" not in str(problem):
                raise
            return Said(command, problem)
        if isinstance(command, Claim) and reply.status == 200:
            claimed = msgspec.json.decode(reply.body)
            self.leases.append({name: claimed[name] for name in ("task", "seat", "epoch", "token")})
        return Said(command, reply)

    def context(self) -> Any:
        """Return the features of a task."""
        features = self.spec.features
        if not isinstance(features, FeatureSpec):
            return self.rng.random(features).tolist()
        row: dict[str, Any] = {name: float(self.rng.normal()) for name in features.numbers}
        return row | {name: str(self.rng.choice(["a", "b", "c"])) for name in features.categories}

    def reward(self) -> float:
        """Return a reward."""
        return float(self.rng.integers(0, 2)) if self.spec.link == "logistic" else round(float(self.rng.random()), 3)

    def amount(self, most: float) -> Any:
        """Return a cost of at most so much, in each resource."""
        costs = {name: round(float(most * self.rng.random()), 6) for name in self.spec.resources}
        return costs if len(costs) > 1 else next(iter(costs.values()))

    def cost(self) -> Any:
        """Return a cost: one in five is more than was promised."""
        return self.amount(2.5 if self.rng.random() < 0.2 else 1.0)

    def _task(self) -> str:
        return f"t{self.rng.integers(max(0, self.decided - 12), max(1, self.decided))}"

    def _next(self) -> int:
        self.requests += 1
        return self.requests

    def _decide(self) -> Command:
        given: dict[str, Any] = {}
        draw = self.rng.random()
        if draw < 0.3:
            given["force"] = str(self.rng.choice(self.spec.experts))
        elif draw < 0.4:
            cost = self.amount(0.9)
            given["cost"] = cost if len(self.spec.experts) == 1 else dict.fromkeys(self.spec.experts, cost)
        elif draw < 0.5:
            given["reviewers"] = 2
        self.decided += 1
        return Decide(TaskBody(task=f"t{self.decided - 1}", context=self.context(), **given))

    def _observe(self) -> Command:
        rewards = {name: self.reward() for name in self.spec.deciders}
        return Observe(OutcomeBody(task=self._task(), rewards=rewards, cost=self.cost()))

    def _part(self) -> Command:
        rewards = {str(self.rng.choice(self.spec.deciders)): self.reward()}
        return Observe(OutcomeBody(task=self._task(), rewards=rewards))

    def _early(self) -> Command:
        return Observe(OutcomeBody(task=f"t{self.decided + 1}", rewards={"model": self.reward()}, cost=self.cost()))

    def _correct(self) -> Command:
        rewards = {"model": self.reward()} if self.rng.random() < 0.5 else {}
        cost = self.cost() if not rewards or self.rng.random() < 0.5 else None
        return Correct(CorrectionBody(id=f"c{self._next()}", task=self._task(), rewards=rewards, cost=cost))

    def _expire(self) -> Command:
        return Expire(self._task())

    def _budget(self) -> Command:
        amount = round(float(self.rng.uniform(-2, 3)), 6)
        bounded = [name for name, each in self.spec.budget.items() if each.total is not None]
        if not bounded:
            return Expire(self._task())
        return ChangeBudget(BudgetBody(id=f"b{self._next()}", add={str(self.rng.choice(bounded)): amount}))

    def _claim(self) -> Command:
        return Claim(ClaimBody(reviewer=str(self.rng.choice(["ann", "bo", "cy"]))))

    def _lease(self) -> dict[str, Any]:
        if not self.leases:
            return {"task": "t0", "seat": 0, "epoch": 1}
        return self.leases[int(self.rng.integers(max(0, len(self.leases) - 6), len(self.leases)))]

    def _complete(self) -> Command:
        rewards = {name: self.reward() for name in self.spec.deciders}
        cost = self.cost() if self.rng.random() < 0.7 else None
        return Complete(CompleteBody(**self._lease(), answer="spam", rewards=rewards, cost=cost))

    def _effort(self) -> Command:
        return Effort(EffortBody(**self._lease(), cost=self.amount(0.5)))

    def _release(self) -> Command:
        return Release(LeaseBody(**self._lease()))
