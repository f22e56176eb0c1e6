"""Commands that wait for a fit, or while another thread has their policy, while everything else goes on.

A learner fits trees in a thread of its own. What was fitted takes effect with a certain observation, and if the fit is
not done by then, that observation would wait for it in the event loop. So it is put aside until the fit is done;
decisions, and the commands of other policies, do not wait. While a large policy is copied for a snapshot, or its
learner learns an outcome in another thread, all of its commands are put aside.
"""

import asyncio
from collections.abc import Mapping
from typing import Generic

from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.fair_queue import FairQueue, Item
from deferkit.serve.engine.ownership import Key
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.transaction import ReadSet

LOOK_S = 0.002  # between two looks at a fit that is waited for


class PendingFits(Generic[Item]):
    """Puts commands aside in the queue, and requeues them."""

    def __init__(self, queue: FairQueue[Item], owned: Mapping[Key, OwnedPolicy]) -> None:
        self.queue = queue
        self.owned = owned
        self._waiting: set[asyncio.Task[None]] = set()

    def must_wait(self, owned: OwnedPolicy, reads: ReadSet, work: UnitOfWork) -> bool:
        """Whether a command with these needs may come to wait for a fit, or change what another thread has."""
        if reads.replaces:
            return False
        return owned.held or (owned.policy.learner.awaits_fit and work.observes(reads))

    def put_aside(self, key: Key, item: Item) -> None:
        """Put a command aside until its policy is fitted, copied or has learned."""
        if key not in self.queue.aside:
            task = asyncio.create_task(self._put_back(key))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        self.queue.put_aside(key, item)

    async def _put_back(self, key: Key) -> None:
        while (owned := self.owned.get(key)) is not None and (owned.held or owned.policy.learner.awaits_fit):
            await asyncio.sleep(LOOK_S)
        self.queue.put_back(key)
