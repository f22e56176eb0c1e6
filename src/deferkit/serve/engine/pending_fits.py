"""Blocking of commands whose policy waits for a fit or is used by another thread; all others go on.

A learner fits trees in a thread of its own. What was fitted takes effect with a certain observation, and if the fit is
not done by then, that observation would block the event loop. So its command is blocked in the queue until the fit is
done; decisions, and the commands of other policies, do not wait. While a large policy is copied for a snapshot, or its
learner learns an outcome in another thread, all of its commands are blocked.
"""

import asyncio
from collections.abc import Mapping
from typing import Generic

from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.fair_queue import FairQueue, Item
from deferkit.serve.engine.ownership import Key
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.transaction import ReadSet

POLL_S = 0.002  # seconds between two polls of a fit


class PendingFits(Generic[Item]):
    """Blocks commands in the queue, and unblocks them when their policy is free."""

    def __init__(self, queue: FairQueue[Item], owned: Mapping[Key, OwnedPolicy]) -> None:
        self.queue = queue
        self.owned = owned
        self._polling: set[asyncio.Task[None]] = set()

    def must_wait(self, owned: OwnedPolicy, reads: ReadSet, work: UnitOfWork) -> bool:
        """Whether a command with this read set may wait for a fit, or change a policy that another thread uses."""
        if reads.replaces:
            return False
        return owned.blocked or (owned.policy.learner.awaits_fit and work.observes(reads))

    def block(self, key: Key, item: Item) -> None:
        """Block a command until its policy is fitted, copied or has learned."""
        if key not in self.queue.blocked:
            task = asyncio.create_task(self._unblock_when_free(key))
            self._polling.add(task)
            task.add_done_callback(self._polling.discard)
        self.queue.block(key, item)

    async def _unblock_when_free(self, key: Key) -> None:
        while (owned := self.owned.get(key)) is not None and (owned.blocked or owned.policy.learner.awaits_fit):
            await asyncio.sleep(POLL_S)
        self.queue.unblock(key)
