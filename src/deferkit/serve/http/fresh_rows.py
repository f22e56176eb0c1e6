"""Rows that every call needs, read from the database again when they are too old."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Generic, TypeVar

Id = TypeVar("Id")
Row = TypeVar("Row")


class FreshRows(Generic[Id, Row]):
    """All rows of a table by id, in memory.

    Args:
        read: Reads them from the database.
        thread: Where that is done.
    """

    def __init__(self, read: Callable[[], Mapping[Id, Row]], thread: Executor) -> None:
        self._read = read
        self._thread = thread
        self._rows: Mapping[Id, Row] | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def get(self, age_s: float) -> Mapping[Id, Row]:
        """Return the rows, as they were this long ago at most."""
        if self._rows is None or time.monotonic() - self._read_at > age_s:
            async with self._reading:
                if self._rows is None or time.monotonic() - self._read_at > age_s:
                    began = time.monotonic()
                    self._rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._read)
                    self._read_at = began
        return self._rows

    async def put(self, number: Id, row: Row) -> None:
        """Take note of a row that was written, before all are read the next time."""
        async with self._reading:  # who reads them now may have begun before it was written
            if self._rows is not None:
                self._rows = {**self._rows, number: row}

    def forget(self) -> None:
        """Read them anew at the next call: one was written."""
        self._read_at = -math.inf
