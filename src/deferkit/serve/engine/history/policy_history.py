"""The figures of a policy's log, brought up to date by reading what was added to it, in slices in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.log_records import AnyRecord
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.history.log_figures import LogFigures, log_figures_of
from deferkit.serve.engine.history.log_fold import LogFold
from deferkit.serve.engine.history.series_reply import series_reply
from deferkit.serve.storage.store import Store

SLICE = 500  # rows of the log that are read at a time
MOST_OF_TASK = 1000  # records of one task
REST = 1.0  # after a slice of a long log the thread rests for so many times as long, for those who decide
Result = TypeVar("Result")


class History:
    """The history of one policy. One thread alone reads and changes the fold."""

    def __init__(self, store: Store, policy: int, thread: ThreadPoolExecutor) -> None:
        self._store = store
        self._policy = policy
        self._thread = thread
        self._reading: asyncio.Task[None] | None = None
        self._head: bytes | None = None  # the hash of the last row that was read
        self._checked = True  # the log is known to be the one that was read
        self.fold = LogFold(self._records_of)
        self.latest: LogFigures | None = None  # at the end of what was read; replaced, never changed
        self._series: tuple[tuple[int, ...], bytes] | None = None  # the last reply, and what it was made for

    @property
    def read(self) -> int:
        """How many records were read."""
        return self.fold.seq

    async def catch_up(self, records: int, wait_s: float) -> bool:
        """Read on, until so many records were read; return whether that was done in time.

        Args:
            records: How long the log is.
            wait_s: Seconds to wait; reading goes on after them.
        """
        if self._checked and self.read == records:
            return True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        await asyncio.wait([self._reading], timeout=wait_s)
        if self._reading.done():
            self._reading.result()
        return self.read >= records

    async def ask(self, question: Callable[[LogFold], Result]) -> Result:
        """Return what the fold answers, between two slices."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, question, self.fold)

    async def series(self, buckets: int, records: int) -> msgspec.Raw:
        """Return the series as JSON; made once for all who ask for the same.

        Args:
            buckets: How many at most.
            records: How long the log is.
        """
        return msgspec.Raw(await self.ask(lambda fold: self._encoded_series(fold, buckets, records)))

    def _encoded_series(self, fold: LogFold, buckets: int, records: int) -> bytes:
        wanted = (fold.seq, buckets, records)
        if self._series is None or self._series[0] != wanted:
            self._series = wanted, msgspec.json.encode(series_reply(fold, buckets, records))
        return self._series[1]

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if await loop.run_in_executor(self._thread, self._slice) < SLICE:
                return
            await asyncio.sleep(REST * (loop.time() - began))

    def check(self) -> None:
        """Compare what was read with the log at the next call: the number of a deleted policy may be reused."""
        self._checked = False

    def _slice(self) -> int:
        last = self.fold.seq - 1
        rows = self._store.log_page(self._policy, max(0, last), SLICE)
        if last >= 0 and not (rows and rows[0].seq == last and bytes(rows[0].hash) == self._head):
            self.fold = LogFold(self._records_of)
            rows = self._store.log_page(self._policy, 0, SLICE)
        self._checked = True
        for row in rows:
            if row.seq == self.fold.seq:
                self.fold.take(row.at, log_records.decode(bytes(row.body)))
                self._head = bytes(row.hash)
        self.latest = log_figures_of(self.fold)
        return len(rows)

    def _records_of(self, task: str, before: int) -> list[AnyRecord]:
        rows = self._store.log_of_task(self._policy, task, MOST_OF_TASK)
        return [log_records.decode(bytes(row.body)) for row in rows if row.seq < before]


class Histories:
    """The histories of the policies that this process owns.

    Args:
        store: Where the logs are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._kept: dict[int, tuple[OwnedPolicy, History]] = {}

    def of(self, owned: OwnedPolicy) -> History:
        """Return the history of a policy."""
        before, history = self._kept.get(owned.id) or (None, History(self._store, owned.id, self._thread))
        if before is not owned:
            history.check()
            self._kept[owned.id] = (owned, history)
        return history

    def forget(self, owned: set[int]) -> None:
        """Drop the histories of policies that this process does not own any more."""
        for number in self._kept.keys() - owned:
            del self._kept[number]

    def close(self) -> None:
        """Stop reading, after the slice that is being read."""
        self._thread.shutdown(wait=True, cancel_futures=True)
