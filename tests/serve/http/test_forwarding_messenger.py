"""Calls that are passed on to a process that does not answer: not too many, and nobody waits for them at the end."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from deferkit.serve.domain.problems import Problem
from deferkit.serve.http import forwarding
from deferkit.serve.http.auth import Access
from deferkit.serve.http.forwarding import Messenger
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import until

FOREVER_S = 3600.0


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of somebody who takes calls and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def asking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("passes-on")]


def test_only_so_many_calls_are_passed_on(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MOST", 5)
    monkeypatch.setattr(forwarding, "THREADS", 2)

    async def script() -> None:
        messenger = Messenger()
        asked = [asyncio.create_task(messenger.ask(silent, "GET", "/", b"", {}, FOREVER_S)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Problem) as caught:
            await messenger.ask(silent, "GET", "/", b"", {}, FOREVER_S)
        assert (caught.value.status, caught.value.retry_after) == (503, 1.0)
        while messenger.waiting < 2:
            await asyncio.sleep(0.01)
        messenger.close()
        async with asyncio.timeout(60):
            ended = await asyncio.gather(*asked, return_exceptions=True)
        assert (
            sorted(type(error).__name__ for error in ended if error is not None)
            == ["CancelledError"] * 3 + ["Problem"] * 2
        )

    asyncio.run(script())
    until(lambda: not asking())  # the end of the process would wait for them


def test_keys_are_looked_up_while_others_read_for_long(tmp_path_factory: pytest.TempPathFactory) -> None:
    database = Sqlite(str(tmp_path_factory.mktemp("store") / "a.db"))
    database.prepare()
    access = Access(Store(database), now=lambda: 0, open_without_keys=True, rate=0)
    read = threading.Event()

    async def script() -> None:
        long = [asyncio.create_task(asyncio.to_thread(read.wait, 120)) for _ in range(100)]
        await asyncio.sleep(0)  # all of them are in line before it
        try:
            async with asyncio.timeout(60):
                assert await access.keys(0) == {}
        finally:
            read.set()
            await asyncio.gather(*long)
            access.close()

    asyncio.run(script())
    access.store.close()
