"""Does the same to the engine and to the reference model, in any order that hypothesis finds, and compares."""

import asyncio
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from deferkit.serve.api.common import Reply
from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.reviews import (
    AnswerCorrectionBody,
    ClaimBody,
    CompleteBody,
    DeclineBody,
    EffortBody,
    ExtendBody,
    LeaseBody,
    ResumeBody,
)
from deferkit.serve.api.tasks import CorrectionBody, OutcomeBody, TaskBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.review import FormField, MatchRule, ReviewDocument
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.domain.webhook import WebhookRow
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.lease import Claim, Decline, Extend, Release, Resume
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.policy import ChangeBudget
from deferkit.serve.engine.commands.review import Complete, CorrectAnswer, Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import EngineSettings
from deferkit.serve.engine.unit_of_work import Command
from deferkit.serve.export import HEADER, ledger_table
from deferkit.serve.reports.summary import summary_of
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.listing import QueuedSeat, page_of_queue
from deferkit.serve.storage.store import POLICY_TABLES
from tests.serve.harness.fault_injection import failing_connection
from tests.serve.harness.in_process import KEY, HandClock, abandon, check_booked, check_in_step, replayed, started
from tests.serve.harness.reference_model import MODEL_LABEL, Lease, Model, Refused

STEP = 100  # seconds; leases and deadlines end in the middle of a step

SPEC = PolicySpec(
    name="p",
    features=1,
    budget={"cost": BudgetSpec(total=2, horizon=1000, max_cost=1)},
    warm_up=5,
    explore_floor=0.3,
    lease_s=250.0,
    deadline_s=1030.0,
    review=ReviewDocument(
        form=[FormField(name="label", kind="text"), FormField(name="why", kind="text")], reward_rule=MatchRule()
    ),
)

TABLES = (*POLICY_TABLES, "policies")

WEBHOOK = WebhookRow("hook", KEY[0], "http://127.0.0.1:9/", "secret", "decided completed expired budget", None, 0, 0)

sixtyfourths = st.integers(0, 128).map(lambda n: n / 64)  # whole micro-units and exact as doubles, up to 2

costs = st.one_of(st.none(), sixtyfourths)

rewards = st.dictionaries(st.sampled_from(["model", "human"]), st.sampled_from([0.0, 0.5, 1.0]))

reviewers = st.sampled_from(["ann", "bo"])

labels = st.sampled_from([MODEL_LABEL, "b"])

places = st.integers(0, 1000)


def micro(cost: float | None) -> int | None:
    return None if cost is None else int(cost * MICRO)


