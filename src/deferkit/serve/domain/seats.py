"""Seats of reviewers at a task: claim tokens, and the sum of what the reviewers have reported."""

import hmac
import secrets
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from deferkit.serve.domain.accounts import Micros
from deferkit.serve.domain.api_keys import hash_of
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.request_bodies import LeaseBody
from deferkit.serve.domain.rows import ClaimRow, SeatRow


def new_token() -> str:
    """Return a claim token of 256 random bits."""
    return secrets.token_urlsafe(32)


def check_token(body: LeaseBody, stored: bytes | None) -> None:
    """Raise if a call does not have the token of its claim.

    Args:
        body: The call; its `token` is what `claim` returned.
        stored: The hash of the claim's token; None for a claim created before tokens existed, which needs none.
    """
    if stored is None:
        return
    given = b"" if body.token is msgspec.UNSET else hash_of(body.token)
    if not hmac.compare_digest(given, stored):
        raise Problem(403, "forbidden", f"The token is not that of the claim of epoch {body.epoch} on {body.task!r}.")


def check_bound(bound: str | None, reviewer: str) -> None:
    """Raise if the key or session of a caller is for one reviewer, and that is another.

    Args:
        bound: The only reviewer that the caller may act for; None: any.
        reviewer: The one that the call is about.
    """
    if bound is not None and bound != reviewer:
        raise Problem(403, "forbidden", f"The key is for the reviewer {bound!r} alone.")


def claim_of(body: LeaseBody, claims: Iterable[ClaimRow], bound: str | None) -> ClaimRow | None:
    """Return the claim of a call, from the claims of its task; None without one.

    Raises if the caller is `bound` to another reviewer than that of the claim, also with the right token.
    """
    for claim in claims:
        if (claim.seat, claim.epoch) == (body.seat, body.epoch):
            check_bound(bound, claim.reviewer)
            return claim
    return None


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
