"""Histories of policies: drawn from a seed, simulated in a known world, and audited after the fact."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from deferkit.serve.api.common import Reply
from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.reviews import ClaimBody, CompleteBody, EffortBody, LeaseBody
from deferkit.serve.api.tasks import CorrectionBody, OutcomeBody, TaskBody
from deferkit.serve.audit.counterfactual.estimate import DecisionLog
from deferkit.serve.domain import records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.rows import OPEN, PolicyRow
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.decide import Decide, propose
from deferkit.serve.engine.commands.lease import Claim, Release
from deferkit.serve.engine.commands.outcome import Observe, book, cost_of
from deferkit.serve.engine.commands.policy import ChangeBudget
from deferkit.serve.engine.commands.review import Complete, Effort
from deferkit.serve.engine.commands.upkeep import Expire, renew
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.recovery import apply_row, load_snapshot, next_record, recover, roll_forward
from deferkit.serve.engine.unit_of_work import Command, UnitOfWork
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import TOTAL, Crowd
from tests.serve.harness.in_process import KEY

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


class RandomHistory:
    """Draws commands from a seed: decisions, outcomes early and late, corrections, reviews, money."""

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


class SimulatedHistory(NamedTuple):
    """What a policy did in a world in which all rewards and costs are known."""

    log: list[records.AnyRecord]
    policy: Policy
    decision_log: DecisionLog
    reward: float  # of a task, on average
    times: list[int]  # of the records of the log, in microseconds

    def spent(self) -> float:
        return sum(each.posted for each in self.policy.accounts.values()) / 1e6


def spec_of(n: int, share: float, **given: Any) -> PolicySpec:
    """Return a policy for n tasks that may spend this share of what asking always costs."""
    budget = {"cost": BudgetSpec(total=round(0.5 * share * n, 6), horizon=n, max_cost=1)}
    return PolicySpec(**{"name": "p", "features": 3, "budget": budget, "explore_floor": 0.1, **given})


def simulate(
    spec: PolicySpec,
    world: World,
    *,
    delay: int = 0,
    feedback: str = "full",
    task: Callable[[int], dict[str, Any]] = lambda _: {},
    contexts: Sequence[Any] = (),
    every_s: float = 1e-6,
) -> SimulatedHistory:
    """Let a policy decide all tasks through the service's own commands; outcomes come `delay` decisions later.

    A task comes every `every_s` seconds.
    """
    given = contexts or world.contexts.tolist()
    work, owned = UnitOfWork(), OwnedPolicy(1, "default", Policy(spec), 1, 0)
    work.record(owned, records.CreatedRecord(spec=owned.policy.spec), 0)
    earned = 0.0
    routes: list[int] = []
    n = len(world.contexts)
    for t in range(n + delay):
        now = round(t * every_s * 1e6)
        renew(owned, work, now, begin=True)
        if t < n:
            key = (1, f"t{t}")
            work.decisions[key] = None
            Decide(TaskBody(task=key[1], context=given[t], **task(t))).run(owned, work, now)
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
            book(owned, work, now, row, seen, cost_of(owned, float(world.costs[s, route - 1]) if route else None))
    log = [records.decode(line.body) for line in work.log]
    decision_log = DecisionLog()
    for record in log:
        decision_log.see(record)
    return SimulatedHistory(log, owned.policy, decision_log, earned / n, [line.at for line in work.log])


def audit(database: Database, crowd: Crowd) -> int:
    """Check all that must hold of a store, given what clients were told; return how many decisions there are."""
    store = Store(database)
    row = store.policy(*KEY)
    assert row is not None
    tasks = check_log(store, row)
    check_decisions(store, row, tasks, crowd)
    check_money(store, row, tasks, crowd)
    check_state(store, row)
    return len(tasks)


def check_log(store: Store, row: PolicyRow) -> list[str]:
    """The log is one story: ids are contiguous, times do not go back, nothing is decided twice.

    And the random stream went on as if nothing had happened: a learner that is given the same tasks in the same order
    would decide the same, down to the last bit. Returns the tasks.
    """
    policy: Policy | None = None
    tasks: list[str] = []
    latest = 0
    for line in store.log(row.id):
        assert line.at >= latest, f"Time goes back at row {line.seq}."
        latest = line.at
        record = next_record(policy, row, line)
        if isinstance(record, records.DecidedRecord):
            assert policy is not None
            assert record.id == len(tasks), f"Decision {record.id} comes at the place of {len(tasks)}."
            tasks.append(record.task)
            body = TaskBody(task=record.task, context=record.context)
            event, owned = propose(OwnedPolicy(1, "", policy, 1, 0), body, line.at)
            assert event.decision == record.decision
            assert owned == record.held
            assert 0 < record.propensity <= 1
        policy = apply_row(policy, row, line, record, store)
    assert len(set(tasks)) == len(tasks)
    return tasks


def check_decisions(store: Store, row: PolicyRow, tasks: list[str], crowd: Crowd) -> None:
    """Every decision that was acknowledged is there, with the very same reply; what was logged is what was replied."""
    replies = {}
    for number, task in enumerate(tasks):
        decision = store.decision(row.id, task)
        assert decision is not None
        assert decision.id == number
        replies[task] = bytes(decision.reply)
        [first, *_] = store.log_of_task(row.id, task, 1)
        logged = msgspec.json.decode(first.body)
        said = msgspec.json.decode(decision.reply)
        assert {name: logged[name] for name in said} == said
    lost = [task for task in crowd.decisions if task not in replies]
    assert not lost, f"{len(lost)} acknowledged decisions are lost: {lost[:3]}"
    for task, reply in crowd.decisions.items():
        assert replies[task] == reply


def check_money(store: Store, row: PolicyRow, tasks: list[str], crowd: Crowd) -> None:
    """Every cost and every top-up is booked once; what is reserved is what open decisions hold."""
    account = store.budgets(row.id)["cost"]
    assert account.posted + account.suspense == crowd.spent
    assert account.total == TOTAL * 1_000_000 + crowd.topped_up
    found = [store.decision(row.id, task) for task in tasks]
    owned = [each.held["cost"] for each in found if each is not None and each.state == OPEN and each.held]
    assert account.reserved == sum(owned)
    assert account.reserved + account.posted <= account.total
    costs = [each.cost["cost"] for each in found if each is not None and each.cost is not None]
    assert sum(costs) == crowd.spent
    booked: Counter[str] = Counter()
    for line in store.log(row.id):
        record = records.decode(bytes(line.body))
        if isinstance(record, records.ObservedRecord) and record.cost is not None:
            booked[record.task] += 1
    assert set(booked.values()) <= {1}


def check_state(store: Store, row: PolicyRow) -> None:
    """A replay of the whole log gives what a start gives, bit for bit; so do the snapshots that are kept."""
    whole = roll_forward(store, row, None)
    assert recover(store, row).to_bytes() == whole.to_bytes()
    assert (whole.seq, whole.head) == (row.seq, bytes(row.head))
    for seq, data in store.snapshots(row.id):
        snapshot = load_snapshot(store, row, seq, data)
        assert snapshot is not None
        assert roll_forward(store, row, snapshot).to_bytes() == whole.to_bytes()


def check_last_snapshot(database: Database) -> None:
    """What a process had in memory when it stopped in order is what its log says, bit for bit."""
    store = Store(database)
    row = store.policy(*KEY)
    assert row is not None
    seq, data = next(store.snapshots(row.id))
    assert seq == row.seq
    assert data == roll_forward(store, row, None).to_bytes()
