"""The simulation of the demo: users, office hours and the passing of time."""

import heapq
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from deferkit.cli.demo.tasks import DemoTasks
from deferkit.client.client import Client
from deferkit.errors import InvalidArgument
from deferkit.study.allowance import Allowance
from deferkit.study.optimum import Benchmark
from deferkit.types import MODEL, Budget, Decision
from deferkit.worlds import make_world
from deferkit.worlds.base import Follower

DAY_S = 60.0  # the shortest period that a budget can have
OFFICE_S = 8 / 24 * DAY_S  # a day begins when the office opens


def daily(budget: Budget, days: int) -> Budget:
    """Return a budget that is shared out over days; what a day does not use lapses.

    >>> daily(Budget(30, horizon=900, max_cost=2), days=3).total
    10.0
    """
    each = max(round(budget.total / days, 6), budget.max_cost_of("human") or 0.0)
    return replace(budget, total=each, horizon=None, every="1min", hold="auto")


def from_now(budget: Budget) -> Budget:
    """Return a budget whose first day begins now, if it has days."""
    return budget if budget.every is None else replace(budget, start=time.time())


def schedule(n_tasks: int, days: int) -> Callable[[int], float]:
    """Return a function from a task's place to its arrival in seconds: in office hours, most of them in the middle.

    >>> comes = schedule(n_tasks=90, days=3)
    >>> [round(comes(place), 1) for place in (0, 15, 29, 30, 89)]
    [0.0, 10.0, 18.9, 60.0, 138.9]
    """

    def comes(place: int) -> float:
        day, share = divmod(place * days / n_tasks, 1.0)
        evened = share - 0.5
        noon = 0.5 + evened * (0.6 + 1.6 * evened * evened)  # flat in the middle: tasks are close to each other there
        return DAY_S * day + OFFICE_S * noon

    return comes


WORLDS: dict[str, dict[str, Any]] = {"synthetic": {"link": "logistic", "scaled": True}, "knapsack": {}}
UNITS = {"synthetic": "minute", "knapsack": "unit"}
REWARDS = {"synthetic": "right answers", "knapsack": "reward"}
HUMAN = "human"


class Simulation(DemoTasks):
    """The tasks of a world with a budget; what is known of a task when it comes, and what comes of it.

    >>> simulation = Simulation("synthetic", tasks=100, budget="10%", seed=0)
    >>> simulation.n_tasks, simulation.budget.horizon, simulation.unit
    (100, 100, 'minute')
    >>> simulation.place_of(simulation.name_of(17))
    17
    """

    kind = "task"
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
        max_cost = math.ceil(10 * float(self.costs.max())) / 10
        self.budget = Budget.unlimited() if math.isinf(total) else Budget(round(total, 6), horizon=n, max_cost=max_cost)
        if days is not None and not math.isinf(total):
            self.budget = daily(self.budget, days)
        self.expected = stream.known()[0]  # [n, 2] what each decider earns, as far as somebody knows
        best = Benchmark(stream).at([total])[0]
        self.possible = np.cumsum((best * self.expected).sum(axis=1) - self.expected[:, 0])
        self._follower = None if stream.running is None else Follower(stream.contexts, stream.running)
        self._following = threading.Lock()

    def settings(self) -> dict[str, Any]:
        """Return the settings of the policy."""
        return {
            "features": self.stream.contexts.shape[1],
            "budget": {f"{self.unit}s": from_now(self.budget)},
            "link": self.stream.link,
            "lease_s": 60,
        }

    def context(self, place: int) -> list[float]:
        """Return the context of a task on its arrival."""
        if self._follower is None:
            known = self.stream.contexts[place]
        else:
            with self._following:
                known = self._follower.context(place).copy()
        return [float(value) for value in known]

    def payload(self, place: int) -> dict[str, str]:
        """Return the payload of a task for reviewers."""
        return {"text": f"{self.world} task {place}"}

    def model_answer(self, place: int) -> str:  # noqa: ARG002 - they are all alike
        """Return the answer of the model."""
        return "the model's answer"

    def answer(self, place: int, reviewer: str) -> str:  # noqa: ARG002
        """Return the answer of a reviewer."""
        return "a person's answer"

    def reward(self, place: int, decider: str) -> float:
        """Return the reward of a decider on a task."""
        return float(self.stream.rewards[place, int(decider != MODEL)])

    def record_review(self, place: int) -> None:
        """Record that a person has answered: how people did so far is part of the next context."""
        if self._follower is not None:
            with self._following:
                self._follower.record_answer(place, self.reward(place, HUMAN), self.cost(place))

    def gain(self, place: int) -> float:
        """Return the expected gain over the model from asking about a task."""
        return float(self.expected[place, 1] - self.expected[place, 0])


Tasks = TypeVar("Tasks", bound=DemoTasks)
CALLERS, TELLERS = 4, 2
LATE = (0.01, 0.08)  # of the time in which tasks come: then the model's reward becomes known
BUSY = 0.5  # the part of the time that reviewers are to be at work
MAX_REVIEW_S = 1.0  # of a task of mean cost
IDLE_S, SPARING_S = 0.1, 0.5
LEARN_FROM = 20  # reviews before any seat is spared: until it has learned a little, a policy asks few people at a time
CALL_S = 15.0  # for a call, with all its tries
WINDOW_S = 3.0  # for a rate


