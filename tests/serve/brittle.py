"""A connection that fails where a test wants it to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.engine.engine import Engine


class Brittle:
    """A connection that fails at its nth call, before or after it was done; to undo and to close always works."""

    def __init__(self, connection: Any, nth: int, *, done: bool = False) -> None:
        self.connection = connection
        self.left = nth
        self.done = done

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.connection, name)
        if name in ("rollback", "close"):
            return method

        def fails(*given: Any, **named: Any) -> Any:
            self.left -= 1
            result = method(*given, **named) if self.left or self.done else None
            if not self.left:
                raise StoreFailed("There is no room.")
            return result

        return fails


@contextmanager
def brittle(engine: Engine, nth: int, *, done: bool = False) -> Iterator[None]:
    """Have the nth call of the store to its database fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.store, "_writer", Brittle(engine.store.writer, nth, done=done))
        yield
