"""The reference model of a policy whose budget renews, and whose reviews can be stopped.

Renewals happen with the first command after the end of a period, whether it is refused or not.
"""

from collections.abc import Callable

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from deferkit.serve.api.common import Reply
from deferkit.serve.api.reviews import ExtendBody
from deferkit.serve.api.tasks import HoldBody, StopBody
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.spec import BudgetPlan, BudgetSpec, PolicyChange, PolicySpec
from deferkit.serve.engine.commands.hold import ExtendHold, ExtendReview, StopReview
from deferkit.serve.engine.commands.policy import ChangePolicy
from deferkit.serve.engine.unit_of_work import Command
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import KEY
from tests.serve.harness.reference_model import Lease, Model, Refused, Task
from tests.serve.harness.service_machine import SPEC, ServiceMachine, micro, places, rewards, sixtyfourths

PERIOD = 600 * MICRO
CARRY = 0.5
HOLD, MOST = MICRO // 2, MICRO  # held for a review, and all that one may cost

TIMED_SPEC = msgspec.structs.replace(
    SPEC,
    budget={
        "cost": BudgetSpec(total=2, every="10min", start=0.0, carry=CARRY, max_cost=MOST / MICRO, hold=HOLD / MICRO)
    },
)


class TimedModel(Model):
    """The money of a budget that renews: the total is what was granted, without what lapsed."""

    def __init__(self, allowance: int, *, lease: int, deadline: int) -> None:
        super().__init__(0, lease=lease, deadline=deadline)
        self.allowance = allowance
        self.period: int | None = None
        self.first: dict[str, int] = {}  # what was held for a task at first
        self.stopped: set[str] = set()
        self.extended = 0

    def renew(self, now: int, *, begin: bool = False) -> None:
        """Begin all periods up to now; a task begins the first one."""
        if self.period is None and begin:
            self.period = now // PERIOD
            self.total += self.allowance
        while self.period is not None and self.period < now // PERIOD:
            free = self.account.free or 0
            kept = min(free, int(CARRY * self.allowance))
            self.total += self.allowance - (free - kept)
            self.period += 1

    def decide(self, name: str, route: str, held: int, seats: int, priority: float, now: int) -> None:
        self.first[name] = held
        super().decide(name, route, held, seats, priority, now)

    def open_task(self, name: str) -> Task:
        if name not in self.tasks:
            raise Refused(404)
        if self.tasks[name].state != "open":
            raise Refused(409)
        return self.tasks[name]

    def extend_hold(self, name: str, amount: int) -> int:
        """More is held for a task; return how much."""
        task, account = self.open_task(name), self.account
        free = 0 if account.suspense else account.free or 0
        granted = max(0, min(amount, free, MOST - task.held))
        task.held += granted
        self.extended += bool(granted)
        return granted

    def is_stopped(self, name: str) -> bool:
        task = self.tasks[name]
        return name in self.stopped or (task.route, task.state, task.final) == ("human", "posted", "model")

    def stop(self, name: str, given: dict[str, float], cost: int) -> None:
        """A review ends before it is done: the model's answer stands, unless others have answered."""
        if name in self.tasks and self.is_stopped(name):
            self.book(name, given, cost)
            return
        task = self.open_task(name)
        before, answered = task.final, any(seat.state == "done" for seat in task.seats)
        self.book(name, given, cost, ends=True)
        task.final = before or (task.route if answered else "model")
        self.stopped.add(name)

    def progress(self, lease: Lease, cost: int, now: int) -> bool:
        """A reviewer says what the review has cost so far; return whether it was stopped."""
        name, number, epoch = lease
        task = self.tasks[name]
        seat = task.seats[number]
        if self.is_stopped(name) and (seat.state, seat.epoch) == ("closed", epoch):
            return True
        self.held(lease)
        if task.state == "open":
            seat.cost = cost
            together = sum(each.cost or 0 for each in task.seats if each.state == "claimed")
            so_far = together + sum(each.cost or 0 for each in task.seats if each.state == "done")
            self.extend_hold(name, max(0, so_far + self.first[name] - task.held))
            if 0 < so_far >= task.held:
                self.stop(name, {}, together)
                return True
        seat.lease_until = now + self.lease
        return False


