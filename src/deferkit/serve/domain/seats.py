"""Seats: the places of reviewers at a task, and what the reviewers in them have reported."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from deferkit.serve.domain.money import Micros
from deferkit.serve.domain.rows import SeatRow


class Reported(NamedTuple):
    """What the reviewers of a task have reported, taken together."""

    rewards: dict[str, float]
    cost: Micros | None
    reviewers: list[str]
    answers: list[Any]


def reported(seats: list[SeatRow], deciders: Iterable[str]) -> Reported:
    """Return what reviewers have reported: the rewards of these deciders are averaged, costs added up."""
    rewards = {}
    for name in deciders:
        given = [seat.rewards[name] for seat in seats if name in seat.rewards]
        if given:
            rewards[name] = average(given)
    return Reported(
        rewards=rewards,
        cost=added(*(seat.cost for seat in seats)),
        reviewers=[seat.reviewer or "" for seat in seats],
        answers=[msgspec.json.decode(seat.answer) for seat in seats if seat.answer is not None],
    )


def average(values: list[float]) -> float:
    """Return the mean of values, which is none that is beyond all of them.

    >>> sum([0.1] * 3) / 3, average([0.1] * 3)
    (0.10000000000000002, 0.1)
    """
    return min(max(sum(values) / len(values), min(values)), max(values))


def added(*costs: Micros | None) -> Micros | None:
    """Return the sum of the costs that are known; None if none is.

    >>> added({"cost": 5}, None, {"cost": 3}), added(None)
    ({'cost': 8}, None)
    """
    known = [cost for cost in costs if cost is not None]
    return {name: sum(cost[name] for cost in known) for name in known[0]} if known else None
