"""Limits libraries to one thread: matrix products are small here, and several threads would wait for each other."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class OneThread:
    """Limits a library to one thread in `with` blocks: the first to enter sets the limit, the last to leave resets it.

    The limit is that of the process, so that two learners in two threads must not reset each other's.
    """

    def __init__(self, limit: Callable[[], Callable[[], None]]) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._inside = 0
        self._reset: Callable[[], None] = lambda: None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return a context manager within which the limit holds."""
        with self._lock:
            if self._inside == 0:
                self._reset = self._limit()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._reset()


@functools.cache
def controller() -> Any:
    """Return the controller of the loaded libraries, which takes milliseconds to make."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - an extra

    return ThreadpoolController()


def limit_blas() -> Callable[[], None]:
    """Limit BLAS to one thread; return a function that restores the limit."""
    limiter: Any = controller().limit(limits=1, user_api="blas")
    reset: Callable[[], None] = limiter.restore_original_limits
    return reset


one_thread = OneThread(limit_blas)
