"""Parked outcomes: those that come before their decisions. Each API key has a share of the room for them."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict, unavailable
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import OutcomeBody
from deferkit.serve.engine.commands.reported_values import cost_of
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.transaction import ReadSet

MOST_PARKED = 10_000
MOST_KEY_SETS = 200  # of two or more API keys that have parked the same outcomes
PARKED_S = 86_400  # seconds after which parked outcomes are dropped, where `MOST_PARKED` is reached


def is_full(owned: OwnedPolicy) -> bool:
    """Whether no more outcomes can be parked."""
    return owned.parked >= MOST_PARKED


def joined_keys(keys: str, key: str) -> str:
    """Return the API keys of a parked outcome, which are separated by spaces, with another one.

    >>> joined_keys("b", "a"), joined_keys("a b", "b"), joined_keys("", "a")
    ('a b', 'a b', ' a')
    """
    return " ".join(sorted({*keys.split(" "), key}))


def parked_shares(owned: OwnedPolicy) -> Counter[str]:
    """Return how many outcomes each API key has parked. One of several keys counts for each of them."""
    shares: Counter[str] = Counter()
    for keys, outcomes in owned.parked_by.items():
        for key in keys.split(" ") if " " in keys else (keys,):
            shares[key] += outcomes
    return shares


def check_key_sets(owned: OwnedPolicy, keys: str) -> None:
    """Raise if too many sets of API keys have parked outcomes together: whoever needs room looks at all of them."""
    if keys not in owned.parked_by and sum(" " in each for each in owned.parked_by) >= MOST_KEY_SETS:
        raise unavailable(
            f"{MOST_KEY_SETS} sets of API keys have parked outcomes of the same tasks; there is no room for another.",
            retry_after=60,
        )


def keys_with_most_parked(owned: OwnedPolicy, shares: Mapping[str, int]) -> str:
    """Return the API keys whose outcome is dropped next: the one of them that has parked least has parked most.

    So an outcome of several keys is safe as long as one of them keeps to its share, whatever the others park: nobody
    can have it dropped by adding to it, or by being there before it. It does not help those who would fill the room
    with several keys either: what keeps an outcome safe counts for its own share.
    """
    return max(owned.parked_by, key=lambda keys: least_share(keys, shares), default="")


def least_share(keys: str, shares: Mapping[str, int]) -> int:
    """Return how many outcomes the one of some API keys has parked that has parked least."""
    return min(map(shares.__getitem__, keys.split(" "))) if " " in keys else shares[keys]


def evict_parked(owned: OwnedPolicy, work: UnitOfWork, key: str) -> None:
    """Evict the oldest outcome of the keys that have parked most; raise if the caller's key has as much."""
    shares = parked_shares(owned)
    most = keys_with_most_parked(owned, shares)
    if shares[key] + 1 >= least_share(most, shares):
        raise unavailable(
            f"{MOST_PARKED:,} outcomes wait for their decisions; there is no room for another.", retry_after=60
        )
    for row in work.oldest_parked.get((owned.id, most), ()):
        there = work.parked.get((owned.id, row.task), row)
        if there is not None and there.key == most:  # else it was decided, dropped or added to in this group
            work.unpark(owned, there)
            owned.dropped_parked += 1
            return
    raise unavailable("The room for outcomes that wait for their decisions is being shared out anew. Try again.")


def merge_outcomes(owned: OwnedPolicy, first: OutcomeBody, more: OutcomeBody) -> OutcomeBody:
    """Merge two parked outcomes of a task; raise if they contradict each other."""
    rewards = first.rewards | more.rewards
    if any(rewards[name] != value for name, value in first.rewards.items()):
        raise conflict(f"Another outcome of task {more.task!r} waits for its decision.")
    if first.cost is None:
        return msgspec.structs.replace(first, rewards=rewards, cost=more.cost)
    if more.cost is not None and cost_of(owned, more.cost) != cost_of(owned, first.cost):
        raise conflict(f"Another cost of task {more.task!r} waits for its decision.")
    return msgspec.structs.replace(first, rewards=rewards)


class Forget:
    """Drop parked outcomes older than `PARKED_S`. Spans carry the name of this class (`deferkit.forget`)."""

    def __init__(self, tasks: list[str]) -> None:
        self.tasks = tuple(tasks)

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, self.tasks, parked=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Drop those that are still there, and as old; reply how many."""
        parked = [work.parked[owned.id, task] for task in self.tasks]
        old = [row for row in parked if row is not None and row.at < now - PARKED_S * MICRO]
        for row in old:
            work.unpark(owned, row)
        return Reply(200, msgspec.json.encode(len(old)))