class ServiceMachine(RuleBasedStateMachine):
    """Does the same to the engine and to the model, in any order that hypothesis finds, and compares."""

    hold = MICRO  # of a task whose cost is not known beforehand

    def __init__(self, database: Database, now: Callable[[int | None], int], spec: PolicySpec = SPEC) -> None:
        super().__init__()
        self.database = database
        self.now = now  # the time; moved when it is given one
        self.runner = asyncio.Runner()
        self.model = Model(2 * MICRO, lease=250 * MICRO, deadline=1030 * MICRO)
        self.replies: dict[str, tuple[TaskBody, Reply]] = {}
        self.leases: list[Lease] = []
        self.tokens: dict[Lease, str] = {}
        self.requests = 0
        self.done: list[tuple[Command, Reply | Problem]] = []  # under an idempotency key
        self.fails_at: int | None = None
        self.start(spec)
        self.engine.webhooks.store.add(WEBHOOK)
        self.runner.run(self.engine.webhooks.reload())

    # --- the engine -------------------------------------------------------------------------------------------------

    def start(self, spec: PolicySpec | None) -> None:
        self.engine = self.runner.run(
            started(
                self.database,
                spec=spec,
                settings=EngineSettings(tick_s=1e9, snapshot_every=15, max_clock_jump_s=0, group_s=60.0),
            )
        )
        self.clock = self.engine.ownership.clock = HandClock(self.engine)
        self.engine.webhooks._send = undelivered  # type: ignore[method-assign]

    def submit(self, command: Command) -> Reply | Problem:
        try:
            return self.runner.run(self.engine.submit(KEY, command))
        except Problem as problem:
            return problem

    def do(self, command: Command) -> Reply | Problem:
        """Have a command done; if its commit is to fail first, check that nothing has happened, and try again."""
        self.clock.at = self.now(self.clock.at + 1)
        self.renew(self.clock.at)
        if self.fails_at is not None:
            before = self.engine.owned[KEY].policy.to_bytes()
            with failing_connection(self.engine, self.fails_at):
                reply = self.submit(command)
            self.fails_at = None
            if reply.status != 503:
                return reply  # it took fewer calls than that
            assert self.engine.owned[KEY].policy.to_bytes() == before
        seq = self.engine.owned[KEY].policy.seq
        reply = self.submit(command)
        assert reply.status < 500, reply
        if isinstance(reply, Problem):  # nothing was changed, but for renewals that are due
            assert {row.kind for row in self.engine.store.log(self.engine.owned[KEY].id, seq)} <= {"renewed"}
        return reply

    def agree(self, command: Command, told: Callable[[], int | None]) -> Reply | Problem:
        """Do something to both; they must take or refuse it alike."""
        reply = self.do(command)
        self.compare(reply, told)
        return reply

    def compare(self, reply: Reply | Problem, told: Callable[[], int | None]) -> None:
        """Do to the model what was done to the engine, and compare the status."""
        try:
            wanted = told() or 200
        except Refused as refused:
            wanted = refused.status
        assert reply.status == wanted, (reply, wanted)

    def task(self, place: int) -> str:
        """Return the name of a task: one of those decided, or the next one."""
        names = [*self.model.tasks, f"t{len(self.model.tasks)}"]
        return names[-1 - place % min(len(names), 6 if place < 800 else len(names))]

    def request(self) -> str:
        self.requests += 1
        return f"r{self.requests}"

    def renew(self, at: int, *, begin: bool = False) -> None:
        """Let the model renew its budget up to a time; one with a horizon has nothing to renew."""

    # --- deciding ---------------------------------------------------------------------------------------------------

    @rule(force=st.booleans(), cost=costs, seats=st.integers(1, 2), x=st.sampled_from([-1.0, 0.0, 0.5, 1.0]))
    def decide(self, force: bool, cost: float | None, seats: int, x: float) -> None:
        cost = None if cost is None else min(cost, 1.0)
        name = f"t{len(self.model.tasks)}"
        body = TaskBody(
            task=name,
            context=[x],
            cost=cost,
            reviewers=seats,
            force="human" if force else None,
            payload=name,
            model_answer=MODEL_LABEL,
        )
        self.renew(self.clock.at + 1, begin=True)
        self.decided(body, self.do(Decide(body)))

    def decided(self, body: TaskBody, reply: Reply | Problem) -> None:
        """Compare a decision with what is possible, and tell the model of it."""
        name, force, seats = body.task, body.force is not None, body.reviewers or 1
        owned = self.hold if body.cost is None else int(body.cost * MICRO)  # type: ignore[operator]
        fits = self.model.fits(owned)
        if force and not fits:
            assert reply.status == 409
            return
        assert isinstance(reply, Reply)
        assert reply.status == 201
        told = msgspec.json.decode(reply.body)
        assert not force or (told["route"], told["reason"]) == ("human", "forced")
        # nothing is asked of a budget of nothing, whatever it would cost
        broke = (not fits or self.model.total == 0) and not force
        assert not broke or told["route"] == "model"
        assert not broke or told["reason"] == "budget" or owned == 0  # what is free may be not worth it either
        assert broke or told["reason"] != "budget"
        assert 0 < told["propensity"] <= 1
        worth = told["estimates"]["human"] - told["estimates"]["model"]
        self.model.decide(name, told["route"], owned, seats, worth, self.clock.at)
        self.replies[name] = (body, reply)

    @initialize(seats=st.integers(1, 2))
    def begin_with_open_tasks(self, seats: int) -> None:
        """All of the budget is reserved, and there is something to review."""
        self.decide(force=True, cost=None, seats=seats, x=0.5)
        self.decide(force=True, cost=None, seats=2, x=1.0)

    @rule(cost=st.sampled_from([None, 0.5]), seats=st.integers(1, 2))
    def ask(self, cost: float | None, seats: int) -> None:
        self.decide(force=True, cost=cost, seats=seats, x=0.5)

    @precondition(lambda self: self.replies)
    @rule(place=places, other=st.booleans())
    def decide_again(self, place: int, other: bool) -> None:
        name = list(self.replies)[place % len(self.replies)]
        body, reply = self.replies[name]
        if other:
            assert self.do(Decide(msgspec.structs.replace(body, payload="another"))).status == 409
        else:
            assert self.do(Decide(body)) == reply

    # --- what becomes known -----------------------------------------------------------------------------------------

    @rule(place=places, given=rewards, cost=costs)
    def observe(self, place: int, given: dict[str, float], cost: float | None) -> None:
        name = self.task(place)
        command = Observe(OutcomeBody(task=name, rewards=given, cost=cost))
        self.agree(command, lambda: self.model.observe(name, given, micro(cost)))
        assert self.engine.owned[KEY].parked == len(self.model.parked)

    @rule(place=places, given=rewards, cost=costs, again=st.booleans())
    def correct(self, place: int, given: dict[str, float], cost: float | None, again: bool) -> None:
        if not given and cost is None:
            return
        name = self.task(place)
        body = CorrectionBody(id=self.request(), task=name, rewards=given, cost=cost)
        reply = self.agree(Correct(body), lambda: self.model.correct(name, given, micro(cost)))
        self.keep(Correct(body), reply)
        if again and reply.status == 200:
            assert self.do(Correct(body)) == reply
            assert self.do(Correct(msgspec.structs.replace(body, cost=2.75))).status == 409

    @rule(place=places)
    def expire(self, place: int) -> None:
        name = self.task(place)
        reply = self.agree(Expire(name), lambda: self.model.expire(name))
        if isinstance(reply, Reply):
            assert msgspec.json.decode(reply.body)["final"] == self.model.tasks[name].final

    def keep(self, command: Command, reply: Reply | Problem) -> None:
        """Remember a command that was done once and for all."""
        if reply.status == 200:
            self.done.append((command, reply))

    @precondition(lambda self: self.done)
    @rule(place=places)
    def repeat(self, place: int) -> None:
        """Send something again, whatever has happened since."""
        command, reply = self.done[place % len(self.done)]
        assert self.do(command) == reply

    # --- several in one group ---------------------------------------------------------------------------------------

    kinds: tuple[str, ...] = ("observe", "correct", "expire", "complete", "correct answer", "effort")

    def one_of_several(  # noqa: PLR0911  one for each kind
        self, kind: str, place: int, given: dict[str, float], cost: float | None, label: str
    ) -> tuple[Command, Callable[[], int | None]] | None:
        """Return a command and what it does to the model; None if there is nothing to do it to."""
        name, model, why, at = self.task(place), self.model, self.request(), self.clock.at + 1
        leases = [each for each in self.leases if each[0] == name] or self.leases[-1:]
        lease = leases[place % len(leases)] if leases else None
        named = {} if lease is None else self.named(lease)
        answer = {"label": label, "why": why}
        match kind:
            case "observe":
                outcome = OutcomeBody(task=name, rewards=given, cost=cost)
                return Observe(outcome), lambda: model.observe(name, given, micro(cost))
            case "correct" if given or cost is not None:
                correction = CorrectionBody(id=why, task=name, rewards=given, cost=cost)
                return Correct(correction), lambda: model.correct(name, given, micro(cost))
            case "expire":
                return Expire(name), lambda: model.expire(name)
            case "complete" if lease is not None:
                done = Complete(CompleteBody(**named, answer=answer, rewards=given, cost=cost))
                return done, lambda: model.complete(lease, label, why, given, micro(cost), at)
            case "correct answer" if lease is not None:
                corrected = CorrectAnswer(AnswerCorrectionBody(**named, id=why, answer=answer, cost=cost))
                return corrected, lambda: model.correct_answer(lease, label, why, micro(cost))
            case "effort" if lease is not None:
                effort = Effort(EffortBody(**named, cost=cost or 0.0))
                return effort, lambda: model.effort(lease, micro(cost) or 0)
        return None

    @rule(
        place=places,
        wanted=st.lists(st.tuples(places, st.tuples(rewards, costs, labels)), min_size=2, max_size=4),
    )
    def together(self, place: int, wanted: list[tuple[int, tuple[dict[str, float], float | None, str]]]) -> None:
        """Send several commands, most of them about one task, at once: they are committed in one group."""
        kinds = self.kinds
        found = [self.one_of_several(kinds[n % len(kinds)], place, *given) for n, given in wanted]
        several = [each for each in found if each is not None]
        if not several or self.engine.owned[KEY].policy.spec.representation == "auto":
            return  # some would wait for a fit while others go on
        self.clock.at = self.now(self.clock.at + 1)
        self.renew(self.clock.at)

        async def send() -> list[Reply | BaseException]:
            calls = [self.engine.submit(KEY, command) for command, _ in several]
            return await asyncio.gather(*calls, return_exceptions=True)

        groups = self.engine.groups
        replies = self.runner.run(send())
        assert self.engine.groups > groups  # one more, unless something in the background took the first command alone
        for (_, told), reply in zip(several, replies, strict=True):
            assert isinstance(reply, (Reply, Problem)), reply
            self.compare(reply, told)

    # --- reviewing --------------------------------------------------------------------------------------------------

    @rule(reviewer=reviewers)
    def claim(self, reviewer: str) -> None:
        reply = self.do(Claim(ClaimBody(reviewer=reviewer)))
        wanted = self.model.claimable(reviewer, self.clock.at)
        assert isinstance(reply, Reply)
        assert reply.status == (200 if wanted else 204)
        if wanted:
            told = msgspec.json.decode(reply.body)
            assert (told["task"], told["seat"]) in wanted
            assert told["epoch"] == self.model.claim(told["task"], told["seat"], reviewer, self.clock.at)
            assert told["payload"] == told["task"]
            self.leases.append((told["task"], told["seat"], told["epoch"]))
            self.tokens[self.leases[-1]] = told["token"]

    @rule(slow=reviewers)
    def overtake(self, slow: str) -> None:
        """A reviewer takes too long, and another one is offered the task."""
        self.claim(slow)
        self.time_passes(3)
        self.claim("bo" if slow == "ann" else "ann")

    def lease(self, place: int) -> tuple[Lease, dict[str, Any]]:
        lease = self.leases[-1 - place % min(len(self.leases), 3)]
        return lease, self.named(lease)

    def named(self, lease: Lease) -> dict[str, Any]:
        return dict(zip(("task", "seat", "epoch", "token"), (*lease, self.tokens[lease]), strict=True))

    @precondition(lambda self: self.leases)
    @rule(place=places, label=labels, given=rewards, cost=costs, again=st.booleans())
    def complete(self, place: int, label: str, given: dict[str, float], cost: float | None, again: bool) -> None:
        lease, named = self.lease(place)
        answer = {"label": label, "why": (why := self.request())}
        body = CompleteBody(**named, answer=answer, rewards=given, cost=cost)
        reply = self.agree(
            Complete(body), lambda: self.model.complete(lease, label, why, given, micro(cost), self.clock.at)
        )
        self.keep(Complete(body), reply)
        if isinstance(reply, Reply):
            task, told = self.model.tasks[lease[0]], msgspec.json.decode(reply.body)
            assert told["finished"] == (task.final is not None)
            assert told["booked"] == (None if task.cost is None else task.cost / MICRO)
        if again and reply.status == 200:
            assert self.do(Complete(body)) == reply  # the other tab
            another = msgspec.structs.replace(body, answer=answer | {"why": "another"})
            assert self.do(Complete(another)).status == 409

    @precondition(lambda self: self.leases)
    @rule(place=places, label=labels, cost=costs, again=st.booleans())
    def correct_answer(self, place: int, label: str, cost: float | None, again: bool) -> None:
        lease, named = self.lease(place)
        why = self.request()
        body = AnswerCorrectionBody(**named, id=why, answer={"label": label, "why": why}, cost=cost)
        command = CorrectAnswer(body)
        reply = self.agree(command, lambda: self.model.correct_answer(lease, label, why, micro(cost)))
        self.keep(command, reply)
        if isinstance(reply, Reply):
            task, told = self.model.tasks[lease[0]], msgspec.json.decode(reply.body)
            assert (told["finished"], told["rewards"]) == (task.final is not None, task.rewards)
            assert told["cost"] == (None if task.cost is None else task.cost / MICRO)
        if again and reply.status == 200:
            assert self.do(command) == reply
            assert self.do(CorrectAnswer(msgspec.structs.replace(body, cost=2.75))).status == 409

    @rule(first=labels, then=labels, cost=costs)
    def answer_and_think_again(self, first: str, then: str, cost: float | None) -> None:
        """A reviewer answers, and corrects it: by chance both seldom happen to one claim."""
        before = len(self.leases)
        self.claim("ann")
        if len(self.leases) > before:
            self.complete(place=0, label=first, given={}, cost=0.5, again=False)
            self.correct_answer(place=0, label=then, cost=cost, again=True)

    @precondition(lambda self: self.leases)
    @rule(place=places, cost=sixtyfourths, again=st.booleans())
    def effort(self, place: int, cost: float, again: bool) -> None:
        lease, named = self.lease(place)
        body = EffortBody(**named, cost=cost)
        reply = self.agree(Effort(body), lambda: self.model.effort(lease, int(cost * MICRO)))
        if again and reply.status == 200:
            assert self.do(Effort(body)) == reply
            assert self.do(Effort(msgspec.structs.replace(body, cost=2.75))).status == 409

    @precondition(lambda self: self.leases)
    @rule(place=places)
    def extend(self, place: int) -> None:
        lease, named = self.lease(place)
        self.agree(Extend(ExtendBody(**named)), lambda: self.model.extend(lease, self.clock.at))

    @precondition(lambda self: self.leases)
    @rule(place=places)
    def release(self, place: int) -> None:
        lease, named = self.lease(place)
        self.agree(Release(LeaseBody(**named)), lambda: self.model.release(lease))

    @precondition(lambda self: self.leases)
    @rule(place=places, again=st.booleans())
    def decline(self, place: int, again: bool) -> None:
        lease, named = self.lease(place)
        command = Decline(DeclineBody(**named, reason="no"))
        reply = self.agree(command, lambda: self.model.decline(lease))
        if again and reply.status == 200:
            assert self.do(command) == reply

    @precondition(lambda self: self.leases)
    @rule(place=places, reviewer=reviewers)
    def resume(self, place: int, reviewer: str) -> None:
        lease, named = self.lease(place)
        command = Resume(ResumeBody(reviewer=reviewer, task=lease[0], seat=lease[1]))
        reply = self.agree(command, lambda: self.model.resume(lease, reviewer, self.clock.at))
        if isinstance(reply, Reply) and reply.status == 200:
            told = msgspec.json.decode(reply.body)
            resumed = (told["task"], told["seat"], told["epoch"])
            assert resumed in self.tokens
            self.tokens[resumed] = told["token"]
            if resumed == lease:
                assert self.do(Extend(ExtendBody(**named))).status == 403  # the token before is worth nothing

    # --- budget, time, trouble --------------------------------------------------------------------------------------

    @rule(amount=st.integers(-96, 96), again=st.booleans())
    def change_budget(self, amount: int, again: bool) -> None:
        self.renew(self.clock.at + 1)
        body = BudgetBody(id=self.request(), add=amount / 64)
        total = self.model.total + amount * MICRO // 64
        reply = self.agree(ChangeBudget(body), lambda: self.model.change(total))
        self.keep(ChangeBudget(body), reply)
        if again and reply.status == 200:
            assert self.do(ChangeBudget(body)) == reply

    @rule(steps=st.sampled_from([1, 3, 3, 11]))
    def time_passes(self, steps: int) -> None:
        self.clock.at = self.now(self.clock.at + steps * STEP * MICRO)

    @rule()
    def reap(self) -> None:
        if self.model.overdue(self.clock.at):
            self.renew(self.clock.at)
        self.runner.run(self.engine.maintenance.reap())
        for name in self.model.overdue(self.clock.at):
            self.model.expire(name)

    @rule(dies=st.booleans())
    def restart(self, dies: bool) -> None:
        before = self.engine.owned[KEY].policy.to_bytes()
        self.runner.run(abandon(self.engine) if dies else self.engine.stop())
        self.start(None)
        assert self.engine.owned[KEY].policy.to_bytes() == before
        self.model.restarted(self.clock.at)

    @rule(nth=st.integers(1, 12))
    def let_the_next_commit_fail(self, nth: int) -> None:
        self.fails_at = nth

    # --- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def money_is_where_the_model_has_it(self) -> None:
        owned = self.engine.owned[KEY]
        assert owned.policy.accounts["cost"] == self.model.account
        assert self.engine.store.budgets(owned.id) == {"cost": self.model.account}
        check_in_step(owned.policy)

    @invariant()
    def tasks_and_seats_are_as_the_model_has_them(self) -> None:
        store, number = self.engine.store, self.engine.owned[KEY].id
        for name, task in self.model.tasks.items():
            row = store.decision(number, name)
            assert row is not None
            assert (row.route, row.state, row.rewards, row.final) == (task.route, task.state, task.rewards, task.final)
            assert row.cost == (None if task.cost is None else {"cost": task.cost})
            assert row.state != "open" or row.held == {"cost": task.held}
            used = None if row.answer is None else msgspec.json.decode(row.answer)
            assert used == (None if task.answer is None else dict(zip(("label", "why"), task.answer, strict=True)))
            seats = store.seats(number, name)
            assert [(s.state, s.epoch, s.reviewer) for s in seats] == [
                (s.state, s.epoch, s.reviewer) for s in task.seats
            ]
            for seat, wanted in zip(seats, task.seats, strict=True):  # a restart takes a moment of real time
                assert seat.state != "claimed" or abs(seat.lease_until - wanted.lease_until) < STEP * MICRO / 4
            costs = [None if s.cost is None else {"cost": s.cost} for s in task.seats]
            assert [s.cost for s in seats] == costs
            holders = [seat.reviewer for seat in seats if seat.state in ("claimed", "done")]
            assert len(holders) == len(set(holders))
            for claim in store.claims(number, name):
                paid = self.model.efforts[name, claim.seat, claim.epoch]
                assert claim.effort == (None if paid is None else {"cost": paid})

    @invariant()
    def the_summary_counts_what_there_is(self) -> None:
        owned, tasks = self.engine.owned[KEY], self.model.tasks.values()
        shown = summary_of(owned, self.engine.store.queue(owned.id), self.clock.at)
        states = [seat.state for task in tasks for seat in task.seats]
        assert (shown.queue.waiting, shown.queue.claimed) == (states.count("waiting"), states.count("claimed"))
        assert (shown.decisions, shown.parked) == (len(tasks), len(self.model.parked))
        assert shown.pending == sum(task.state == "open" for task in tasks)
        assert shown.expired == sum("expired" in task.events for task in tasks)
        assert shown.frozen == bool(self.model.account.suspense)

    @invariant()
    def the_queue_is_listed_in_the_order_in_which_it_is_offered(self) -> None:
        found: list[QueuedSeat] = []
        while len(found) % 2 == 0:
            after = found[-1].cursor if found else ""
            page = page_of_queue(self.database, self.engine.owned[KEY].id, ["waiting", "claimed"], after, 2)
            found += page
            if not page:
                break
        assert [(each.task, each.seat) for each in found] == self.model.queue()

    def check_events(self) -> None:
        """Each event was written for webhooks once, in the order in which it happened to its task."""
        rows = self.engine.webhooks.store.deliveries(WEBHOOK.id, 10_000)
        told = [(body["seq"], row.event, body["data"]) for row in rows if (body := msgspec.json.decode(row.body))]
        for name, task in self.model.tasks.items():
            events = [event for _, event, data in sorted(told, key=lambda each: each[0]) if data.get("task") == name]
            assert events == task.events

    def check_ledger(self) -> None:
        """The last row of the table of the ledger is the account, and its columns add up to that."""
        rows = [
            dict(zip(HEADER, row, strict=True)) for row in ledger_table(self.engine.store, self.engine.owned[KEY].id)
        ]
        sums = {name: sum(Fraction(str(row[name] or 0)) * MICRO for row in rows) for name in HEADER[5:10]}
        account = self.model.account
        assert sums["held"] - sums["released"] == account.reserved
        assert sums["cost"] == account.posted + account.suspense
        assert sums["granted"] - sums["lapsed"] == account.total

    def teardown(self) -> None:
        try:
            assert replayed(self.engine.store) == self.engine.owned[KEY].policy
            assert replay(self.engine.store, *KEY).faults == []
            check_booked(self.engine)
            self.check_events()
            self.check_ledger()
        finally:
            self.runner.run(self.engine.stop())
            self.runner.close()
            wipe(self.database)


async def undelivered() -> None:
    """Leave events where they are written."""


def wipe(database: Database) -> None:
    """Make the database as good as new."""
    connection: Any = database.writer()
    connection.begin()
    for table in TABLES:
        connection.execute(f"DELETE FROM {table}")
    connection.commit()
    connection.close()
