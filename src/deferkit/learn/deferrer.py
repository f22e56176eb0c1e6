"""The learner: decides who decides, learns from what comes back, and never overspends."""

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deferkit.errors import (
    AssumptionWarning,
    BudgetExhausted,
    ConflictingObservation,
    EventOutOfOrder,
    HorizonWarning,
    InvalidArgument,
    UnreadableState,
    expected,
)
from deferkit.events import BudgetChanged, Corrected, Decided, Event, Expired, Observed, WarmStarted
from deferkit.learn import inputs, state
from deferkit.learn.arrays import (
    ENCODING,
    HORIZON_TOLD,
    N_BUDGET,
    N_EXPIRED,
    N_FORCED,
    NEXT_ID,
    WARM_UP,
)
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import Exploration
from deferkit.learn.ledger import Ledger
from deferkit.learn.loop import (
    FEEDBACKS,
    absorb_many,
    commit_one,
    correct_one,
    decide_many,
    expire_one,
    first_bad,
    observe_one,
    propose_many,
    record_length,
    run_many,
)
from deferkit.learn.pacing import Pacing
from deferkit.learn.records import Records
from deferkit.learn.settings import Settings
from deferkit.learn.steps import OPEN
from deferkit.types import MODEL, REASONS, Amount, Budget, Decision, Run, Scores, Summary, is_number, show

CHUNK = 8_192  # tasks that `run` streams between two reports of progress
SETTLE_AFTER = 16  # rows, at least, that an encoder sees before its scales are frozen


