"""One thread for matrix products: these are small, and several threads would wait for each other."""

import functools
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController


@functools.cache
def controller() -> Any:
    """Return the hold on the libraries that are loaded, which takes milliseconds to get."""
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which matrix products run in one thread, and so always sum in one order."""
    context: AbstractContextManager[Any] = controller().limit(limits=1, user_api="blas")
    return context
