"""Checks of reported rewards and costs: known deciders, ranges, whole micro-units, sums that accounts can hold."""

from collections.abc import Mapping

from deferkit.errors import DeferkitError
from deferkit.serve.domain.money import LARGEST_SUM, Micros, to_micros
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import invalid
from deferkit.types import Amount, is_number


def check_rewards(owned: OwnedPolicy, rewards: Mapping[str, float]) -> None:
    """Raise if the decider of a reward is unknown, or the reward out of range."""
    low, high = owned.policy.learner.settings.reward_bounds
    for name, value in rewards.items():
        if name not in owned.policy.spec.deciders:
            raise invalid(f"There is no decider {name!r}. There is {', '.join(owned.policy.spec.deciders)}.")
        if not is_number(value) or not low <= value <= high:
            raise invalid(f"The reward of {name} is a number from {low:g} to {high:g}. Got {value!r}.")


def cost_of(owned: OwnedPolicy, cost: Amount | None) -> Micros | None:
    """Return a cost in micro-units; raise if it is invalid."""
    if cost is None:
        return None
    try:
        return to_micros("cost", cost, owned.policy.spec.resources)
    except DeferkitError as error:
        raise invalid(str(error)) from error


def has_room(owned: OwnedPolicy, micros: Micros, released: Micros | None = None) -> bool:
    """Whether the sums of the accounts stay within `LARGEST_SUM` if these amounts are added and one is released."""
    less = released or {}
    return all(owned.policy.accounts[name].has_room(micro - less.get(name, 0)) for name, micro in micros.items())


def check_room(owned: OwnedPolicy, micros: Micros, released: Micros | None = None) -> None:
    """Raise if a cost would make the sums of an account exceed `LARGEST_SUM`."""
    if not has_room(owned, micros, released):
        raise invalid(
            f"With this cost more than {LARGEST_SUM:,} would be booked or reserved, which is the most that an account"
            " holds: count in a larger unit."
        )
