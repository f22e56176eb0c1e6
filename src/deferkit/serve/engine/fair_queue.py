"""A bounded queue in which no tenant can keep the others from their turn."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from deferkit.serve.domain.problems import unavailable

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Takes items of tenants in turn.

    >>> queue = FairQueue[int](limit=4, share=0.5)
    >>> queue.put("a", 1), queue.put("a", 2), queue.put("b", 3)
    (None, None, None)
    >>> queue.put("a", 4)
    Traceback (most recent call last):
    deferkit.serve.domain.problems.Problem: Too much is waiting: 2 of your calls. Try again.
    >>> asyncio.run(queue.take(2))
    [1, 3]
    """

    def __init__(self, *, limit: int, share: float) -> None:
        self.limit = limit
        self.share = max(1, int(limit * share))
        self.waiting: dict[str, deque[Item]] = {}
        self.aside: dict[tuple[str, str], deque[Item]] = {}  # by tenant and what they wait for
        self.length = 0  # of both
        self._some = asyncio.Event()

    def put(self, tenant: str, item: Item) -> None:
        """Add an item, or raise if the queue, or this tenant's part of it, is full."""
        mine = self.waiting.get(tenant)
        n = 0 if mine is None else len(mine)
        if self.aside:
            n += sum(len(items) for key, items in self.aside.items() if key[0] == tenant)
        if self.length >= self.limit or n >= self.share:
            raise unavailable(f"Too much is waiting: {n} of your calls. Try again.")
        if mine is None:
            mine = self.waiting[tenant] = deque()
        mine.append(item)
        self.length += 1
        self._some.set()

    def put_aside(self, key: tuple[str, str], item: Item) -> None:
        """Take an item back that cannot be done now: it waits until `put_back`, and counts as waiting."""
        self.aside.setdefault(key, deque()).append(item)
        self.length += 1

    def put_back(self, key: tuple[str, str]) -> None:
        """Let all that was put aside under a key go on, before what its tenant has waiting."""
        if items := self.aside.pop(key, None):
            items.extend(self.waiting.get(key[0], ()))
            self.waiting[key[0]] = items
            self._some.set()

    async def take(self, most: int, size: Callable[[Item], int] = lambda _: 1) -> list[Item]:
        """Return what waits, as soon as there is something, until it is this much; each tenant's in order."""
        await self._some.wait()
        taken: list[Item] = []
        while self.waiting and most > 0:
            tenant = next(iter(self.waiting))
            mine = self.waiting.pop(tenant)
            taken.append(mine.popleft())
            most -= size(taken[-1])
            if mine:
                self.waiting[tenant] = mine  # behind all others, whenever the next group is taken
        self.length -= len(taken)
        if not self.waiting:
            self._some.clear()
        return taken