class Deferrer:
    """Decides, task by task, whether the model or an expert decides.

    >>> import numpy as np
    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1), seed=1)
    >>> decision = deferrer.decide([0.6, 0.8])
    >>> decision.route, decision.reason, decision.propensity
    ('human', 'warm-up', 0.5)
    >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.4)
    >>> deferrer.summary().spent
    0.4

    A `Deferrer` is not thread-safe: one thread at a time.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        *,
        n_features: int | None = None,
        encoder: Encoder | None = None,
        budget: Budget | Mapping[str, Budget] | None = None,
        experts: Sequence[str] = ("human",),
        link: str = "identity",
        cost_link: str = "identity",
        pacing: str | Pacing = "resolve",
        exploration: float | Exploration | None = None,
        ridge: float | None = None,
        warm_up: int | None = None,
        explore_floor: float = 0.0,
        reward_range: tuple[float, float] = (0.0, 1.0),
        refit: str = "doubling",
        memory: int = 10_000,
        seed: int = 0,
    ) -> None:
        if (n_features is None) == (encoder is None):
            raise expected("n_features", "Deferrer", "given, or else an encoder", n_features)
        if budget is None:
            budget = Budget.unlimited()
        if isinstance(experts, str):
            raise expected("experts", "Deferrer", "a list of names", experts)
        if exploration is None:
            exploration = Exploration()
        elif not isinstance(exploration, Exploration):
            exploration = Exploration(scale=exploration)
        settings = Settings(
            n_features=encoder.n_features if encoder is not None else cast(int, n_features),
            budget=dict(budget) if isinstance(budget, Mapping) else {"cost": budget},
            experts=tuple(experts),
            link=link,
            cost_link=cost_link,
            pacing=pacing if isinstance(pacing, Pacing) else Pacing(kind=pacing),
            exploration=exploration,
            ridge=ridge,
            warm_up=warm_up,
            explore_floor=explore_floor,
            reward_range=reward_range,
            refit=refit,
            memory=memory,
            seed=seed,
        )
        self._set_up(settings, settings.ledger(), encoder)

    def _set_up(self, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> None:
        self.settings = settings
        self._ledger = ledger
        self._encoder = None if encoder is None else Encoder.from_dict(encoder.to_dict())
        self._rows: list[dict[str, Any]] = []  # what the encoder saw before its scales settled
        if encoder is not None and ledger.next_id == 0:
            ledger.ints[ENCODING] = 1
        self._records = Records(settings.experts, settings.resources)
        self._everyone = (1 << len(settings.experts)) - 1
        self._places = {name: place for place, name in enumerate(settings.deciders)}
        self._reward_bounds = settings.reward_bounds
        self._cost_bounds = settings.cost_bounds
        self._x = np.zeros((1, settings.n_features))
        self._row = self._x[0]
        self._row_shape = self._row.shape
        self._record = np.zeros((1, record_length(len(settings.experts), len(settings.budget))))
        self._record_row = self._record[0]
        self._amounts = np.zeros((2, len(settings.budget)))
        self._unknown_reward = [math.nan] * len(settings.deciders)
        self._unknown_cost = [math.nan] * len(settings.budget)
        self._end = min((b.horizon or math.inf) for b in settings.budget.values())

    @classmethod
    def paper(
        cls,
        *,
        n_features: int,
        budget: Budget,
        experts: Sequence[str] = ("human",),
        link: str = "identity",
        noise: float = 0.1,
        delta: float = 0.05,
        kappa: float = 1.0,
        warm_up: int = 100,
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: int = 0,
    ) -> "Deferrer":
        """Return Algorithm 1 exactly as printed, for comparison; κ = 1 for the logistic link too.

        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     deferrer = Deferrer.paper(n_features=20, budget=Budget(8_000, horizon=50_000, max_cost=3))
        >>> print(caught[0].message)
        The paper's guarantee asks for B > √d·T^¾ = 14,953; the budget of 8,000 is smaller.
        """
        if not isinstance(budget, Budget):
            raise expected("budget", "Deferrer.paper", "one Budget", budget)
        settings = Settings(
            n_features=n_features,
            budget={"cost": budget},
            experts=tuple(experts),
            link=link,
            cost_link=link,
            pacing=Pacing(kind="paper"),
            exploration=Exploration.printed(noise=noise, delta=delta, kappa=kappa),
            ridge=1e-6,
            warm_up=warm_up,
            reward_range=reward_range,
            refit="always",
            seed=seed,
            printed_costs=True,
            weighted=False,
        )
        least = math.sqrt(n_features) * (budget.horizon or 0) ** 0.75
        if budget.total < least:
            warnings.warn(
                f"The paper's guarantee asks for B > √d·T^¾ = {least:,.0f};"
                f" the budget of {budget.total:,.0f} is smaller.",
                AssumptionWarning,
                stacklevel=2,
            )
        return cls._of(settings, settings.ledger(), None)

    @classmethod
    def _of(cls, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> "Deferrer":
        deferrer = cls.__new__(cls)
        deferrer._set_up(settings, ledger, encoder)
        return deferrer

    # -- deciding --------------------------------------------------------------------------------------------

    def propose(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
    ) -> Decided:
        """Return what `decide` would do, as an event that `apply` takes; change nothing.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> event = deferrer.propose([1.0], force="human")
        >>> event == deferrer.propose([1.0], force="human")
        True
        >>> deferrer.apply(event)
        >>> deferrer.summary().reserved
        1.0
        """
        ledger = self._ledger
        kept = self._load(context)
        self._check_finite()
        mask = self._mask(available)
        forced = -1 if force is None else inputs.place_of(force, self.settings.deciders, "decider")
        if cost is not None:
            known = inputs.as_known_costs(cost, self.settings.experts, self.settings.resources)
            for (low, high), each in zip(self._cost_bounds, known.T, strict=True):
                inputs.check_range("cost", each, low, high, missing=True)
            ledger.known[:] = known
        try:
            propose_many(ledger.floats, ledger.ints, self._x, mask, forced, self._record)
        finally:
            ledger.known[:] = math.nan
        decision = self._records.decision(ledger.next_id, self._record_row.tolist())
        if forced > 0:
            self._check_free(decision)
        return Decided(decision, kept)

    def decide(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
    ) -> Decision:
        """Decide who decides a task, and reserve what it may cost.

        `cost` if it is known beforehand (by expert if there are several), `available` if only some experts are on duty,
        `force` for a route that the caller prescribes: it spends and teaches, but is not the policy's choice.

        >>> deferrer = Deferrer(n_features=1, experts=["ann", "bo"], budget=Budget(10, horizon=100, max_cost=1))
        >>> print(deferrer.decide([1.0], force="bo").explain())
        Task 0 goes to bo, because the caller said so.
        >>> deferrer.decide([1.0], available=[]).reason
        'unavailable'
        """
        if cost is None and available is None and force is None and self._encoder is None:
            ledger = self._ledger
            self._load(context)
            number = ledger.ints.item(NEXT_ID)
            ledger.make_room(1)
            if decide_many(ledger.floats, ledger.ints, self._x, self._everyone, self._record) >= 0:
                raise self._not_finite()
            if number >= self._end:
                self._tell_horizon()
            return self._records.decision(number, self._record_row.tolist())
        event = self.propose(context, cost=cost, available=available, force=force)
        self._apply_decided(event)
        return event.decision

    def decide_many(self, contexts: Any) -> list[Decision]:
        """Decide several tasks, one after the other: the same decisions as that many calls of `decide`.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1))
        >>> [decision.id for decision in deferrer.decide_many([[0.0, 1.0], [1.0, 0.0]])]
        [0, 1]
        """
        if self._encoder is not None:
            rows = [self._encoder.check(row) for row in inputs.rows_of(contexts)]
            return [self.decide(row) for row in rows]
        ledger = self._ledger
        matrix = inputs.as_matrix(contexts, self.settings.n_features)
        decisions = []
        for start in range(0, len(matrix), ledger.memory):
            part = matrix[start : start + ledger.memory]
            first = ledger.next_id
            ledger.make_room(len(part))
            records = np.zeros((len(part), self._record.shape[1]))
            decide_many(ledger.floats, ledger.ints, part, self._everyone, records)
            decisions += [self._records.decision(first + i, row) for i, row in enumerate(records.tolist())]
        if ledger.next_id > self._end:
            self._tell_horizon()
        return decisions

    def score(self, contexts: Any) -> Scores:
        """Return estimates, widths, price and the route for each context, as if it came next; change nothing.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1), warm_up=0)
        >>> deferrer.score([[0.0, 1.0], [1.0, 0.0]]).estimates["model"]
        array([0., 0.])
        """
        if self._encoder is not None:
            rows = inputs.rows_of(contexts)
            matrix = np.array([self._encoder.encode(row) for row in rows]).reshape(len(rows), -1)
        else:
            matrix = inputs.as_matrix(contexts, self.settings.n_features)
        ledger = self._ledger
        records = np.zeros((len(matrix), self._record.shape[1]))
        propose_many(ledger.floats, ledger.ints, matrix, self._everyone, -1, records)
        return self._records.scores(records, self._amount("price"))

    # -- learning --------------------------------------------------------------------------------------------

    def observe(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Take in what has become known of a decision: rewards of any decider, the cost, in any order and in parts.

        The same observation again changes nothing; a different one raises `ConflictingObservation`.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"model": 0.7, "human": 0.9})
        >>> deferrer.observe(decision.id, cost=0.4)
        >>> deferrer.summary().spent, deferrer.summary().reserved
        (0.4, 0.0)
        """
        slot, reward, costs = self._examine(decision, rewards, cost)
        if reward is not None or costs is not None:
            self._take_in(decision, slot, reward, costs)

    def observe_many(
        self,
        decisions: Sequence[int],
        rewards: Mapping[str, ArrayLike] | None = None,
        cost: Any = None,
    ) -> None:
        """Take in several observations, or, if one of them is wrong, none. NaN: nothing became known.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> ids = [decision.id for decision in deferrer.decide_many([[1.0], [1.0]])]
        >>> deferrer.observe_many(ids, rewards={"model": [0.5, float("nan")]})
        """
        ids = list(decisions)
        if len(set(ids)) < len(ids):
            raise expected("decisions", "call of observe_many", "different ids", ids)
        columns = {
            name: inputs.as_vector(f"rewards of {name}", values, len(ids)).tolist()
            for name, values in (rewards or {}).items()
        }
        amounts: list[Amount | None] = [None] * len(ids)
        if cost is not None:
            table = inputs.as_costs(cost, ("cost",), self.settings.resources, len(ids))[:, 0]
            amounts = [None if np.isnan(row).any() else self._records.amount(row.tolist()) for row in table]
        examined = []
        for i, number in enumerate(ids):
            known = {name: column[i] for name, column in columns.items() if not math.isnan(column[i])}
            examined.append((number, *self._examine(number, known, amounts[i])))
        for number, slot, reward, costs in examined:
            if reward is not None or costs is not None:
                self._take_in(number, slot, reward, costs)

    def correct(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Replace values that were observed before; the explicit way to contradict an observation.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.4)
        >>> deferrer.correct(decision.id, cost=0.5)
        >>> deferrer.summary().spent
        0.5
        """
        ledger = self._ledger
        slot = ledger.slot(decision)
        known = ledger.reward[slot]
        changes = []
        for name, value in (rewards or {}).items():
            place = inputs.place_of(name, self.settings.deciders, "decider")
            self._check_reward(name, value)
            if math.isnan(known[place]):
                raise InvalidArgument(f"The reward of {name} for decision {decision} was not observed yet: observe it.")
            changes.append((place, float(known[place]), float(value)))
        costs = None
        if cost is not None:
            costs = self._check_cost(decision, slot, cost)
            if ledger.route[slot] == 0 or np.isnan(ledger.cost[slot]).any():
                raise InvalidArgument(f"No cost of decision {decision} was observed yet: observe it.")
        for place, old, new in changes:
            known[place] = new
            self._correct(slot, place, old, new)
        if costs is not None:
            first = len(self.settings.deciders) + (int(ledger.route[slot]) - 1) * len(costs)
            for r, (old, new) in enumerate(zip(ledger.cost[slot].tolist(), costs, strict=True)):
                self._correct(slot, first + r, old, new)
                self._rebook(r, new - old)
                ledger.cost[slot, r] = new

    def _correct(self, slot: int, target: int, old: float, new: float) -> None:
        ledger = self._ledger
        if not ledger.ints[ENCODING] and old != new:
            correct_one(ledger.floats, ledger.ints, ledger.samples, slot, target, old, new)

    def _rebook(self, resource: int, more: float) -> None:
        spent, overrun = self._ledger.view("spent"), self._ledger.view("overrun")
        if more > 0:
            room = min(more, max(0.0, float(self._left()[resource])))
            spent[resource] += room
            overrun[resource] += more - room
        else:
            back = min(-more, float(overrun[resource]))
            overrun[resource] -= back
            spent[resource] = max(0.0, spent[resource] + more + back)

    def expire(self, decision: int) -> None:
        """Release the reservation of a decision that will not hear back. A late cost is still booked.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.expire(deferrer.decide([1.0], force="human").id)
        >>> deferrer.summary().reserved, deferrer.summary().expired
        (0.0, 1)
        """
        ledger = self._ledger
        slot = ledger.slot(decision)
        if ledger.status[slot] == OPEN:
            expire_one(ledger.floats, ledger.ints, slot)
            ledger.overflow.pop(int(decision), None)

    def change_budget(self, total: Amount) -> None:
        """Set the total of the budget: top it up or cut it.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.change_budget(20)
        >>> deferrer.summary().left
        20.0
        """
        totals = np.array(inputs.as_amount("total", total, self.settings.resources))
        used = self._ledger.view("spent") + self._ledger.view("reserved")
        if (totals < used).any():
            raise BudgetExhausted(
                f"The budget cannot be cut to {show(total)}: {show(self._records.amount(used.tolist()))}"
                " is spent or reserved."
            )
        self._ledger.view("total")[:] = totals

    def warm_start(
        self,
        contexts: Any,
        rewards: Mapping[str, ArrayLike],
        *,
        expert: str | None = None,
        cost: Any = None,
    ) -> None:
        """Learn from labelled tasks of the past instead of a random warm-up. NaN where something is not known.

        `cost` is what `expert` cost on them. The warm-up gets shorter by the number of labels of the least known decider.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.warm_start([[1.0], [0.5]], {"model": [0.6, 0.3], "human": [0.9, 0.4]}, cost=[0.5, 0.2])
        >>> deferrer.decide([1.0]).reason
        'worth it'
        """
        settings, ledger = self.settings, self._ledger
        name = settings.experts[0] if expert is None else expert
        place = inputs.place_of(name, settings.experts, "expert") + 1
        if self._encoder is not None:
            rows = [self._encoder.check(row) for row in inputs.rows_of(contexts)]
            matrix = np.zeros((len(rows), settings.n_features))
        else:
            matrix = inputs.as_matrix(contexts, settings.n_features)
        n = len(matrix)
        values = inputs.as_rewards(rewards, settings.deciders, n, self._reward_bounds, missing=True)
        costs = np.full((n, len(settings.budget)), np.nan)
        if cost is not None:
            costs = inputs.as_costs(cost, ("cost",), settings.resources, n)[:, 0]
            for r, bounds in enumerate(self._cost_bounds):
                inputs.check_range("cost", costs[:, r], *bounds, missing=True)
        if self._encoder is not None:
            if ledger.ints[ENCODING] and n:
                for row in rows:
                    self._encoder.see(row)
                self._settle()
            for i, row in enumerate(rows):
                matrix[i] = self._encoder.encode(row)
        whose = np.where(np.isnan(costs).any(axis=1), 0, place)
        self._absorb(matrix, whose, values, costs)
        least = int(min(self._ledger.view("n_observed")[: len(settings.deciders)]))
        ledger.ints[WARM_UP] = min(ledger.ints[WARM_UP], max(settings.warm_up_steps - least, ledger.next_id))
        ledger.view("next_solve")[0] = min(ledger.view("next_solve")[0], ledger.ints[WARM_UP])
        seen = costs[whose > 0]
        if len(seen):
            largest = ledger.view("largest")
            largest[:] = np.maximum(largest, seen.max(axis=0))
            ledger.view("cost_sum")[:] += seen.sum(axis=0)
            ledger.view("cost_n")[:] += len(seen)

    # -- the fold --------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Change the state by an event. The same events in the same order give the same state, bit for bit.

        >>> from deferkit.events import Observed
        >>> first, second = (Deferrer(n_features=1, budget=Budget(10, horizon=100)) for _ in range(2))
        >>> for event in [first.propose([1.0]), Observed(0, {"model": 0.5}, None)]:
        ...     first.apply(event)
        ...     second.apply(event)
        >>> first == second
        True
        """
        if isinstance(event, Decided):
            self._apply_decided(event)
        elif isinstance(event, Observed):
            self.observe(event.id, event.rewards, event.cost)
        elif isinstance(event, Corrected):
            self.correct(event.id, event.rewards, event.cost)
        elif isinstance(event, Expired):
            self.expire(event.id)
        elif isinstance(event, BudgetChanged):
            self.change_budget(event.total)
        elif isinstance(event, WarmStarted):
            contexts: Any = event.contexts
            self.warm_start(contexts, event.rewards, expert=event.expert, cost=event.costs)
        else:
            raise expected("event", "call of apply", "one of the events of deferkit.events", event)

    def _apply_decided(self, event: Decided) -> None:
        ledger, decision = self._ledger, event.decision
        if decision.id != ledger.next_id:
            raise EventOutOfOrder(f"The next decision is {ledger.next_id}. Got decision {decision.id}.")
        route = inputs.place_of(decision.route, self.settings.deciders, "decider")
        reason = inputs.place_of(decision.reason, REASONS, "reason")
        self._amounts[0] = inputs.as_amount("expected_cost", decision.expected_cost, self.settings.resources)
        self._amounts[1] = inputs.as_amount("reserved", decision.reserved, self.settings.resources)
        if route > 0:
            self._check_free(decision)
        self._load(event.context)
        self._check_finite()
        ledger.make_room(1)
        commit_one(ledger.floats, ledger.ints, self._x, route, reason, self._amounts)
        if ledger.ints[ENCODING]:
            row = cast(dict[str, Any], event.context)
            cast(Encoder, self._encoder).see(row)
            self._rows.append(row)
            if ledger.next_id >= max(int(ledger.ints[WARM_UP]), SETTLE_AFTER):
                self._settle()
        if ledger.next_id > self._end:
            self._tell_horizon()

    def run(
        self,
        contexts: Any,
        rewards: Mapping[str, ArrayLike],
        cost: Any,
        *,
        feedback: str = "full",
        progress: Callable[[int], None] | None = None,
    ) -> Run:
        """Decide a stream of tasks whose outcomes are known beforehand, and observe each one at once.

        The same decisions as that many calls of `decide` and `observe`, in one compiled loop. `rewards` by decider, `cost`
        by expert if there are several; `feedback` is what is observed of them: "full" (the model's reward always, the
        expert's when asked), "bandit" (only the chosen decider's) or "reviewed" (nothing unless an expert was asked, then
        both). `progress` is called with the number of tasks done since it was called last.

        >>> rng = np.random.default_rng(0)
        >>> deferrer = Deferrer(n_features=2, budget=Budget(20, horizon=200, max_cost=1))
        >>> rewards = {"model": rng.random(200), "human": rng.random(200)}
        >>> run = deferrer.run(rng.random((200, 2)), rewards, cost=rng.random(200))
        >>> bool(run.costs.sum() <= 20)
        True
        """
        settings = self.settings
        if feedback not in FEEDBACKS:
            raise expected("feedback", "call of run", "one of " + ", ".join(map(repr, FEEDBACKS)), feedback)
        rows: list[Any] | None = None
        if self._encoder is not None:
            rows = [self._encoder.check(row) for row in inputs.rows_of(contexts)]
            matrix = np.zeros((len(rows), settings.n_features))
        else:
            matrix = inputs.as_matrix(contexts, settings.n_features)
        n = len(matrix)
        values = inputs.as_rewards(rewards, settings.deciders, n, self._reward_bounds, missing=False)
        costs = inputs.as_costs(cost, settings.experts, settings.resources, n)
        for r, bounds in enumerate(self._cost_bounds):
            inputs.check_range("cost", costs[:, :, r], *bounds, missing=False)
        routes, reasons = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        propensities, prices = np.zeros(n), np.zeros((n, len(settings.budget)))
        done = 0
        if rows is not None:
            done = self._run_unsettled(rows, values, costs, feedback, routes, reasons, propensities, prices)
            for i in range(done, n):
                matrix[i] = cast(Encoder, self._encoder).encode(rows[i])
        ledger = self._ledger
        while done < n:
            end = min(n, done + min(CHUNK, ledger.memory))
            ledger.make_room(end - done)
            ledger.room_for_samples(end - done)
            before = done
            streams = (matrix[:end], values[:end], costs[:end])
            outcome = (routes, reasons, propensities, prices)
            done = run_many(
                ledger.floats, ledger.ints, ledger.samples, *streams, FEEDBACKS[feedback], *outcome, done
            )
            ledger.mend_if_due()
            if progress is not None:
                progress(done - before)
        if ledger.next_id > self._end:
            self._tell_horizon()
        every = np.arange(n)
        chosen = np.where(routes[:, None] > 0, costs[every, routes - 1], 0.0)
        return Run(routes, reasons, propensities, prices, values[every, routes], chosen, settings.deciders)

    def _run_unsettled(
        self,
        rows: list[Any],
        values: NDArray[np.float64],
        costs: NDArray[np.float64],
        feedback: str,
        routes: NDArray[np.int64],
        reasons: NDArray[np.int64],
        propensities: NDArray[np.float64],
        prices: NDArray[np.float64],
    ) -> int:
        """Take the first tasks one at a time, as long as the encoder's scales are not settled."""
        done = 0
        while done < len(rows) and self._ledger.ints[ENCODING]:
            decision = self.decide(rows[done])
            route = self._places[decision.route]
            seen = {decision.route: values[done, route]}
            if feedback != "bandit":
                seen[MODEL] = values[done, 0]
            if feedback == "reviewed" and route == 0:
                seen = {}
            booked = self._records.amount(costs[done, route - 1].tolist()) if route else None
            self.observe(decision.id, seen, booked)
            routes[done], reasons[done] = route, REASONS.index(decision.reason)
            propensities[done] = decision.propensity
            prices[done] = inputs.as_amount("price", decision.price, self.settings.resources)
            done += 1
        return done

    # -- state -----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that decides to one file; see `deferkit.learn.state` for the format.

        >>> import tempfile, pathlib
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> _ = deferrer.decide([1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     deferrer.save(pathlib.Path(folder, "a.state"))
        ...     Deferrer.load(pathlib.Path(folder, "a.state")) == deferrer
        True
        """
        state.write(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return what `save` writes."""
        plain = {
            "deferrer": self.settings.to_dict(),
            "encoder": None if self._encoder is None else self._encoder.to_dict(),
            "rows": self._rows,
        }
        return state.pack(plain, self._ledger.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Deferrer":
        """Return the learner that was saved; it goes on exactly where that one was."""
        return cls.from_bytes(state.read(path), str(path))

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "The state") -> "Deferrer":
        """Return the learner that `to_bytes` was asked for."""
        plain, arrays = state.unpack(data, source)
        try:
            encoder = None if plain["encoder"] is None else Encoder.from_dict(plain["encoder"])
            deferrer = cls._of(Settings.from_dict(plain["deferrer"]), Ledger.from_state(arrays), encoder)
            deferrer._rows = plain["rows"]
            deferrer._ledger.ints[ENCODING] = arrays["ints"][ENCODING]
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableState(f"{source} does not hold a learner ({error}).") from error
        return deferrer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Deferrer):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def summary(self) -> Summary:
        """Return where the learner stands.

        >>> Deferrer(n_features=1, budget=Budget(10, horizon=100)).summary().left
        10.0
        """
        ledger, settings = self._ledger, self.settings
        routed = ledger.view("n_routed").tolist()
        made = ledger.next_id
        noise = np.sqrt(ledger.view("misfit") / np.maximum(ledger.view("n_observed"), 1)).tolist()
        names = list(settings.deciders)
        for expert in settings.experts:
            each = [""] if len(settings.budget) == 1 else [f" in {name}" for name in settings.resources]
            names += [f"cost of {expert}{suffix}" for suffix in each]
        kept = sum(ledger.view(name).nbytes for name in ("context", "expected", "held", "reward", "cost"))
        return Summary(
            decisions=made,
            routes=dict(zip(settings.deciders, routed, strict=True)),
            deferral_rate=1 - routed[0] / made if made else 0.0,
            total=self._amount("total"),
            spent=self._amount("spent"),
            reserved=self._amount("reserved"),
            left=self._records.amount(self._left().tolist()),
            overrun=self._amount("overrun"),
            price=self._amount("price"),
            pending=int((ledger.status == OPEN).sum()),
            expired=int(ledger.ints[N_EXPIRED]),
            forced=int(ledger.ints[N_FORCED]),
            without_budget=int(ledger.ints[N_BUDGET]),
            noise=dict(zip(names, noise, strict=True)),
            history_bytes=kept + ledger.samples.nbytes,
        )

    # -- within ----------------------------------------------------------------------------------------------

    def _amount(self, name: str) -> Amount:
        return self._records.amount(self._ledger.view(name).tolist())

    def _left(self) -> NDArray[np.float64]:
        view = self._ledger.view
        return np.asarray(view("total") - view("spent") - view("reserved"))

    def _load(self, context: Any) -> Any:
        """Put a context where the compiled steps read it; return it as an event keeps it."""
        if self._encoder is not None:
            clean = self._encoder.check(context)
            self._x[0] = self._encoder.encode(clean)
            return clean
        row = self._row
        if type(context) is not np.ndarray:
            context = inputs.as_context(context, len(row))
        if context.shape != self._row_shape or context.dtype.kind not in "fiu":
            raise inputs.wrong_context(context, len(row))
        row[:] = context
        return context

    def _check_finite(self) -> None:
        if first_bad(self._x) >= 0:
            raise self._not_finite()

    def _not_finite(self) -> InvalidArgument:
        place = int(np.flatnonzero(~np.isfinite(self._x[0]))[0])
        return expected("context", "Deferrer", f"finite numbers (element {place})", float(self._x[0, place]))

    def _mask(self, available: Sequence[str] | None) -> int:
        if available is None:
            return self._everyone
        if isinstance(available, str):
            raise expected("available", "Deferrer", "a list of experts", available)
        return sum(1 << place for place in {inputs.place_of(e, self.settings.experts, "expert") for e in available})

    def _check_free(self, decision: Decision) -> None:
        held = np.array(inputs.as_amount("reserved", decision.reserved, self.settings.resources))
        left = self._left()
        if (held > left).any() or (self._ledger.view("total") <= 0).any():
            raise BudgetExhausted(
                f"Asking {decision.route} needs {show(decision.reserved)} of budget;"
                f" {show(self._records.amount(left.tolist()))} is free."
            )

    def _check_reward(self, name: str, value: object) -> None:
        low, high = self._reward_bounds
        if type(value) is float and low <= value <= high and value - value == 0.0:
            return
        if not is_number(value) or not low <= cast(float, value) <= high or math.isinf(cast(float, value)):
            raise expected(f"reward of {name}", "decision", f"between {low:g} and {high:g}", value)

    def _check_cost(self, decision: int, slot: int, cost: Amount) -> list[float]:
        numbers = inputs.as_amount("cost", cost, self.settings.resources)
        for number, (_, high) in zip(numbers, self._cost_bounds, strict=True):
            if number > high:
                raise expected("cost", "decision", f"at most {high:g}, the max_cost of its budget", number)
        if self._ledger.route.item(slot) == 0 and any(numbers):
            raise expected("cost", "decision", f"0, because the model decided task {decision}", cost)
        return numbers

    def _examine(
        self, decision: int, rewards: Mapping[str, float] | None, cost: Amount | None
    ) -> tuple[int, list[float] | None, list[float] | None]:
        """Return where a decision lies and what is new about it; raise if anything is wrong; change nothing."""
        ledger = self._ledger
        slot = ledger.slot(decision)
        new_reward = new_cost = None
        if rewards:
            for name, value in rewards.items():
                place = self._places.get(name, -1)
                if place < 0:
                    inputs.place_of(name, self.settings.deciders, "decider")
                self._check_reward(name, value)
                known = ledger.reward.item(slot, place)
                if known != known:  # NaN: not known yet
                    if new_reward is None:
                        new_reward = self._unknown_reward.copy()
                    new_reward[place] = value
                elif known != value:
                    raise ConflictingObservation(
                        f"The reward of {name} for decision {decision} was observed as {known}. Got {value}."
                    )
        if cost is not None:
            numbers = self._check_cost(decision, slot, cost)
            if ledger.route.item(slot) > 0:
                booked = ledger.cost[slot].tolist()
                if booked[0] != booked[0]:
                    new_cost = numbers
                elif booked != numbers:
                    first = show(self._records.amount(booked))
                    raise ConflictingObservation(
                        f"The cost of decision {decision} was observed as {first}. Got {show(cost)}."
                    )
        return slot, new_reward, new_cost

    def _take_in(self, decision: int, slot: int, reward: list[float] | None, cost: list[float] | None) -> None:
        ledger = self._ledger
        ledger.room_for_samples(1)
        # one by one: numpy takes twice as long to copy a short list
        for place, value in enumerate(self._unknown_reward if reward is None else reward):
            ledger.new_reward[place] = value
        for place, value in enumerate(self._unknown_cost if cost is None else cost):
            ledger.new_cost[place] = value
        observe_one(ledger.floats, ledger.ints, ledger.samples, int(decision), slot)
        ledger.mend_if_due()
        if slot >= ledger.memory:
            ledger.forget_if_done(int(decision), slot)

    def _absorb(
        self,
        matrix: NDArray[np.float64],
        whose: NDArray[np.int64],
        rewards: NDArray[np.float64],
        costs: NDArray[np.float64],
    ) -> None:
        """Learn from tasks, mending in between as in every other way of learning."""
        ledger = self._ledger
        ledger.room_for_samples(len(matrix))
        done = 0
        while done < len(matrix):
            done = absorb_many(ledger.floats, ledger.ints, ledger.samples, matrix, whose, rewards, costs, done)
            ledger.mend_if_due()

    def _settle(self) -> None:
        """Freeze the encoder's scales, encode the contexts so far with them, and learn what is known of those."""
        ledger = self._ledger
        ledger.ints[ENCODING] = 0
        encoder = cast(Encoder, self._encoder)
        n = len(self._rows)
        if n:
            matrix = np.array([encoder.encode(row) for row in self._rows])
            ledger.view("context")[:n] = matrix
            whose = np.where(np.isnan(ledger.cost[:n]).any(axis=1), 0, ledger.route[:n])
            self._absorb(matrix, whose, ledger.reward[:n].copy(), ledger.cost[:n].copy())
            self._rows = []

    def _tell_horizon(self) -> None:
        if not self._ledger.ints[HORIZON_TOLD]:
            self._ledger.ints[HORIZON_TOLD] = 1
            warnings.warn(
                f"The horizon of {self._end:,} tasks is over. What is left of the budget is spent at the last price.",
                HorizonWarning,
                stacklevel=3,
            )
