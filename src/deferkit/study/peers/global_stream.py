"""A stream of randomness for packages that draw from numpy's global one."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


class GlobalStream:
    """Numpy's global random stream, lent to a package and given back untouched.

    >>> stream, before = GlobalStream(seed=0), np.random.get_state()[1].copy()
    >>> with stream.lent():
    ...     drawn = np.random.uniform()
    >>> bool((np.random.get_state()[1] == before).all())
    True
    """

    def __init__(self, *, seed: int) -> None:
        self._state = np.random.RandomState(seed).get_state()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let the global stream be this one for a while."""
        outer = np.random.get_state()  # noqa: NPY002 - the package draws from it, so that it must be swapped
        np.random.set_state(self._state)  # noqa: NPY002
        try:
            yield
        finally:
            self._state = np.random.get_state()  # noqa: NPY002
            np.random.set_state(outer)  # noqa: NPY002
