"""Steps of large learners in other threads, while the commands of all other policies go on.

With one observation a learner may recompute all of its inverses, or fit all that it has seen once more: seconds, with
a thousand features. The outcome is recorded and committed at once; the step runs after the commit, and the commands of
its policy wait until it is done (`PendingFits`). What is learned is the same as if it had run at once.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.ownership import Ownership
from deferkit.serve.structured_logs import logger

MOST_THREADS = 32  # that run steps: more tenants than that wait for each other


class LearningSteps:
    """Runs deferred steps of learners, of each tenant one at a time.

    Parameters
    ----------
    ownership
        The policies of this process; one whose step fails is rebuilt from its log.
    charge
        Is told of the tenant and the seconds of each run.
    """

    def __init__(self, ownership: Ownership, charge: Callable[[str, float], None]) -> None:
        self.ownership = ownership
        self.charge = charge
        self._threads = ThreadPoolExecutor(max_workers=MOST_THREADS, thread_name_prefix="learner")
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by tenant
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Whether a learner has yet to learn something."""
        return bool(self._running)

    def start(self, owned: OwnedPolicy, then: Callable[[OwnedPolicy], Awaitable[None]]) -> None:
        """Run the deferred steps of a policy that is committed, and `then` what comes after them."""
        task = asyncio.create_task(self._run(owned, then))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, owned: OwnedPolicy, then: Callable[[OwnedPolicy], Awaitable[None]]) -> None:
        async with self._turns[owned.tenant]:
            began = time.perf_counter()
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, owned.policy.learn_deferred)
            except Exception:
                logger.exception("a learner failed; it is rebuilt from its log", extra={"policy": owned.id})
                self.ownership.mark_policy_dirty(owned)
                return
            finally:
                self.charge(owned.tenant, time.perf_counter() - began)
        await then(owned)

    def close(self) -> None:
        """End the threads, when nothing is running."""
        self._threads.shutdown()
