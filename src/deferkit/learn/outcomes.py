"""Outcomes of decisions: checked, booked, learned, corrected."""

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import ConflictingObservation, InvalidArgument, LinkWarning, expected
from deferkit.learn import context
from deferkit.learn.core import CONSTANTS
from deferkit.learn.embed.representation import Representation
from deferkit.learn.ledger import OPEN, Ledger
from deferkit.learn.reports import LedgerReader
from deferkit.learn.settings import Settings
from deferkit.types import LARGEST, Amount, is_number, plain, show

Floats = NDArray[np.float64]

LINK_BINARY: int = CONSTANTS["link_binary"]


class Outcomes:
    """Checks, books and learns outcomes.

    `new_values` does all checks and changes nothing; `book_and_learn` cannot fail.
    """

    def __init__(
        self, settings: Settings, ledger: Ledger, reader: LedgerReader, representation: Representation
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.representation = representation
        self.reader = reader
        self.reward_bounds = settings.reward_bounds
        self.cost_bounds = settings.cost_bounds
        self.largest_costs = settings.largest_costs
        self.caps = settings.caps
        self.warns = True  # of a switch of the link
        self._index_of_decider = {name: index for index, name in enumerate(settings.deciders)}
        self._no_reward = [math.nan] * len(settings.deciders)
        self._no_cost = [math.nan] * len(settings.budget)

    def observe(
        self, decision: int, rewards: Mapping[str, float] | None, cost: Amount | None, *, announced: bool = True
    ) -> None:
        """Check, book and learn an outcome; `Deferrer.observe` describes the arguments and errors.

        Args:
            decision: The id of the decision.
            rewards: Rewards by decider.
            cost: What the decision cost.
            announced: Whether an announced cost is booked with the reward of the expert; True by default. An event
                says which cost is booked, so that a log replays as it was.
        """
        self.book_and_learn(decision, *self.new_values(decision, rewards, cost, announced=announced))

    def observe_many(self, decisions: Any, rewards: Any, cost: Any) -> None:
        """Observe several outcomes: all, or none if one of them is invalid."""
        for each in self._new_values_of_many(decisions, rewards, cost):
            self.book_and_learn(*each)

    def new_values(
        self, decision: int, rewards: Mapping[str, float] | None, cost: Amount | None, *, announced: bool = False
    ) -> tuple[int, list[float] | None, list[float] | None]:
        """Return the row of a decision, and its new rewards and costs; None for those without new values."""
        ledger = self.ledger
        slot = ledger.slot(decision)
        new_reward = new_cost = None
        if rewards is not None and not isinstance(rewards, Mapping):
            raise expected("rewards", "decision", "given by decider", rewards)
        for name, value in (rewards or {}).items():
            index = self._check_reward(name, value)
            known = ledger.reward.item(slot, index)
            if math.isnan(known):
                if new_reward is None:
                    new_reward = self._no_reward.copy()
                new_reward[index] = float(value)
            elif known != value:
                raise ConflictingObservation(
                    f"The reward of {name} for decision {decision} was observed as {known}. Got {value}."
                )
        if cost is not None:
            numbers = self._check_cost(decision, slot, cost)
            if ledger.route.item(slot) > 0:
                booked = ledger.cost[slot].tolist()
                if math.isnan(booked[0]):
                    new_cost = numbers
                elif booked != numbers:
                    first = show(self.reader.amount(booked))
                    raise ConflictingObservation(
                        f"The cost of decision {decision} was observed as {first}. Got {show(cost)}."
                    )
        elif announced and new_reward is not None and ledger.view("announced").item(slot):
            is_due = ledger.status.item(slot) == OPEN and not math.isnan(new_reward[ledger.route.item(slot)])
            new_cost = ledger.view("expected")[slot].tolist() if is_due else None
        return slot, new_reward, new_cost

    def _new_values_of_many(
        self, decisions: Any, rewards: Any, cost: Any
    ) -> list[tuple[int, int, list[float] | None, list[float] | None]]:
        """Return the new values of several outcomes; raise if one of them is invalid."""
        if not isinstance(decisions, Iterable) or isinstance(decisions, str):
            raise expected("decisions", "call of observe_many", "a list of ids", decisions)
        ids = [plain(number) for number in decisions]
        if not all(is_number(number) for number in ids) or len(set(ids)) < len(ids):
            raise expected("decisions", "call of observe_many", "different ids", ids)
        if rewards is not None and not isinstance(rewards, Mapping):
            raise expected("rewards", "call of observe_many", "given by decider", rewards)
        for name in rewards or {}:
            context.index_of(name, self.settings.deciders, "decider")
        columns = {
            name: context.as_vector(f"rewards of {name}", values, len(ids)).tolist()
            for name, values in (rewards or {}).items()
        }
        amounts: list[Amount | None] = [None] * len(ids)
        if cost is not None:
            table = context.as_costs(cost, ("cost",), self.settings.resources, len(ids))[:, 0]
            amounts = [None if np.isnan(row).any() else self.reader.amount(row.tolist()) for row in table]
        examined = []
        for i, number in enumerate(ids):
            known = {name: column[i] for name, column in columns.items() if not math.isnan(column[i])}
            values = self.new_values(cast(int, number), known, amounts[i], announced=True)
            examined.append((cast(int, number), *values))
        return examined

    def book_and_learn(self, decision: int, slot: int, reward: list[float] | None, cost: list[float] | None) -> None:
        """Book and learn the result of `new_values`."""
        if reward is None and cost is None:
            return
        ledger, number = self.ledger, int(decision)
        new_reward, new_cost = reward or self._no_reward, cost or self._no_cost
        ledger.grow_sample_store(1)
        self.representation.refresh_views(number, slot)
        link_state = ledger.get("link_state")
        ledger.core.observe(number, slot, new_reward, new_cost)
        self.representation.append_outcomes(number, slot, new_reward, new_cost)
        if ledger.get("link_state") != link_state:
            self.link_switched(sum(not math.isnan(each) for each in new_reward))
        self.representation.retrain_if_due()
        self.representation.refresh_window_if_due()
        ledger.free_overflow_row(number, slot)

    def link_switched(self, n_new: int) -> None:
        """Tell the representation that the rewards have the identity link from now on, and the user if it matters.

        Args:
            n_new: The number of rewards that came with the outcome that switched the link. If there are no earlier
                ones, the link was never used.
        """
        self.representation.link_switched()
        if self.warns and self.ledger.view("reward_power")[1] > n_new:
            warnings.warn(
                "A reward is neither 0 nor 1: the link of the rewards is the identity from now on, no longer logistic."
                " All remembered outcomes were learned again.",
                LinkWarning,
                stacklevel=5,
            )

    def switch_link_for(self, rewards: Floats) -> None:
        """Switch an automatic link if one of these rewards is neither 0 nor 1."""
        known = rewards[~np.isnan(rewards)]
        if self.ledger.get("link_state") == LINK_BINARY and ((known != 0.0) & (known != 1.0)).any():
            self.ledger.core.switch_link()
            self.link_switched(0)

    def expire(self, decision: int) -> None:
        """Release the reservation of a decision, if it holds one."""
        ledger = self.ledger
        slot = ledger.slot(decision)
        if ledger.status[slot] == OPEN:
            ledger.core.expire(slot)
            ledger.free_overflow_row(int(decision), slot)

    def check_costs(self, costs: Floats, expert: int, *, missing: bool) -> None:
        """Raise if a cost [n, resources] of an expert, counted from 0, is out of bounds."""
        for r, high in enumerate(self.largest_costs[expert].tolist()):
            context.check_range("cost", costs[:, r], 0.0, high, missing=missing)

    def check_announced(self, costs: Floats) -> None:
        """Raise if a cost [experts, resources] that is known before the decision is above what may be held for it."""
        for expert, caps in enumerate(self.caps):
            for r, (_, high) in enumerate(self.cost_bounds):
                context.check_range("cost", costs[expert, r : r + 1], 0.0, np.fmin(high, caps[r]).item(), missing=True)

    def correct(self, decision: int, rewards: Mapping[str, float] | None, cost: Amount | None) -> None:
        """Replace values that were observed before."""
        ledger = self.ledger
        slot = ledger.slot(decision)
        known = ledger.reward[slot]
        changes = []
        if rewards is not None and not isinstance(rewards, Mapping):
            raise expected("rewards", "decision", "given by decider", rewards)
        for name, value in (rewards or {}).items():
            index = self._check_reward(name, value)
            if math.isnan(known[index]):
                raise InvalidArgument(f"The reward of {name} for decision {decision} was not observed yet: observe it.")
            changes.append((index, float(known[index]), float(value)))
        costs = None
        if cost is not None:
            costs = self._check_cost(decision, slot, cost)
            if ledger.route[slot] == 0 or np.isnan(ledger.cost[slot]).any():
                raise InvalidArgument(f"No cost of decision {decision} was observed yet: observe it.")
        self.representation.refresh_views(int(decision), slot)
        for index, old, new in changes:
            known[index] = new
            self._learn_correction(slot, index, old, new)
        if costs is not None:
            expert = int(ledger.route[slot]) - 1
            for r, (old, new) in enumerate(zip(ledger.cost[slot].tolist(), costs, strict=True)):
                target = ledger.core.cost_target(expert, r)
                self._learn_correction(slot, target, old, new)
                self._rebook(r, new - old, covers=new > ledger.view("cap").item(expert, r))
                ledger.cost[slot, r] = new
                # rounding must not make the mean negative, which holds are sized by
                ledger.view("cost_sum")[r] = max(0.0, ledger.view("cost_sum").item(r) + (new - old))
                largest = ledger.view("largest_cost")
                largest[r] = max(np.nanmax(ledger.cost[:, r]) if largest[r] == old else largest[r], new)
                changes.append((target, old, new))
            ledger.core.cover()
        self.representation.replace_outcomes(int(decision), slot, changes)

    def _check_reward(self, name: str, value: object) -> int:
        """Return the index of a decider; raise if there is no such decider or the reward is out of range."""
        index = self._index_of_decider.get(name, -1) if isinstance(name, str) else -1
        if index < 0:
            context.index_of(name, self.settings.deciders, "decider")
        low, high = max(self.reward_bounds[0], -LARGEST), min(self.reward_bounds[1], LARGEST)
        possible = is_number(value) or isinstance(value, (bool, np.bool_))  # right or wrong is a reward
        if not possible or not low <= cast("float", value) <= high:
            raise expected(f"reward of {name}", "decision", f"between {low:g} and {high:g}", value)
        return index

    def _check_cost(self, decision: int, slot: int, cost: Amount) -> list[float]:
        numbers = context.as_amount("cost", cost, self.settings.resources)
        route = self.ledger.route.item(slot)
        for number, high in zip(numbers, self.largest_costs[max(route - 1, 0)].tolist(), strict=True):
            if number > high:
                raise expected("cost", "decision", f"at most {high:g}, the max_cost of its budget", number)
        if route == 0 and any(numbers):
            raise expected("cost", "decision", f"0, because the model decided task {decision}", cost)
        return numbers

    def _learn_correction(self, slot: int, target: int, old: float, new: float) -> None:
        if target < len(self.settings.deciders) and self.ledger.get("link_state") == LINK_BINARY and new not in (0, 1):
            self.switch_link_for(np.array([new]))  # which learns the corrected reward too
            return
        if not self.ledger.get("unsettled") and old != new:
            self.ledger.core.correct(slot, target, old, new)

    def _rebook(self, resource: int, more: float, *, covers: bool) -> None:
        """Book the difference of a corrected cost: overruns are booked last and undone first.

        Free budget `covers` the overrun by a cost above `max_cost` before anybody is asked.
        """
        spent, overrun, uncovered = (self.ledger.view(name) for name in ("spent", "overrun", "uncovered"))
        if more > 0:
            room = min(more, max(0.0, float(self.ledger.budget_left()[resource])))
            spent[resource] += room
            overrun[resource] += more - room
            uncovered[resource] += more - room if covers else 0.0
        else:
            back = min(-more, float(overrun[resource]))
            overrun[resource] -= back
            uncovered[resource] = min(uncovered[resource], overrun[resource])
            spent[resource] = max(0.0, spent[resource] + more + back)
