"""A bounded queue with backpressure and fair queueing between tenants, by measured processor time.

The processor time of a tenant's commands is charged to it, and the tenant with the lowest charge is next. Tenants whose
charges differ by less than `TURN_S` take turns (round robin). A full queue, or tenant's share of it, refuses commands
with 503.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from deferkit.serve.domain.problems import unavailable

TURN_S = 0.005  # seconds of the processor that one turn is worth
NEWEST = 0.2  # weight of the latest command in a tenant's moving average (EWMA)

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A bounded queue, fair between tenants by processor time. Blocked items count towards its limits.

    >>> queue = FairQueue[int](limit=4, share=0.5)
    >>> queue.add("a", 1), queue.add("a", 2), queue.add("b", 3)
    (None, None, None)
    >>> queue.add("a", 4)
    Traceback (most recent call last):
    deferkit.serve.domain.problems.Problem: Too many calls wait, 2 of them yours. Try again.
    >>> asyncio.run(queue.take(2))
    [1, 3]
    """

    def __init__(self, *, limit: int, share: float) -> None:
        self.limit = limit
        self.share = max(1, int(limit * share))
        self.waiting: dict[str, deque[Item]] = {}
        self.blocked: dict[tuple[str, str], deque[Item]] = {}  # by tenant and policy: not taken until `unblock`
        self.length = 0  # waiting and blocked
        self._some = asyncio.Event()
        self._charged: dict[str, float] = {}  # seconds of the processor, by tenant
        self._mean: dict[str, float] = {}  # seconds that a command of a tenant takes
        self._level = 0.0  # what the tenant whose turn it was last had been charged

    def add(self, tenant: str, item: Item) -> None:
        """Add an item, or raise if the queue, or this tenant's part of it, is full."""
        mine = self.waiting.get(tenant)
        n = 0 if mine is None else len(mine)
        if self.blocked:
            n += sum(len(items) for key, items in self.blocked.items() if key[0] == tenant)
        if self.length >= self.limit or n >= self.share:
            raise unavailable(f"Too many calls wait, {n} of them yours. Try again.")
        if mine is None:
            mine = self.waiting[tenant] = deque()
            # an idle tenant earns no credit: its charge is raised to the current level
            self._charged[tenant] = max(self._charged.get(tenant, 0.0), self._level)
        mine.append(item)
        self.length += 1
        self._some.set()

    def block(self, key: tuple[str, str], item: Item) -> None:
        """Add an item that cannot run until `unblock`; it counts towards the limits."""
        self.blocked.setdefault(key, deque()).append(item)
        self.length += 1

    def unblock(self, key: tuple[str, str]) -> None:
        """Requeue the blocked items of a key, before the tenant's other items."""
        if items := self.blocked.pop(key, None):
            items.extend(self.waiting.get(key[0], ()))
            self.waiting[key[0]] = items
            self._some.set()

    def put_first(self, tenant: str, items: list[Item]) -> None:
        """Requeue items that were taken and not run, before all others. Limits are not checked again."""
        self.waiting = {tenant: deque([*items, *self.waiting.pop(tenant, ())]), **self.waiting}
        self.length += len(items)
        self._some.set()

    def put_last(self, tenant: str, item: Item) -> None:
        """Requeue the rest of an unfinished item, behind its tenant's other items. Limits are not checked again."""
        self.waiting.setdefault(tenant, deque()).append(item)
        self.length += 1
        self._some.set()

    def charge(self, tenant: str, seconds: float) -> None:
        """Charge a tenant for the processor seconds of a command."""
        mean = self._mean.get(tenant, 0.0)
        self._mean[tenant] = mean + NEWEST * (seconds - mean)
        self._charged[tenant] = self._charged.get(tenant, self._level) + seconds

    def takes_long(self, tenant: str) -> bool:
        """Return whether the commands of a tenant need more processor time than one turn, on average."""
        return self._mean.get(tenant, 0.0) > TURN_S

    async def take(self, most: int, size: Callable[[Item], int] = lambda _: 1) -> list[Item]:
        """Wait for items, and return those whose sizes add up to `most`; first in, first out for each tenant.

        What an item of this group will cost is not known yet: its tenant's mean is charged provisionally.
        """
        await self._some.wait()
        if len(self.waiting) == 1:
            return self._take_of_one(most, size)
        taken: list[Item] = []
        charged = {tenant: self._charged.get(tenant, self._level) for tenant in self.waiting}
        turns = [(int(charged[tenant] / TURN_S), place, tenant) for place, tenant in enumerate(self.waiting)]
        heapify(turns)
        place = len(turns)
        while turns and most > 0:
            tenant = heappop(turns)[2]
            self._level = max(self._level, self._charged.get(tenant, 0.0))
            mine = self.waiting.pop(tenant)
            taken.append(mine.popleft())
            most -= size(taken[-1])
            if mine:
                self.waiting[tenant] = mine  # behind all others, whenever the next group is taken
                charged[tenant] += self._mean.get(tenant, 0.0)
                place += 1
                heappush(turns, (int(charged[tenant] / TURN_S), place, tenant))
        self.length -= len(taken)
        if not self.waiting:
            self._some.clear()
        return taken

    def _take_of_one(self, most: int, size: Callable[[Item], int]) -> list[Item]:
        """Take items while only one tenant waits, so that no turns are needed."""
        [(tenant, mine)] = self.waiting.items()
        taken: list[Item] = []
        self._level = max(self._level, self._charged.get(tenant, 0.0))
        while mine and most > 0:
            taken.append(mine.popleft())
            most -= size(taken[-1])
        if not mine:
            del self.waiting[tenant]
            self._some.clear()
        self.length -= len(taken)
        return taken
