"""Holds of pending reviews: extended while there is budget left, or the review is stopped."""

from collections.abc import Mapping

import numpy as np

from deferkit.errors import AlreadySettled, BudgetExhausted, expected
from deferkit.learn import inputs
from deferkit.learn.components import Components
from deferkit.learn.ledger import OPEN
from deferkit.types import Amount, show


def open_row(components: Components, decision: int) -> int:
    """Return the row of a decision that holds budget; raise `AlreadySettled` if it holds none."""
    slot = components.ledger.slot(decision)
    if components.ledger.status.item(slot) != OPEN:
        raise AlreadySettled(
            f"Decision {decision} holds no budget: its cost is known, it expired or the model decided."
        )
    return slot


def grantable(components: Components, decision: int, amount: Amount) -> Amount:
    """Return how much of an amount can be added to a hold: what is left, up to `max_cost` and `limit` of one review."""
    ledger = components.ledger
    slot = open_row(components, decision)
    asked = np.array(inputs.as_amount("amount", amount, components.settings.resources))
    caps = np.fmin(ledger.view("max_cost"), ledger.view("limit"))
    with np.errstate(invalid="ignore"):
        room = np.fmin(ledger.budget_left(), caps - ledger.view("held")[slot])
    return components.reader.amount(np.maximum(np.minimum(asked, room), 0.0).tolist())


def extend(components: Components, decision: int, amount: Amount) -> None:
    """Add an amount to the hold of a pending review; raise if there is not so much left."""
    ledger = components.ledger
    slot = open_row(components, decision)
    added = np.array(inputs.as_amount("amount", amount, components.settings.resources))
    if (added > ledger.budget_left()).any():
        left = show(components.reader.amount(ledger.budget_left().tolist()))
        raise BudgetExhausted(f"Extending decision {decision} needs {show(amount)} of budget; {left} is free.")
    ledger.view("held")[slot] += added
    ledger.view("reserved")[:] += added


def stop(components: Components, decision: int, cost: Amount, rewards: Mapping[str, float] | None) -> None:
    """Book and learn what a review cost until it was stopped."""
    ledger, outcomes = components.ledger, components.outcomes
    if ledger.route.item(ledger.slot(decision)) == 0:
        raise expected("decision", "call of stop", "one for which an expert was asked", decision)
    if cost is None:
        raise expected("cost", "call of stop", "what the review cost until then", cost)
    slot, new_rewards, new_cost = outcomes.new_values(decision, rewards, cost)
    outcomes.book_and_learn(decision, slot, new_rewards, new_cost)
    if new_cost is not None:
        ledger.set("n_stopped", ledger.get("n_stopped") + 1)
