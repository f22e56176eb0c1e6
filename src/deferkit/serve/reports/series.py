"""Time series of a policy: cached histories and replies."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from deferkit.serve.api.reports import Gaps, SeriesReply, Standing
from deferkit.serve.domain import records as log_records
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.records import AnyRecord
from deferkit.serve.reports.history import (
    Figures,
    LogFigures,
    LogFold,
    PlanPoint,
    Recent,
    log_figures_of,
    planned_spending,
)
from deferkit.serve.storage.store import Store
from deferkit.types import MODEL


def series_reply(
    fold: LogFold, buckets: int, records: int, tasks_left: Mapping[str, float | None] | None = None
) -> SeriesReply:
    """Return the series of a policy.

    Args:
        fold: What was read of its log.
        buckets: How many at most.
        records: How long the log is.
        tasks_left: How many tasks are expected until the end of the current period, by resource that has one.
    """
    fold.close()
    width, starts, rows = fold.series.spread(buckets)
    resources = list(fold.accounts)
    left = (tasks_left or {}) if fold.seq >= records else None
    return SeriesReply(
        complete=fold.seq >= records,
        read=fold.seq,
        records=max(records, fold.seq),
        width_s=width / MICRO,
        start=[start / MICRO for start in starts],
        decisions=[row.decisions for row in rows],
        deferred=[row.decisions - row.routes.get(MODEL, 0) for row in rows],
        routes={name: [row.routes.get(name, 0) for row in rows] for name in deciders(fold)},
        reasons={name: [row.reasons.get(name, 0) for row in rows] for name in fold.reasons},
        posted={name: [row.accounts[name].posted / MICRO for row in rows] for name in resources},
        reserved={name: [row.accounts[name].reserved / MICRO for row in rows] for name in resources},
        plan={name: plan_of(fold, name, rows, None if left is None else left.get(name) or 0.0) for name in resources},
        price={name: [None if row.price is None else row.price[name] for row in rows] for name in resources},
        gain=[row.gain for row in rows],
        gain_error=[row.gain_error for row in rows],
    )


def deciders(fold: LogFold) -> tuple[str, ...]:
    """Return the model and the experts."""
    return () if fold.spec is None else fold.spec.deciders


def plan_of(fold: LogFold, resource: str, rows: list[Figures], left: float | None) -> Gaps | None:
    """Return the planned spending at each row; None if the resource has no limit.

    Args:
        fold: What was read of the log.
        resource: Whose plan it is.
        rows: The rows of the series.
        left: Tasks that are still expected in the current period; None if that is not known, so that it has no plan.
    """
    if fold.spec is None or fold.accounts[resource].total is None:
        return None
    budget, current = fold.spec.budget[resource], fold.period_tasks.get(resource)
    found: Gaps = []
    for row in rows:
        tasks = row.period_tasks.get(resource)
        to_come = 0.0 if tasks is None or tasks is not current else left
        point = PlanPoint(row.decisions, row.accounts[resource], row.periods.get(resource), tasks)
        found.append(None if to_come is None else planned_spending(budget, point, to_come))
    return found


SLICE = 500  # rows of the log that are read at a time
MAX_TASK_RECORDS = 1000  # records of one task
SLEEP_RATIO = 1.0  # sleep after each slice, relative to its duration, so that decisions get the processor
Result = TypeVar("Result")


class History:
    """The history of one policy. One thread alone reads and changes the fold."""

    def __init__(self, store: Store, policy: int, thread: ThreadPoolExecutor) -> None:
        self._store = store
        self._policy = policy
        self._thread = thread
        self._reading: asyncio.Task[None] | None = None
        self._last: tuple[int, bytes] | None = None  # the last row that was read
        self._checked = True  # the log is known to be the one that was folded
        self.fold = LogFold(self._records_of)
        self.latest: LogFigures | None = None  # at the end of what was read; replaced, never changed
        self.standing: Recent[Standing] = Recent()
        self._series: dict[int, Recent[bytes]] = {}  # by the number of buckets

    @property
    def read(self) -> int:
        """How many records were read."""
        return self.fold.seq

    async def catch_up(self, records: int, wait_s: float) -> bool:
        """Read the log until `records` were folded; return whether that was done in time.

        Args:
            records: How long the log is.
            wait_s: Seconds to wait; reading goes on after them.
        """
        if self._checked and self.read == records:
            return True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_log())
        await asyncio.wait([self._reading], timeout=wait_s)
        if self._reading.done():
            self._reading.result()
        return self.read >= records

    async def query(self, read: Callable[[LogFold], Result]) -> Result:
        """Run a function on the fold in its thread, between two slices; return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, read, self.fold)

    async def series(
        self, buckets: int, records: int, wait_s: float, tasks_left: Mapping[str, float | None]
    ) -> msgspec.Raw:
        """Return the series as JSON.

        Args:
            buckets: How many at most.
            records: How long the log is.
            wait_s: Seconds to wait for the log to be read.
            tasks_left: How many tasks are expected until the end of the current period, by resource that has one.
        """
        recent = self._series.setdefault(buckets, Recent())
        if (kept := recent.get(records)) is not None:
            return msgspec.Raw(kept)
        await self.catch_up(records, wait_s)
        made = await self.query(lambda fold: msgspec.json.encode(series_reply(fold, buckets, records, tasks_left)))
        recent.store(records, made)
        return msgspec.Raw(made)

    async def _read_log(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if await loop.run_in_executor(self._thread, self._read_slice) < SLICE:
                return
            await asyncio.sleep(SLEEP_RATIO * (loop.time() - began))

    def check(self) -> None:
        """Verify at the next slice that the log is still the same: the number of a deleted policy may be reused."""
        self._checked = False

    def _read_slice(self) -> int:
        if not self._checked:
            self._restart_if_replaced()
        fold = self.fold
        rows = self._store.log_bodies(self._policy, fold.seq, SLICE)
        for at, body in rows:
            fold.apply(at, log_records.decode(body))
        if rows:
            self._last = rows[-1]
            self.latest = log_figures_of(fold)
        return len(rows)

    def _restart_if_replaced(self) -> None:
        """Discard the fold if the last row that was read has changed."""
        if self.fold.seq and self._store.log_bodies(self._policy, self.fold.seq - 1, 1) != [self._last]:
            self.fold = LogFold(self._records_of)
            self.latest = None
        self._checked = True

    def _records_of(self, task: str, before: int) -> list[AnyRecord]:
        rows = self._store.log_of_task(self._policy, task, MAX_TASK_RECORDS)
        return [log_records.decode(bytes(row.body)) for row in rows if row.seq < before]


class Histories:
    """The histories of the policies that this process owns.

    Args:
        store: Where the logs are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._histories: dict[int, tuple[OwnedPolicy, History]] = {}

    def of(self, owned: OwnedPolicy) -> History:
        """Return the history of a policy."""
        before, history = self._histories.get(owned.id) or (None, History(self._store, owned.id, self._thread))
        if before is not owned:
            history.check()
            self._histories[owned.id] = (owned, history)
        return history

    def forget(self, owned: set[int]) -> None:
        """Drop the histories of policies that this process does not own any more."""
        for number in self._histories.keys() - owned:
            del self._histories[number]

    def close(self) -> None:
        """Stop reading, after the slice that is being read."""
        self._thread.shutdown(wait=True, cancel_futures=True)