class TimedServiceMachine(ServiceMachine):
    """The machine with time, renewals, extensions, stops, and another allowance now and then."""

    model: TimedModel
    hold = HOLD

    def __init__(self, database: Database, now: Callable[[int | None], int], spec: PolicySpec = TIMED_SPEC) -> None:
        super().__init__(database, now, spec)
        self.model = TimedModel(2 * MICRO, lease=250 * MICRO, deadline=1030 * MICRO)
        into_period = PERIOD // 12  # in the middle of a step, whenever the examples before have ended
        self.clock.at = now(self.clock.at // PERIOD * PERIOD + PERIOD + into_period)

    def renew(self, at: int, *, begin: bool = False) -> None:
        self.model.renew(at, begin=begin)

    @rule(allowance=st.sampled_from([1.0, 1.5, 2.0, 3.25]))
    def change_allowance(self, allowance: float) -> None:
        change = PolicyChange(budget={"cost": BudgetPlan(allowance=allowance)})
        assert self.do(ChangePolicy(change)).status == 200
        self.model.allowance = int(allowance * MICRO)

    @rule(place=places, amount=sixtyfourths, again=st.booleans())
    def extend_hold(self, place: int, amount: float, again: bool) -> None:
        name = self.task(place)
        granted: list[int] = []
        command = ExtendHold(HoldBody(id=self.request(), task=name, amount=amount))
        reply = self.agree(command, lambda: granted.append(self.model.extend_hold(name, int(amount * MICRO))))
        if isinstance(reply, Reply):
            assert msgspec.json.decode(reply.body)["granted"] * MICRO == granted[0]
            self.keep(command, reply)
            if again:
                assert self.do(command) == reply

    @rule(place=places, given=rewards, cost=sixtyfourths, again=st.booleans())
    def stop(self, place: int, given: dict[str, float], cost: float, again: bool) -> None:
        name = self.task(place)
        command = StopReview(StopBody(task=name, cost=cost, rewards=given))
        reply = self.agree(command, lambda: self.model.stop(name, given, int(cost * MICRO)))
        if again and reply.status == 200:
            reply = self.do(command)
            assert isinstance(reply, Reply)
            assert not msgspec.json.decode(reply.body)["changed"]

    @precondition(lambda self: self.leases)
    @rule(place=places, cost=sixtyfourths)
    def progress(self, place: int, cost: float) -> None:
        lease, named = self.lease(place)
        told: list[bool] = []
        command = ExtendReview(ExtendBody(**named, cost=cost))
        reply = self.agree(command, lambda: told.append(self.model.progress(lease, micro(cost) or 0, self.clock.at)))
        if isinstance(reply, Reply):
            assert msgspec.json.decode(reply.body).get("stopped", False) == told[0]

    kinds = (*ServiceMachine.kinds, "stop", "extend hold", "progress")

    def one_of_several(
        self, kind: str, place: int, given: dict[str, float], cost: float | None, label: str
    ) -> tuple[Command, Callable[[], int | None]] | None:
        name, model, at = self.task(place), self.model, self.clock.at + 1
        leases = [each for each in self.leases if each[0] == name]
        paid = cost or 0.0
        amount = int(paid * MICRO)
        if kind == "stop":
            return StopReview(StopBody(task=name, cost=paid, rewards=given)), lambda: model.stop(name, given, amount)
        if kind == "extend hold":
            extension = ExtendHold(HoldBody(id=self.request(), task=name, amount=paid))
            return extension, lambda: model.extend_hold(name, amount) and None
        if kind == "progress":
            if not leases:
                return None
            lease = leases[-1]
            command = ExtendReview(ExtendBody(**self.named(lease), cost=paid))
            return command, lambda: model.progress(lease, amount, at) and None
        return super().one_of_several(kind, place, given, cost, label)

    @rule(costs=st.lists(st.sampled_from([0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=4))
    def work_on(self, costs: list[float]) -> None:
        """A reviewer claims, and says again and again what it has cost: by chance that seldom happens to one claim."""
        before = len(self.leases)
        self.claim("bo")
        if len(self.leases) > before:
            for cost in sorted(costs):
                self.progress(place=0, cost=cost)
                self.time_passes(1)

    @rule(steps=st.sampled_from([6, 60]))
    def periods_pass(self, steps: int) -> None:
        self.time_passes(steps)

    @invariant()
    def holds_are_counted(self) -> None:
        holds = self.engine.owned[KEY].policy.holds
        assert (holds.stopped, holds.extended) == (len(self.model.stopped), self.model.extended)