class SimulatedUsers(Generic[Tasks]):
    """Threads that call the service; each stops when told to, or when one of them fails.

    Args:
        simulation: The tasks.
        client: The policy that decides them.
        reviewers: Number of simulated people.
        seconds: In which all tasks come, evenly unless `schedule` says otherwise.
        seed: Of the pauses.
        schedule: When a task comes, by its place: seconds after the start.
        late_s: How long after a decision the model's reward becomes known: least and most; a share of `seconds` by
            default.
        spare_seats: Tasks that simulated reviewers leave to others.
    """

    def __init__(
        self,
        simulation: Tasks,
        client: Client,
        *,
        reviewers: int,
        seconds: float,
        seed: int,
        schedule: Callable[[int], float] | None = None,
        late_s: tuple[float, float] | None = None,
        spare_seats: int = 0,
    ) -> None:
        self.simulation, self.client = simulation, client
        self.decided = 0
        self.reviewed = 0
        self.told = 0  # rewards of the model
        self.reported_micros = 0  # what reviewers said that they cost
        self.gain = 0.0
        self.latest: dict[str, Decision] = {}  # by route
        self.failure: Exception | None = None
        self.began = time.monotonic()
        self._schedule = schedule or (lambda place: seconds * place / simulation.n_tasks)
        self._late_s = late_s or (LATE[0] * seconds, LATE[1] * seconds)
        self._spare_seats = spare_seats
        total = min(simulation.budget.total, float(simulation.costs.sum()))
        mean = float(simulation.costs.mean()) or 1.0
        self._review_s = min(BUSY * reviewers * seconds / max(total, mean), MAX_REVIEW_S / mean)  # a unit of cost
        self._next = iter(range(simulation.n_tasks))
        self._late: list[tuple[float, int]] = []
        self._random = random.Random(seed)
        self._recent: deque[float] = deque()
        self._turn = threading.Lock()
        self._stop = threading.Event()
        jobs: list[tuple[str, Callable[..., None], tuple[object, ...]]] = [
            *((f"caller-{i}", self._call, ()) for i in range(CALLERS)),
            *((f"teller-{i}", self._tell, ()) for i in range(TELLERS)),
            *((f"reviewer-{i + 1}", self._review, (f"reviewer-{i + 1}",)) for i in range(reviewers)),
        ]
        self._threads = [
            threading.Thread(target=self._play, args=(job, *given), name=name, daemon=True) for name, job, given in jobs
        ]

    def start(self) -> None:
        """Start the threads."""
        self.began = time.monotonic()
        for thread in self._threads:
            thread.start()

    @property
    def fed(self) -> bool:
        """Whether all tasks were decided."""
        return self.decided >= self.simulation.n_tasks

    def is_done(self, waiting: int) -> bool:
        """Return whether nothing is left to do, given the number of reviews that wait or are held."""
        return self.fed and waiting == 0 and self.told >= self.simulation.n_tasks

    def rate(self) -> float:
        """Return decisions a second over the last seconds."""
        now = time.monotonic()
        with self._turn:
            while self._recent and self._recent[0] < now - WINDOW_S:
                self._recent.popleft()
            return len(self._recent) / min(WINDOW_S, max(now - self.began, 0.1))

    def stop(self) -> None:
        """Stop, and wait for calls in flight."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(CALL_S + 1)

    def _play(self, job: Callable[..., None], *given: object) -> None:
        try:
            job(*given)
        except Exception as error:
            self.failure = self.failure or error
            self._stop.set()

    def _call(self) -> None:
        """Send tasks, evenly."""
        while not self._stop.is_set():
            with self._turn:
                place = next(self._next, None)
            if place is None:
                return
            at = self.began + self._schedule(place)
            if self._stop.wait(max(0.0, at - time.monotonic())):
                return
            decision = self.client.decide(
                self.simulation.context(place),
                task=self.simulation.name_of(place),
                payload=self.simulation.payload(place),
                model_answer=self.simulation.model_answer(place),
            )
            with self._turn:
                now = time.monotonic()
                self.decided += 1
                self._recent.append(now)
                self.latest[decision.route] = decision
                if decision.route == MODEL or not self.simulation.rewards_by_rule:
                    heapq.heappush(self._late, (now + self._random.uniform(*self._late_s), place))

    def _tell(self) -> None:
        """Report the rewards of the model's answers, with a delay."""
        while not self._stop.is_set():
            with self._turn:
                due = self._late and self._late[0][0] <= time.monotonic()
                place = heapq.heappop(self._late)[1] if due else None
            if place is None:
                self._stop.wait(IDLE_S)
                continue
            self.client.observe(self.simulation.name_of(place), {MODEL: self.simulation.reward(place, MODEL)})
            with self._turn:
                self.told += 1

    def _review(self, name: str) -> None:
        """Claim a task, take time, answer it."""
        while not self._stop.is_set():
            spare = self._spare_seats if self.reviewed >= LEARN_FROM else 0
            if spare and self.client.summary().waiting <= spare:
                self._stop.wait(SPARING_S)
                continue
            review = self.client.reviews.claim(name)
            if review is None:
                self._stop.wait(IDLE_S)
                continue
            place = self.simulation.place_of(review.task)
            cost = self.simulation.cost(place)
            if self._stop.wait(cost * self._review_s):
                self.client.reviews.release(review)
                return
            rewards = None if self.simulation.rewards_by_rule else {HUMAN: self.simulation.reward(place, HUMAN)}
            self.client.reviews.complete(review, self.simulation.answer(place, name), rewards=rewards, cost=cost)
            self.simulation.record_review(place)
            with self._turn:
                self.reviewed += 1
                self.reported_micros += round(cost * 1_000_000)
                self.gain += self.simulation.gain(place)
