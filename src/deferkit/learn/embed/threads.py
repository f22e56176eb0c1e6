"""One thread for matrix products: these are small, and several threads would wait for each other."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class OneThread:
    """Sets a library to one thread for as long as anybody is inside; the first one in sets it, the last one out resets.

    The setting is that of the whole process: two learners in two threads must not put each other's back.
    """

    def __init__(self, limit: Callable[[], Callable[[], None]]) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._inside = 0
        self._reset: Callable[[], None] = lambda: None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return a context in which sums come in one order."""
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
    """Return the hold on the libraries that are loaded, which takes milliseconds to get."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - an extra

    return ThreadpoolController()


def limit_blas() -> Callable[[], None]:
    """Set matrix products to one thread, and return what sets them back."""
    limiter: Any = controller().limit(limits=1, user_api="blas")
    reset: Callable[[], None] = limiter.restore_original_limits
    return reset


one_thread = OneThread(limit_blas)
