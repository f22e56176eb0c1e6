"""Deferred steps of large learners, in a thread pool.

One observation may make a learner recompute all of its inverses, or refit all samples: seconds, with a thousand
features. The outcome is recorded and committed at once; the step runs after the commit, while the commands of its
policy are blocked (`PendingFits`) and all others go on. The learned state is the same as without deferral.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.ownership import Ownership
from deferkit.serve.structured_logs import logger

MOST_THREADS = 32  # in the pool: the steps of more tenants wait for each other


class LearningSteps:
    """Runs deferred steps of learners, of each tenant one at a time.

    Parameters
    ----------
    ownership
        The policies of this process; one whose step fails is rebuilt from its log.
    charge
        Called with the tenant and the seconds of each run.
    """

    def __init__(self, ownership: Ownership, charge: Callable[[str, float], None]) -> None:
        self.ownership = ownership
        self.charge = charge
        self._threads = ThreadPoolExecutor(max_workers=MOST_THREADS, thread_name_prefix="learner")
        self._tenant_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by tenant
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Whether deferred steps are queued or running."""
        return bool(self._running)

    def start(self, owned: OwnedPolicy, then: Callable[[OwnedPolicy], Awaitable[None]]) -> None:
        """Run the deferred steps of a policy after its commit, and `then` the callback."""
        task = asyncio.create_task(self._run(owned, then))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, owned: OwnedPolicy, then: Callable[[OwnedPolicy], Awaitable[None]]) -> None:
        async with self._tenant_locks[owned.tenant]:
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
        """Shut down the thread pool, when nothing is running."""
        self._threads.shutdown()
