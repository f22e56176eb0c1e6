"""What becomes known of decisions: checked, booked, learned, corrected."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import BudgetExhausted, ConflictingObservation, InvalidArgument, expected
from deferkit.learn import inputs
from deferkit.learn.arrays import ENCODING
from deferkit.learn.ledger import Ledger
from deferkit.learn.loop import absorb_many, correct_one, observe_one
from deferkit.learn.records import Records
from deferkit.learn.representation import Representation
from deferkit.learn.settings import Settings
from deferkit.types import LARGEST, Amount, Decision, is_number, plain, show

Floats = NDArray[np.float64]


class Outcomes:
    """Takes in what is observed. `examine` raises if anything is wrong and changes nothing; the rest cannot fail."""

    def __init__(
        self, settings: Settings, ledger: Ledger, records: Records, representation: Representation | None
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.representation = representation
        self.records = records
        self.reward_bounds = settings.reward_bounds
        self.cost_bounds = settings.cost_bounds
        self._places = {name: place for place, name in enumerate(settings.deciders)}
        self._no_reward = [math.nan] * len(settings.deciders)
        self._no_cost = [math.nan] * len(settings.budget)

    def examine(
        self, decision: int, rewards: Mapping[str, float] | None, cost: Amount | None
    ) -> tuple[int, list[float] | None, list[float] | None]:
        """Return where a decision lies, and the rewards and costs that are new, None if none is."""
        ledger = self.ledger
        slot = ledger.slot(decision)
        new_reward = new_cost = None
        if type(rewards) is not dict and rewards is not None and not isinstance(rewards, Mapping):
            raise expected("rewards", "decision", "given by decider", rewards)
        if rewards:
            for name, value in rewards.items():
                place = self._check_reward(name, value)
                known = ledger.reward.item(slot, place)
                if known != known:  # NaN: not known yet
                    if new_reward is None:
                        new_reward = self._no_reward.copy()
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
                    first = show(self.records.amount(booked))
                    raise ConflictingObservation(
                        f"The cost of decision {decision} was observed as {first}. Got {show(cost)}."
                    )
        return slot, new_reward, new_cost

    def examine_many(
        self, decisions: Any, rewards: Any, cost: Any
    ) -> list[tuple[int, int, list[float] | None, list[float] | None]]:
        """Return what is new in several observations; raise if one of them is wrong."""
        if not isinstance(decisions, Iterable) or isinstance(decisions, str):
            raise expected("decisions", "call of observe_many", "a list of ids", decisions)
        ids = [plain(number) for number in decisions]
        if not all(is_number(number) for number in ids) or len(set(ids)) < len(ids):
            raise expected("decisions", "call of observe_many", "different ids", ids)
        if rewards is not None and not isinstance(rewards, Mapping):
            raise expected("rewards", "call of observe_many", "given by decider", rewards)
        for name in rewards or {}:
            inputs.place_of(name, self.settings.deciders, "decider")
        columns = {
            name: inputs.as_vector(f"rewards of {name}", values, len(ids)).tolist()
            for name, values in (rewards or {}).items()
        }
        amounts: list[Amount | None] = [None] * len(ids)
        if cost is not None:
            table = inputs.as_costs(cost, ("cost",), self.settings.resources, len(ids))[:, 0]
            amounts = [None if np.isnan(row).any() else self.records.amount(row.tolist()) for row in table]
        examined = []
        for i, number in enumerate(ids):
            known = {name: column[i] for name, column in columns.items() if not math.isnan(column[i])}
            examined.append((cast(int, number), *self.examine(cast(int, number), known, amounts[i])))
        return examined

    def take_in(self, decision: int, slot: int, reward: list[float] | None, cost: list[float] | None) -> None:
        """Book and learn what `examine` found to be new."""
        if reward is None and cost is None:
            return
        ledger = self.ledger
        ledger.room_for_samples(1)
        if self.representation is not None:
            self.representation.refresh(int(decision), slot)
        # one by one: numpy takes twice as long to copy a short list
        for place, value in enumerate(self._no_reward if reward is None else reward):
            ledger.new_reward[place] = value
        for place, value in enumerate(self._no_cost if cost is None else cost):
            ledger.new_cost[place] = value
        observe_one(ledger.floats, ledger.ints, ledger.samples, int(decision), slot)
        ledger.mend_if_due()
        if self.representation is not None:
            self.representation.observed(int(decision), slot)
            self.representation.retrain_if_due()
            self.representation.look_if_due()
        if slot >= ledger.memory:
            ledger.forget_if_done(int(decision), slot)

    def absorb(self, matrix: Floats, whose: NDArray[np.int64], rewards: Floats, costs: Floats) -> None:
        """Learn from tasks that need no booking; `whose` says which expert cost that, 0 for nobody."""
        ledger = self.ledger
        ledger.room_for_samples(len(matrix))
        done = 0
        while done < len(matrix):
            done = absorb_many(ledger.floats, ledger.ints, ledger.samples, matrix, whose, rewards, costs, done)
            ledger.mend_if_due()

    def history(self, rewards: Any, cost: Any, n: int) -> tuple[Floats, Floats]:
        """Return rewards and costs of labelled tasks of the past, checked; NaN where one is not known."""
        settings = self.settings
        values = inputs.as_rewards(rewards, settings.deciders, n, self.reward_bounds, missing=True)
        if cost is None:
            return values, np.full((n, len(settings.budget)), np.nan)
        costs = inputs.as_costs(cost, ("cost",), settings.resources, n)[:, 0]
        self.check_costs(costs, missing=True)
        return values, costs

    def check_costs(self, costs: Floats, *, missing: bool) -> None:
        """Raise if a cost of the array, whose last axis is the resource, is out of bounds."""
        for r, bounds in enumerate(self.cost_bounds):
            inputs.check_range("cost", costs[..., r], *bounds, missing=missing)

    def correct(self, decision: int, rewards: Mapping[str, float] | None, cost: Amount | None) -> None:
        """Replace values that were observed before."""
        ledger = self.ledger
        slot = ledger.slot(decision)
        known = ledger.reward[slot]
        changes = []
        if rewards is not None and not isinstance(rewards, Mapping):
            raise expected("rewards", "decision", "given by decider", rewards)
        for name, value in (rewards or {}).items():
            place = self._check_reward(name, value)
            if math.isnan(known[place]):
                raise InvalidArgument(f"The reward of {name} for decision {decision} was not observed yet: observe it.")
            changes.append((place, float(known[place]), float(value)))
        costs = None
        if cost is not None:
            costs = self._check_cost(decision, slot, cost)
            if ledger.route[slot] == 0 or np.isnan(ledger.cost[slot]).any():
                raise InvalidArgument(f"No cost of decision {decision} was observed yet: observe it.")
        if self.representation is not None:
            self.representation.refresh(int(decision), slot)
        for place, old, new in changes:
            known[place] = new
            self._learn_correction(slot, place, old, new)
        if costs is not None:
            first = len(self.settings.deciders) + (int(ledger.route[slot]) - 1) * len(costs)
            for r, (old, new) in enumerate(zip(ledger.cost[slot].tolist(), costs, strict=True)):
                self._learn_correction(slot, first + r, old, new)
                self._rebook(r, new - old)
                ledger.cost[slot, r] = new
                ledger.view("cost_sum")[r] += new - old
                largest = ledger.view("largest")
                largest[r] = max(np.nanmax(ledger.cost[:, r]) if largest[r] == old else largest[r], new)
                changes.append((first + r, old, new))
        if self.representation is not None:
            self.representation.corrected(int(decision), slot, changes)

    def check_free(self, decision: Decision) -> None:
        """Raise if what a decision reserves is not free."""
        held = np.array(inputs.as_amount("reserved", decision.reserved, self.settings.resources))
        left = self.ledger.left()
        if (held > left).any() or (self.ledger.view("total") <= 0).any():
            raise BudgetExhausted(
                f"Asking {decision.route} needs {show(decision.reserved)} of budget;"
                f" {show(self.records.amount(left.tolist()))} is free."
            )

    def _check_reward(self, name: str, value: object) -> int:
        """Return the place of a decider, or raise if it or its reward is not possible."""
        place = self._places.get(name, -1)
        if place < 0:
            inputs.place_of(name, self.settings.deciders, "decider")
        low, high = self.reward_bounds
        if type(value) is float and low <= value <= high and -LARGEST <= value <= LARGEST:
            return place
        if not is_number(value) or not max(low, -LARGEST) <= cast("float", value) <= min(high, LARGEST):
            raise expected(
                f"reward of {name}", "decision", f"between {max(low, -LARGEST):g} and {min(high, LARGEST):g}", value
            )
        return place

    def _check_cost(self, decision: int, slot: int, cost: Amount) -> list[float]:
        numbers = inputs.as_amount("cost", cost, self.settings.resources)
        for number, (_, high) in zip(numbers, self.cost_bounds, strict=True):
            if number > high:
                raise expected("cost", "decision", f"at most {high:g}, the max_cost of its budget", number)
        if self.ledger.route.item(slot) == 0 and any(numbers):
            raise expected("cost", "decision", f"0, because the model decided task {decision}", cost)
        return numbers

    def _learn_correction(self, slot: int, target: int, old: float, new: float) -> None:
        ledger = self.ledger
        if not ledger.ints[ENCODING] and old != new:
            correct_one(ledger.floats, ledger.ints, ledger.samples, slot, target, old, new)

    def _rebook(self, resource: int, more: float) -> None:
        """Book the difference that a corrected cost makes; an overrun is the last to come and the first to go."""
        spent, overrun = self.ledger.view("spent"), self.ledger.view("overrun")
        if more > 0:
            room = min(more, max(0.0, float(self.ledger.left()[resource])))
            spent[resource] += room
            overrun[resource] += more - room
        else:
            back = min(-more, float(overrun[resource]))
            overrun[resource] -= back
            spent[resource] = max(0.0, spent[resource] + more + back)
