"""The client for asyncio: the calls of `Client` as coroutines, each in a thread of the client."""

import asyncio
import contextvars
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from deferkit.client.client import Client
from deferkit.types import AT_LEAST_ONE

PARTS = ("reviews", "keys", "figures", "webhooks")
END = object()  # of an iterator; StopIteration cannot leave a coroutine


class AsyncCalls:
    """The methods of a part of a client as coroutines, and its generators as asynchronous ones.

    There is one implementation of the protocol: that of `Client`, whose calls wait without holding other threads up.
    """

    def __init__(self, calls: Any, run: Callable[..., Any]) -> None:
        self._wrapped = calls
        self._run = run

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(self._wrapped, name)
        if not callable(found):
            return found
        return self._generator(found) if inspect.isgeneratorfunction(found) else self._coroutine(found)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._wrapped) if not name.startswith("_"))})

    def _coroutine(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*given: Any, **named: Any) -> Any:
            return await self._run(functools.partial(method, *given, **named))

        return call

    def _generator(self, method: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
        @functools.wraps(method)
        async def items(*given: Any, **named: Any) -> AsyncIterator[Any]:
            iterator = method(*given, **named)
            while (item := await self._run(functools.partial(next, iterator, END))) is not END:
                yield item

        return items


class AsyncClient(AsyncCalls):
    """A policy of a decision service for asyncio, with the calls of a `Client`, its arguments, replies and errors.

        async with AsyncClient("http://127.0.0.1:8080", policy="claims") as client:
            decision = await client.decide([0.6, 0.0, 0.8], task="claim-17")
            await client.observe(decision, rewards={"model": 1.0})
            review = await client.reviews.claim("ann")
            async for task in client.tasks(state="open"):
                print(task["task"])

    Each call runs in one of `concurrency` threads of this client; more calls wait for one of them. A coroutine that is
    cancelled while it waits for a reply leaves its call going: with a `task` id of your own, the same call again has
    the reply. One client serves any number of event loops.

    Args:
        url: Where the service is.
        policy: The name of the policy.
        concurrency: How many calls may wait for replies at once, at least 1; 32 by default.
        settings: The other arguments of a `Client`.

    Raises:
        InvalidArgument: If an argument is of the wrong type or out of range.

    >>> client = AsyncClient("http://127.0.0.1:8080", policy="claims")
    >>> client.decide.__doc__ == client.decide_many.__doc__
    False
    """

    def __init__(self, url: str, *, policy: str, concurrency: int = 32, **settings: Any) -> None:
        AT_LEAST_ONE.check("concurrency", "AsyncClient", concurrency)
        super().__init__(Client(url, policy=policy, **settings), self._in_thread)
        self._concurrency = int(concurrency)
        self._threads: ThreadPoolExecutor | None = None
        for part in PARTS:
            setattr(self, part, AsyncCalls(getattr(self._wrapped, part), self._in_thread))

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Run a call in a thread, with the context of the task: spans of a trace belong to it."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="deferkit-client")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, call)

    async def close(self) -> None:
        """Close the connections and end the threads; a later call opens and starts them anew."""
        self._wrapped.close()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
