"""A policy in memory: its learner and its accounts, changed only by records."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from deferkit import events
from deferkit.errors import DeferkitError, UnreadableState
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.settings import NOVEMBER_2026
from deferkit.learn.state import StateCopy
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MAX_AMOUNT, MICRO, Account, Micros, from_micros
from deferkit.serve.domain.books import Books, Periods, book_record, due_renewals, open_accounts, schedule_of
from deferkit.serve.domain.feature_scales import Context, FeatureScales
from deferkit.serve.domain.policy_learner import learner_of, load_libraries
from deferkit.serve.domain.records import AnyRecord
from deferkit.serve.domain.spec import PolicySpec
from deferkit.types import MODEL, Amount


class Tally(msgspec.Struct, kw_only=True):
    """Counters of a policy that are not the learner's."""

    expected_gain: float = 0.0  # Σ of what experts were expected to earn above the model, when they were asked
    outcomes: int = 0
    late: int = 0  # outcomes that were booked but not learned
    corrected: int = 0
    expired: int = 0


class HoldTally(msgspec.Struct, kw_only=True):
    """Counters of reviews that can be stopped."""

    extended: int = 0  # times that more was reserved
    stopped: int = 0  # reviews
    overruns: int = 0  # reviews that have cost more than was held for them
    overrun: Micros = {}  # what they have cost beyond that


class Relearned(msgspec.Struct, kw_only=True):
    """Counts of before the last reset, and the forgotten decisions."""

    decisions: int = 0  # before the last reset; the learner numbers its own from there on
    routes: dict[str, int] = {}  # of those
    without_budget: int = 0  # of those
    pending: int = 0  # of those that still hold budget
    forgotten: list[int] = []  # decisions whose outcomes are excluded from learning
    releases: bool = False  # as the latest `ForgottenRecord` says


class Counts(NamedTuple):
    """Decisions of a policy, over all resets of its learner."""

    decisions: int
    routes: dict[str, int]
    without_budget: int
    pending: int

    @property
    def asked(self) -> int:
        """How many decisions went to an expert."""
        return self.decisions - self.routes.get(MODEL, 0)

    @property
    def deferral_rate(self) -> float:
        """The share of decisions that went to an expert."""
        return 1 - self.routes.get(MODEL, 0) / self.decisions if self.decisions else 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The serialised fields of a policy; `Policy.to_bytes` adds a checksum."""

    spec: PolicySpec
    seq: int
    head: bytes
    apart: bool  # `Policy.out_of_sync`
    accounts: dict[str, Account]
    tally: Tally
    learner: bytes
    unconfirmed: dict[str, Micros] | msgspec.UnsetType = msgspec.UNSET
    scales: FeatureScales | msgspec.UnsetType = msgspec.UNSET
    relearned: Relearned | msgspec.UnsetType = msgspec.UNSET
    periods: Periods | msgspec.UnsetType = msgspec.UNSET
    holds: HoldTally | msgspec.UnsetType = msgspec.UNSET


class PolicyCopy(NamedTuple):
    """An immutable copy of a policy, which another thread may serialise."""

    snapshot: Snapshot  # without the learner
    learner: StateCopy

    def to_bytes(self) -> bytes:
        """Serialise the copy in the format of `Policy.to_bytes`."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self.snapshot, learner=self.learner.to_bytes()))


SMALL_STATE = 8_000_000  # bytes of a learner's arrays that are made or compressed at once: a tenth of a second
NOTHING = 1e-200  # a total that has no price, like 0, but with which an expert may be asked for nothing
PASSED_TOLD = 300  # empty periods for one step of the learner each: less than 1e-40 is left of older ones by then
LONG_STEP = 20_000_000  # multiplications of one observation: a fiftieth of a second


LearnedEvent: TypeAlias = events.Observed | events.Corrected | events.Stopped


