"""The places of reviewers at a task, and what those who sat there have reported."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from deferkit.serve.money import Micros
from deferkit.serve.storage.rows import CLAIMED, CLOSED, DONE, WAITING, DecisionRow, SeatRow
from deferkit.serve.work import Work


class Reported(NamedTuple):
    """What the reviewers of a task have reported, taken together."""

    rewards: dict[str, float]
    cost: Micros | None
    reviewers: list[str]
    answers: list[Any]


def answered(work: Work, row: DecisionRow) -> list[SeatRow]:
    """Return the seats of a task whose reviewers have answered."""
    return [seat for seat in work.seats.get((row.policy, row.task), []) if seat.state == DONE]


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


def close(work: Work, row: DecisionRow) -> None:
    """Close the seats of a task that needs no reviewer any more. Their epochs stay: late answers are refused."""
    seats = work.seats.get((row.policy, row.task), [])
    if any(seat.state in (WAITING, CLAIMED) for seat in seats):
        work.put_seats([seat._replace(state=CLOSED) if seat.state in (WAITING, CLAIMED) else seat for seat in seats])
