"""Periodic maintenance: expires tasks, drops old parked outcomes, erases payloads, renews budgets, ends deletions."""

import asyncio
from collections.abc import Awaitable, Callable

from deferkit.serve.api.common import Reply
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.problems import Problem
from deferkit.serve.engine.commands.outcome import PARKED_S, Forget, is_full
from deferkit.serve.engine.commands.upkeep import EraseExpired, Expire, RenewIdle, has_many_due
from deferkit.serve.engine.ownership import Key, Ownership
from deferkit.serve.engine.unit_of_work import Command
from deferkit.serve.structured_logs import logger

OVERDUE_AT_ONCE = 100
RETENTION_EVERY = 60 * MICRO  # microseconds between two searches for payloads past their retention
PARKED_DROPPED_AT_ONCE = 1000
FIRST_PAGE = (-1, "")  # cursor of the overdue tasks: a deadline and a task
UNAVAILABLE = 503

Submit = Callable[[Key, Command], Awaitable[Reply]]


class Maintenance:
    """Submits the commands of periodic maintenance; each method is run every tick."""

    def __init__(self, ownership: Ownership, submit: Submit) -> None:
        self.ownership = ownership
        self.submit = submit
        self._next_erasure: dict[Key, int] = {}

    async def reap(self) -> None:
        """Expire tasks whose deadline has passed."""
        for key, owned in list(self.ownership.owned.items()):
            if owned.policy.spec.after_deadline == "model":
                now, after = owned.time(self.ownership.clock.now()), FIRST_PAGE
                overdue = self.ownership.store.overdue
                while page := await asyncio.to_thread(overdue, owned.id, now, after, OVERDUE_AT_ONCE):
                    if not await self._expire(key, [task for _, task in page]):
                        break
                    after = page[-1]

    async def _expire(self, key: Key, tasks: list[str]) -> bool:
        """Expire tasks, each by itself; False if one was answered 503, so that the rest waits for the next tick."""
        calls = [self.submit(key, Expire(task, "its deadline has passed")) for task in tasks]
        results = await asyncio.gather(*calls, return_exceptions=True)
        problems = [result for result in results if isinstance(result, Problem)]
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Problem):
                raise result
        if problems:
            logger.warning(
                "tasks were not expired",
                extra={"policy": key[1], "tasks": len(problems), "error": str(problems[0])},
            )
        return all(problem.status != UNAVAILABLE for problem in problems)

    async def renew_idle(self) -> None:
        """Renew the budgets of policies that had no call for many periods."""
        for key, owned in list(self.ownership.owned.items()):
            if owned.blocked or not has_many_due(owned, owned.time(self.ownership.clock.now())):
                continue
            try:
                await self.submit(key, RenewIdle())
            except Problem as problem:  # the other policies go on
                logger.warning("budgets were not renewed", extra={"policy": key[1], "error": str(problem)})

    async def finish_deletions(self) -> None:
        """Delete the remaining rows of retired policies, whose deletion was interrupted."""
        for number in await asyncio.to_thread(self.ownership.store.retired_policies):
            await self.ownership.purge(number)

    async def drop_old_parked(self) -> None:
        """Drop the oldest parked outcomes of policies that have `MAX_PARKED`."""
        for key, owned in list(self.ownership.owned.items()):
            if is_full(owned):
                before = owned.time(self.ownership.clock.now()) - PARKED_S * MICRO
                tasks = await asyncio.to_thread(
                    self.ownership.store.old_parked, owned.id, before, PARKED_DROPPED_AT_ONCE
                )
                if tasks:
                    dropped = int((await self.submit(key, Forget(tasks))).body)
                    owned.dropped_parked += dropped
                    logger.warning("parked outcomes were dropped", extra={"policy": key[1], "outcomes": dropped})

    async def erase_expired(self) -> None:
        """Erase payloads and model answers of ended tasks that are older than the retention of their policy."""
        for key, owned in list(self.ownership.owned.items()):
            retention_s, now = owned.policy.spec.retention_used, owned.time(self.ownership.clock.now())
            if retention_s is None or now < self._next_erasure.get(key, 0):
                continue
            before = now - int(retention_s * MICRO)
            self._next_erasure[key] = now + RETENTION_EVERY
            try:
                while await asyncio.to_thread(self.ownership.store.has_old_payloads, owned.id, before):
                    await self.submit(key, EraseExpired(before))
            except Problem as problem:  # the other policies go on
                logger.warning("payloads were not erased", extra={"policy": key[1], "error": str(problem)})