class Policy:
    """The state of a policy: the fold of `apply` over its records.

    >>> from deferkit.serve.domain.spec import BudgetSpec
    >>> spec = PolicySpec(name="a", features=2, budget={"cost": BudgetSpec(total=10, horizon=100, max_cost=1)})
    >>> policy = Policy(spec)
    >>> body = policy.append(records.CreatedRecord(spec=spec), at=0)
    >>> policy.seq, policy.accounts["cost"].free
    (1, 10000000)
    >>> Policy.from_bytes(policy.to_bytes()) == policy
    True
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, spec: PolicySpec, *, forgotten: Iterable[int] = (), releases: bool = False) -> None:
        self.spec = spec = msgspec.json.decode(msgspec.json.encode(spec), type=PolicySpec)  # as the log gives it back
        self.learner = learner_of(spec)
        self.is_timed = spec.is_timed
        self.accounts = open_accounts(spec)
        self.periods: Periods = {}  # of budgets that renew or have an end, since the first task
        self.scales = FeatureScales.of(spec)  # None: outliers are kept
        self.seq = 0  # records so far
        self.head = records.START
        self.out_of_sync = False  # the learner's spending differs from the accounts: a cost was clamped or not learned
        self.tally = Tally()
        self.holds = HoldTally()
        self.unconfirmed: dict[str, Micros] = {}  # reported costs above the ceiling by task, not booked, not learned
        self.relearned = Relearned(forgotten=sorted(forgotten), releases=releases)
        self.deferred: list[Callable[[], None]] = []  # steps of the learner that `learn_deferred` is to run
        self._defers = False
        self._undecided: int | None = None  # the decision that is among the deferred steps
        # of the latest decision that is not forgotten; only a rebuild from the start of the log needs it
        self._last_context: Context = [0.0] * spec.features if isinstance(spec.features, int) else {}

    def append(self, record: AnyRecord, at: int, *, defer: bool = False) -> bytes:
        """Apply a new record; return the bytes that the log keeps of it.

        Args:
            record: What happened.
            at: When, in microseconds.
            defer: Whether a step of the learner that may take long is left to `learn_deferred`. Until that has run, the
                policy decides nothing and no record may follow but those of the same command. False by default.
        """
        body = records.encode(record)
        self._defers = defer and (bool(self.deferred) or self._takes_long(record))
        try:
            self.take(record, at, body)
        finally:
            self._defers = False
        return body

    def learn_deferred(self) -> None:
        """Run the steps of the learner that were deferred, in their order; in any thread."""
        while self.deferred:
            self.deferred[0]()
            del self.deferred[0]
        self._undecided = None

    def _takes_long(self, record: AnyRecord) -> bool:
        if isinstance(record, records.DecidedRecord):
            return (step := self.learner.longest_step()) > 0 and step > LONG_STEP
        if isinstance(record, records.ObservedRecord | records.CorrectedRecord):
            rewards = record.rewards if isinstance(record, records.ObservedRecord) else record.learned
            own = self._own_id(record.id)
            return self.remembers(record.id) and self.learner.longest_step(own, rewards) > LONG_STEP
        return isinstance(record, records.ResetRecord) and self.learner.n_bytes > SMALL_STATE

    def _learn(self, step: Callable[[], None]) -> None:
        """Run a step of the learner, or defer it."""
        if self._defers:
            self.deferred.append(step)
        else:
            step()

    def take(self, record: AnyRecord, at: int, body: bytes) -> None:
        """Apply a record whose bytes are known."""
        self.apply(record, at)
        self.head = records.link(self.head, self.seq, at, body)
        self.seq += 1

    def apply(self, record: AnyRecord, at: int = 0) -> None:
        """Apply a record and its time in the log to the state. Equal records give equal states, bit for bit."""
        match record:
            case records.DecidedRecord():
                self._apply_decision(record, at)
            case records.ObservedRecord():
                self._apply_outcome(record)
            case records.ExtendedRecord():
                self.accounts = book_record(self.accounts, record)
                self.holds.extended += 1
                self._learn(partial(self._extend, record))
            case records.ExpiredRecord():
                self._apply_expiry(record)
            case records.CorrectedRecord():
                self._apply_correction(record)
            case records.EffortRecord():
                self.accounts = book_record(self.accounts, record)
                self._learn(self._resync_budget)
            case records.BudgetChangedRecord():
                self.accounts, self.periods = self.books.after(record)
                self._learn(self._apply_budget_change)
            case records.RenewedRecord(resource=name):
                ended = self.periods.get(name)
                self.accounts, self.periods = self.books.after(record)
                if ended is not None and record.passed:
                    self._learn(partial(self._pass_periods, name, ended.end, record.passed))
                self._learn(partial(self._begin_period, name))
            case records.ChangedRecord():
                # a policy that is rebuilt after an upgrade has its new rule from the start on
                changed = record.spec.learning_as(self.spec)
                before, self.periods, self.spec = self.spec, self.books.after(record).periods, changed
                if before.budget != record.spec.budget:
                    self._learn(partial(self._replan, before))
            case records.ResetRecord():
                self._learn(self._reset)
            case records.ForgottenRecord():
                if record.id not in self.relearned.forgotten:  # it takes the log to leave the outcome out
                    raise DeferkitError(f"The policy was not rebuilt without the outcome of decision {record.id}.")
            case _:
                pass

    def fits(self, held: Micros) -> bool:
        """Whether these amounts may be reserved."""
        return all(self.accounts[name].fits(amount) for name, amount in held.items())

    @property
    def books(self) -> Books:
        """The accounts, and the current period of each that has begun one."""
        return Books(self.accounts, self.periods)

    def can_learn_hold(self, held: Micros) -> bool:
        """Whether these amounts are also free by the rounded sums of the learner."""
        left = self._by_resource(self.learner.figures().left)
        return all(micro / MICRO <= left[name] for name, micro in held.items())

    def books_at(self, now: int) -> Books:
        """Return the books as of a time in microseconds, without a change of the policy."""
        books = self.books
        if self.is_timed:
            decisions = self.counts().decisions
            for record in due_renewals(self.spec, books, now / MICRO, decisions=decisions, begin=True):
                books = books.after(record)
        return books

    @property
    def frozen(self) -> bool:
        """Whether a cost is in suspense, so that no expert is asked."""
        return any(account.suspense for account in self.accounts.values())

    def task_time(self, at: int) -> float | None:
        """Return the learner's time of a task, in microseconds; None where tasks have no time."""
        return at / MICRO if self.is_timed else None

    def _apply_decision(self, record: records.DecidedRecord, at: int) -> None:
        decision = record.decision
        if self.relearned.decisions:
            decision = decision._replace(id=self._own_id(record.id))
        context = self._remembered_context(record)
        plausible = context if self.scales is None else self.scales.clip(context)[0]  # it is, unless the learner cuts
        if not self.spec.learner_cuts_outliers:
            context = plausible
        event = events.Decided(decision, context, self.task_time(at))
        if self._defers:
            self.learner.check_decision(event)
            self._undecided = record.id
        if self.relearned.forgotten and record.held is not None:
            self._learn(partial(self._make_room, decision.reserved))
        self._learn(partial(self._tell, event))
        if self.scales is not None:
            self.scales.see(plausible, record.clipped)
        if record.held is not None:
            self.accounts = book_record(self.accounts, record)
            self.tally.expected_gain += record.expected_gain

    def _remembered_context(self, record: records.DecidedRecord) -> Context:
        """Return the context that the learner remembers of a decision; of a forgotten one, that of the one before it.

        So no value of a forgotten context stays in rank tables, training sets or scales. Policies with the rule of
        November 2026 keep it: they have always forgotten the outcome alone.
        """
        if record.id in self.relearned.forgotten and self.spec.defaults_used != NOVEMBER_2026:
            return self._last_context
        if self.relearned.forgotten:
            self._last_context = record.context
        return record.context

    def _apply_outcome(self, record: records.ObservedRecord) -> None:
        owed = self.frozen
        told = None if record.told is None else from_micros(record.told)
        own = self._own_id(record.id)
        event: LearnedEvent = events.Observed(own, record.rewards, told)
        if record.stopped and told is not None:
            event = events.Stopped(own, told, record.rewards)
        learned = record.learned and record.id not in self.relearned.forgotten
        if learned and self._defers and record.id != self._undecided:  # what it refuses must not get into the log
            self.learner.check_observation(own, record.rewards, told)
        self.accounts = book_record(self.accounts, record)
        self._count_stop(record)
        if learned:
            self._learn(partial(self._tell, event))
        elif record.released is not None:
            self._learn(partial(self._expire, record.id))
        if record.confirms:
            self.unconfirmed.pop(record.task, None)
        else:
            self.tally.outcomes += 1
        if record.unconfirmed is not None:
            self.unconfirmed[record.task] = record.unconfirmed
        self.tally.late += not record.learned
        if record.cost != (record.told if learned else None) or owed or self.frozen:
            self._learn(self._resync_budget)

    def _count_stop(self, record: records.ObservedRecord) -> None:
        """Count a review that was stopped, or has cost more than was held for it."""
        self.holds.stopped += record.stopped and not record.confirms  # counted when it was stopped
        if record.cost is None or record.released is None:
            return
        beyond = {
            name: micro - record.released.get(name, 0)
            for name, micro in record.cost.items()
            if self.spec.budget[name].can_be_stopped and micro > record.released.get(name, 0)
        }
        self.holds.overruns += bool(beyond)
        for name, micro in beyond.items():
            self.holds.overrun = {**self.holds.overrun, name: self.holds.overrun.get(name, 0) + micro}

    def _extend(self, record: records.ExtendedRecord) -> None:
        """Extend the hold of a decision in the learner; for a decision older than the reset, only the total changes."""
        if (own := self._own_id(record.id)) < 0 or not self.learner.remembers(own):
            self._resync_budget()
            return
        left = self._by_resource(self.learner.figures().left)
        amounts = {name: min(record.amount.get(name, 0) / MICRO, max(left[name], 0.0)) for name in self.accounts}
        self.learner.apply(events.Extended(own, self._amount(amounts)))

    def _apply_expiry(self, record: records.ExpiredRecord) -> None:
        owed = self.frozen
        self.accounts = book_record(self.accounts, record)
        self.tally.expired += 1
        known = record.id >= self.relearned.decisions
        self._learn(partial(self._expire_if_remembered, record.id))
        if owed or not known:
            self._learn(self._resync_budget)

    def _apply_correction(self, record: records.CorrectedRecord) -> None:
        self.accounts = book_record(self.accounts, record)
        if (record.learned or record.told is not None) and record.id not in self.relearned.forgotten:
            told = None if record.told is None else from_micros(record.told)
            event = events.Corrected(self._own_id(record.id), record.learned, told)
            self._learn(partial(self._tell, event))
        self.tally.corrected += 1
        if record.cost is not None:
            self._learn(self._resync_budget)

    def _tell(self, event: events.Event) -> None:
        self.learner.apply(event, warn=False)  # a service has a summary to say it in, and threads share filters

    def _own_id(self, number: int) -> int:
        """Return the learner's id of a decision, which counts from the last reset."""
        return number - self.relearned.decisions

    def remembers(self, number: int) -> bool:
        """Whether the learner remembers a decision, so that it can learn its outcome."""
        own = self._own_id(number)
        known = number == self._undecided or self.learner.remembers(own)
        return own >= 0 and number not in self.relearned.forgotten and known

    def remembers_settled(self, number: int) -> bool:
        """Whether the learner will remember a decision after the deferred steps, which may book its cost.

        It remembers the latest `memory` decisions, and of those before them only such that hold budget.
        """
        own, summary = self._own_id(number), self.learner.figures()
        latest = own >= max(0, summary.decisions - self.learner.settings.memory)
        return latest and number not in self.relearned.forgotten

    def _make_room(self, reserved: Amount) -> None:
        """Give a rebuilt learner room for a decision of the log that its own sums refuse.

        They are sums of other numbers than those of the learner that decided, so that they differ from them by
        rounding. The account decides whether a decision fits; half a micro-unit is below all that it knows.
        """
        held, figures = self._by_resource(reserved), self.learner.figures()
        left, totals = self._by_resource(figures.left), self._by_resource(figures.total)
        if any(held[name] > left[name] or totals[name] <= 0 for name in held):
            self._resync_budget(held)

    def _expire_if_remembered(self, number: int) -> None:
        own, before = self._own_id(number), self.relearned
        kept = before.releases and number in before.forgotten and own >= 0 and self.learner.remembers(own)
        if kept or self.remembers(number) or own < 0:
            self._expire(number)

    def _expire(self, number: int) -> None:
        """Release a reservation of the learner; a decision older than the reset is only counted."""
        if (own := self._own_id(number)) >= 0:
            self.learner.apply(events.Expired(own))
        else:
            self.relearned.pending -= 1

    def counts(self) -> Counts:
        """Return the number of decisions over all resets of the learner."""
        learned, before = self.learner.figures(), self.relearned
        routes = {name: n + before.routes.get(name, 0) for name, n in learned.routes.items()}
        return Counts(
            before.decisions + learned.decisions,
            routes,
            before.without_budget + learned.without_budget,
            before.pending + learned.pending,
        )

    def _begin_period(self, name: str) -> None:
        """Begin the current period of a resource in the learner, with the free amount."""
        period = self.periods[name]
        self.learner.apply(events.Renewed(name, period.start, period.end, self._total_of_period(name)))

    def _pass_periods(self, name: str, start: float, n: int) -> None:
        """Begin and end so many periods without a task in the learner, the first of which begins at `start`.

        Each takes a part of what it knows of periods before. After `PASSED_TOLD` of them nothing of that is left, so
        that the others count as one.
        """
        schedule, last = schedule_of(self.spec.budget[name]), self.periods[name].start
        skipped, begun = schedule.latest(start, last, n - PASSED_TOLD)
        total = self._total_of_period(name)
        if skipped:
            self.learner.apply(events.Renewed(name, start, begun, total))
        while begun < last:
            end = schedule.following(begun)
            self.learner.apply(events.Renewed(name, begun, end, total))
            begun = end

    def _total_of_period(self, name: str) -> float:
        """Return the learner's total of a resource with the free amount of its account."""
        spent, reserved = self._usage()
        return (self.accounts[name].free or 0) / MICRO + spent[name] + reserved[name]

    def _reset(self) -> None:
        counts = self.counts()
        self.relearned = Relearned(
            decisions=counts.decisions,
            routes=counts.routes,
            without_budget=counts.without_budget,
            pending=counts.pending,
            forgotten=self.relearned.forgotten,
            releases=self.relearned.releases,
        )
        self._new_learner()

    def _new_learner(self) -> None:
        """Replace the learner by a new one with the free budgets."""
        left = {
            name: msgspec.structs.replace(each, horizon=self._own_horizon(each.horizon))
            if each.horizon is not None
            else each
            for name, each in self.spec.budget.items()
        }
        self.learner = learner_of(msgspec.structs.replace(self.spec, budget=left))
        for name in self.periods:
            self._begin_period(name)
        self._resync_budget()

    def _own_horizon(self, horizon: int) -> int:
        """Return a horizon as the learner counts it: from its reset."""
        return max(1, horizon - self.relearned.decisions)

    def _replan(self, before: PolicySpec) -> None:
        """Apply a changed horizon, end or allowance to the learner."""
        changed = {name: each for name, each in self.spec.budget.items() if each != before.budget[name]}
        if not self.learner.figures().decisions:  # nothing is learned yet, and it takes no other end before a task
            self._new_learner()
            return
        horizons = {name: self._own_horizon(each.horizon) for name, each in changed.items() if each.horizon is not None}
        ends = {name: each.until for name, each in changed.items() if each.until is not msgspec.UNSET}
        allowances = {name: each.total for name, each in changed.items() if each.every is not msgspec.UNSET}
        total = self.learner.figures().total
        self.learner.apply(events.BudgetChanged(total, horizons or None, ends or None, allowances or None))  # type: ignore[arg-type]

    def _apply_budget_change(self) -> None:
        spent, reserved = self._usage()
        amounts = {n: float("inf") if a.total is None else a.total / MICRO for n, a in self.accounts.items()}
        if self.out_of_sync or any(amount < spent[name] + reserved[name] for name, amount in amounts.items()):
            self._resync_budget()  # the learner's rounded sum may exceed what the account has used
        else:
            self.learner.apply(events.BudgetChanged(self._amount(amounts)))

    def clamp_cost(self, cost: Micros) -> Micros:
        """Return the learner's value of a cost: clamped to the cost bounds (`max_cost`)."""
        caps = dict(zip(self.spec.resources, self.learner.settings.cost_bounds, strict=True))
        return {name: min(micro, round(min(caps[name][1], MAX_AMOUNT) * MICRO)) for name, micro in cost.items()}

    def exceeds_ceiling(self, cost: Micros) -> bool:
        """Whether a reported cost is above the `max_reported_cost` of a resource and needs a confirmation."""
        for name, micro in cost.items():
            ceiling = self.spec.budget[name].max_reported_cost
            if ceiling is not msgspec.UNSET and ceiling is not None and micro > round(ceiling * MICRO):
                return True
        return False

    def _resync_budget(self, held: Mapping[str, float] | None = None) -> None:
        """Set the learner's total so that its free budget matches the accounts; its own sums are out of sync.

        Args:
            held: What a decision of the log reserves, which must fit in the learner's sums if it fits in the account.
        """
        self.out_of_sync = True
        spent, reserved = self._usage()
        totals = {}
        for name, account in self.accounts.items():
            free = account.free
            totals[name] = float("inf") if free is None else free / MICRO + spent[name] + reserved[name]
            if held is not None and free is not None and held[name] <= (free + 0.5) / MICRO:
                totals[name] = max(totals[name], NOTHING)
                while totals[name] - spent[name] - reserved[name] < held[name]:
                    totals[name] = math.nextafter(totals[name], math.inf)
        self.learner.apply(events.BudgetChanged(self._amount(totals)))

    def _usage(self) -> tuple[dict[str, float], dict[str, float]]:
        summary = self.learner.figures()
        return self._by_resource(summary.spent), self._by_resource(summary.reserved)

    def _amount(self, by_resource: dict[str, float]) -> Amount:
        return next(iter(by_resource.values())) if len(by_resource) == 1 else by_resource

    def _by_resource(self, amount: Amount) -> dict[str, float]:
        return dict(amount) if not isinstance(amount, float) else {self.spec.resources[0]: amount}

    def has_ended(self, now: int) -> bool:
        """Whether the end of a budget has passed at a time in microseconds."""
        if not self.is_timed:
            return False
        ends = [each.until for each in self.spec.budget.values() if each.until is not msgspec.UNSET]
        return now / MICRO >= min(ends, default=float("inf"))

    def to_bytes(self) -> bytes:
        """Serialise the policy: plain data and the learner's state, no code."""
        return msgspec.msgpack.encode(self._snapshot(self.learner.to_bytes()))

    def copy(self) -> PolicyCopy:
        """Return a copy that another thread may serialise while this policy changes."""
        rest = msgspec.msgpack.decode(msgspec.msgpack.encode(self._snapshot(b"")), type=Snapshot)
        return PolicyCopy(rest, self.learner.copy_state())

    def _snapshot(self, learner: bytes) -> Snapshot:
        return Snapshot(
            spec=self.spec,
            seq=self.seq,
            head=self.head,
            apart=self.out_of_sync,
            accounts=dict(self.accounts),
            tally=self.tally,
            learner=learner,
            unconfirmed=self.unconfirmed or msgspec.UNSET,
            scales=msgspec.UNSET if self.scales is None else self.scales,
            relearned=msgspec.UNSET if self.relearned == Relearned() else self.relearned,
            periods=self.periods or msgspec.UNSET,
            holds=msgspec.UNSET if self.holds == HoldTally() else self.holds,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "Policy":
        """Deserialise a policy from `to_bytes()`."""
        try:
            saved = msgspec.msgpack.decode(data, type=Snapshot)
        except msgspec.MsgspecError as error:
            raise UnreadableState(f"The snapshot does not hold a policy ({error}).") from error
        policy = cls.__new__(cls)
        policy.spec, policy.seq, policy.head, policy.out_of_sync = saved.spec, saved.seq, saved.head, saved.apart
        policy.is_timed = saved.spec.is_timed
        policy.accounts = saved.accounts
        policy.tally = saved.tally
        policy.unconfirmed = saved.unconfirmed or {}
        policy.scales = None if saved.scales is msgspec.UNSET else saved.scales
        policy.relearned = Relearned() if saved.relearned is msgspec.UNSET else saved.relearned
        policy.periods = saved.periods or {}
        policy.holds = HoldTally() if saved.holds is msgspec.UNSET else saved.holds
        policy.deferred, policy._defers, policy._undecided, policy._last_context = [], False, None, []
        load_libraries(saved.spec)
        policy.learner = Deferrer.from_bytes(saved.learner)
        return policy

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Policy) and self.to_bytes() == other.to_bytes()
