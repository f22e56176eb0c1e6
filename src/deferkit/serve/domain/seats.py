"""Seats of reviewers at a task: claim tokens, and the sum of what the reviewers have reported."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from deferkit.serve.domain.accounts import Micros
from deferkit.serve.domain.rows import SeatRow


class Reported(NamedTuple):
    """The merged reports of a task's reviewers: mean rewards, summed costs."""

    rewards: dict[str, float]
    cost: Micros | None
    reviewers: list[str]
    answers: list[Any]


def combine_reports(seats: list[SeatRow], deciders: Iterable[str]) -> Reported:
    """Return the combined reports of reviewers: mean rewards of these deciders, sum of costs."""
    rewards = {}
    for name in deciders:
        given = [seat.rewards[name] for seat in seats if name in seat.rewards]
        if given:
            rewards[name] = average(given)
    return Reported(
        rewards=rewards,
        cost=sum_costs(*(seat.cost for seat in seats)),
        reviewers=[seat.reviewer or "" for seat in seats],
        answers=[msgspec.json.decode(seat.answer) for seat in seats if seat.answer is not None],
    )


def average(values: list[float]) -> float:
    """Return the mean of values, clamped to their range.

    >>> sum([0.1] * 3) / 3, average([0.1] * 3)
    (0.10000000000000002, 0.1)
    """
    return min(max(sum(values) / len(values), min(values)), max(values))


def sum_costs(*costs: Micros | None) -> Micros | None:
    """Return the sum of the known costs; None if no cost is known.

    >>> sum_costs({"cost": 5}, None, {"cost": 3}), sum_costs(None)
    ({'cost': 8}, None)
    """
    known = [cost for cost in costs if cost is not None]
    return {name: sum(cost[name] for cost in known) for name in known[0]} if known else None
