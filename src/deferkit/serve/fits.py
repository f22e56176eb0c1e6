"""Commands that wait for a fit, while everything else goes on.

A learner fits trees in a thread of its own. What was fitted takes effect with a certain observation, and if the fit is
not done by then, that observation would wait for it in the event loop. So it is put aside until the fit is done;
decisions, and the commands of other policies, do not wait.
"""

import asyncio
from collections.abc import Mapping
from typing import Generic

from deferkit.serve.custody import Key
from deferkit.serve.fair_queue import FairQueue, Item
from deferkit.serve.work import Held, Needs, Work

LOOK_S = 0.002  # between two looks at a fit that is waited for


class Fits(Generic[Item]):
    """Puts commands aside in the queue that they came from, and back."""

    def __init__(self, queue: FairQueue[Item], held: Mapping[Key, Held]) -> None:
        self.queue = queue
        self.held = held
        self._waiting: set[asyncio.Task[None]] = set()

    def must_wait(self, held: Held, needs: Needs, work: Work) -> bool:
        """Whether a command with these needs may come to wait for a fit."""
        return held.policy.learner.awaits_fit and work.observes(needs)

    def put_aside(self, key: Key, item: Item) -> None:
        """Put a command aside until the fit of its policy is done."""
        if key not in self.queue.aside:
            task = asyncio.create_task(self._put_back(key))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        self.queue.put_aside(key, item)

    async def _put_back(self, key: Key) -> None:
        while (held := self.held.get(key)) is not None and held.policy.learner.awaits_fit:
            await asyncio.sleep(LOOK_S)
        self.queue.put_back(key)
