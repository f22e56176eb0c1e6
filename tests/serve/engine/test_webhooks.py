"""Events reach a real receiver: signed, again until they are answered, in the way of nobody, and nowhere else."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.webhook import DEAD_AFTER_S, EVENTS, DeliveryRow, WebhookRow, new_id, new_secret
from deferkit.serve.engine import webhooks
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.webhooks import MAX_PAUSE_S, THREADS, WebhookSender
from deferkit.serve.storage.database import Database
from tests.serve.harness.clients import CERTIFICATE, Reply, ScriptedServer
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    HandClock,
    abandon,
    again,
    claim,
    complete,
    decide,
    observe,
    play,
    started,
)
from tests.serve.harness.webhook_receiver import Receiver

PRIVATE = EngineSettings(webhook_private=True)


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other after milliseconds."""
    monkeypatch.setattr(webhooks, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(webhooks, "TICK_S", 0.02)


async def listen(engine: Engine, url: str, *events: str, **given: Any) -> WebhookRow:
    """Add a webhook."""
    row = WebhookRow(new_id(), "default", url, new_secret(), " ".join(events or EVENTS), None, 0, 5)._replace(**given)
    engine.webhooks.store.add(row)
    await engine.webhooks.reload()
    return row


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until a condition holds, while the engine goes on."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    return found


def deliveries(engine: Engine, webhook: WebhookRow) -> list[DeliveryRow]:
    return engine.webhooks.store.deliveries(webhook.id, 1000)


def test_events_are_delivered_signed_and_once(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, receiver.url)
        for number in range(5):
            await decide(engine, f"t{number}")
        await complete(engine, await claim(engine), answer="x", cost=0.5)
        await until(lambda: len(receiver.calls) == 6)
        await until(lambda: {row.state for row in deliveries(engine, webhook)} == {"delivered"})
        assert max(receiver.times().values()) == 1
        for call in receiver.calls:
            assert call.is_signed(webhook.secret)
            assert not call.is_signed("another")
            assert call.event["id"] == call.id
            assert (call.path, call.headers["content-type"]) == ("/hook?a=1", "application/json")
            assert call.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert len(receiver.events("decided")) == 5
        rows = deliveries(engine, webhook)
        assert {(row.attempts, row.status, row.error) for row in rows} == {(1, 204, None)}
        await until(lambda: engine.webhooks.attempts == {(engine.owned[KEY].id, "delivered"): 6})

    with Receiver() as receiver:
        play(database, script, settings=PRIVATE)


@pytest.mark.usefixtures("_fast")
def test_an_attempt_that_fails_is_repeated_under_the_same_id(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, receiver.url, "decided")
        await decide(engine, "a")
        await until(lambda: [row.state for row in deliveries(engine, webhook)] == ["delivered"])
        [row] = deliveries(engine, webhook)
        assert (row.attempts, row.status) == (5, 200)
        assert list(receiver.times().values()) == [5]
        assert all(call.is_signed(webhook.secret) for call in receiver.calls)
        await until(lambda: engine.webhooks.attempts == {(row.policy, "delivered"): 1, (row.policy, "failed"): 4})
        assert not reached.calls  # a redirect is not followed

    with Receiver() as reached, Receiver(500, 404, 302, 301, 200, headers=(("location", reached.url),)) as receiver:
        play(database, script, settings=PRIVATE)


@pytest.mark.usefixtures("_fast")
def test_a_receiver_that_is_not_there_gets_all_when_it_comes(database: Database) -> None:
    async def script(engine: Engine) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        webhook = await listen(engine, f"http://127.0.0.1:{port}/", "decided")
        for number in range(3):
            await decide(engine, f"t{number}")
        await until(lambda: all(row.attempts >= 2 for row in deliveries(engine, webhook)))
        assert {row.error for row in deliveries(engine, webhook)} == {"No answer: Connection refused"}
        with Receiver(port=port) as receiver:
            await until(lambda: {row.state for row in deliveries(engine, webhook)} == {"delivered"})
            assert sorted(event["data"]["task"] for event in receiver.events()) == ["t0", "t1", "t2"]

    play(database, script, settings=PRIVATE)


def test_after_a_death_what_was_not_written_as_delivered_is_sent_again(database: Database) -> None:
    """The receiver has the event, the process dies before it is written: the next one sends it under the same id."""

    async def script() -> None:
        engine = await started(database, settings=EngineSettings(webhook_private=True, owner_lease_s=0.5))
        receiver.open.clear()
        await listen(engine, receiver.url, "decided")
        await decide(engine, "a")
        await until(lambda: len(receiver.calls) == 1)
        await abandon(engine)
        receiver.open.set()
        await asyncio.sleep(0.6)
        other = await started(again(database), spec=None, settings=PRIVATE, number=1)
        await until(lambda: len(receiver.calls) == 2)
        await other.stop()

    with Receiver() as receiver:
        asyncio.run(script())
        assert len(receiver.events()) == 1


def test_what_is_left_at_a_stop_is_delivered_by_the_next_process(database: Database) -> None:
    async def first(engine: Engine) -> None:
        receiver.open.clear()
        await listen(engine, receiver.url, "decided")
        for number in range(8):
            await decide(engine, f"t{number}", cost=0.5)
        await until(lambda: receiver.at_once == THREADS)

    async def second(_: Engine) -> None:
        await until(lambda: len(receiver.events()) == 8)

    with Receiver() as receiver:
        began = time.monotonic()
        play(database, first, settings=PRIVATE)
        assert time.monotonic() - began < 30  # nobody waits for a receiver that does not answer
        receiver.open.set()
        play(again(database), second, spec=None, settings=PRIVATE)


@pytest.mark.usefixtures("_fast")
def test_a_slow_receiver_delays_nobody_else_and_has_few_attempts_at_a_time(database: Database) -> None:
    async def script(engine: Engine) -> None:
        slow.open.clear()
        await listen(engine, slow.url, "decided")
        good = await listen(engine, fast.url, "decided")
        for number in range(20):
            await decide(engine, f"t{number}", cost=0.25)
        await until(lambda: len(fast.events()) == 20, seconds=20)
        await until(lambda: {row.state for row in deliveries(engine, good)} == {"delivered"})
        assert slow.at_once == THREADS
        slow.open.set()
        await until(lambda: len(slow.events()) == 20)
        assert slow.most_at_once <= THREADS

    with Receiver() as slow, Receiver() as fast:
        play(database, script, settings=PRIVATE)


@pytest.mark.usefixtures("_fast")
def test_a_receiver_that_never_ends_its_answer_is_given_up(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte now and then keeps every read within its time; the attempt as a whole is not."""
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.3)
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            with connection:
                try:
                    while not over.is_set():
                        connection.sendall(b"x")
                        time.sleep(0.02)
                except OSError:
                    pass

    async def script(engine: Engine) -> None:
        port = listening.getsockname()[1]
        webhook = await listen(engine, f"http://127.0.0.1:{port}/", "decided")
        await decide(engine, "a")
        await until(lambda: deliveries(engine, webhook)[0].attempts >= 2)
        assert deliveries(engine, webhook)[0].state == "waiting"

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        try:
            play(database, script, settings=PRIVATE)
        finally:
            over.set()
            thread.join()


def test_a_large_answer_is_not_read_to_its_end(sqlite: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, server.url, "decided")
        await decide(engine, "a")
        await decide(engine, "b")
        await until(lambda: [row.state for row in deliveries(engine, webhook)] == ["delivered"] * 2)

    with ScriptedServer(Reply(200, b"x" * 50_000_000)) as server:
        play(sqlite, script, settings=PRIVATE)


def sender(url: str, *, private: bool, row: WebhookRow | None = None) -> WebhookSender:
    webhook = row or WebhookRow(new_id(), "default", url, "whsec_x", "decided", None, 0, 5)
    return WebhookSender(webhook, private=private, now=lambda: time.time_ns() // 1000, done=lambda _: None)


def event(**given: Any) -> DeliveryRow:
    now = time.time_ns() // 1000
    return DeliveryRow("w", "e", 1, "decided", b"{}", now, now)._replace(**given)


LOOKED_UP = "hook.example"


def resolve(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let a name mean something else each time that it is looked up; return the names that are."""
    asked, real, left = [], socket.getaddrinfo, list(answers)

    def look_up(host: Any, port: Any, *given: Any, **named: Any) -> Any:
        asked.append(str(host))
        if host != LOOKED_UP:
            return real(host, port, *given, **named)
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [found for each in addresses for found in real(each, port, *given, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def test_a_name_that_means_a_private_address_is_refused_at_the_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "fe80::1"):
            resolve(monkeypatch, [address])
            attempt = sender(f"http://{LOOKED_UP}:{receiver.port}/", private=False)._attempt(event())
            assert attempt.state == "waiting"
            assert "private, loopback" in str(attempt.error)
            monkeypatch.undo()
        assert receiver.calls == []


def test_the_connection_is_made_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the name means something harmless when it is checked, and this machine a moment later."""
    with Receiver() as receiver:
        connected: list[Any] = []
        real = socket.create_connection

        def connect(address: tuple[str, int], *given: Any) -> socket.socket:
            connected.append(address[0])
            return real(("127.0.0.1", address[1]), *given)  # there is no way out of here

        asked = resolve(monkeypatch, ["10.1.1.1", "1.1.1.1"], ["127.0.0.1"])
        monkeypatch.setattr(socket, "create_connection", connect)
        url = f"http://{LOOKED_UP}:{receiver.port}/"
        posts = sender(url, private=False)
        assert posts._attempt(event()).state == "delivered"
        assert connected == ["1.1.1.1"]
        assert asked.count(LOOKED_UP) == 1
        assert receiver.calls[0].headers["host"] == f"{LOOKED_UP}:{receiver.port}"
        refused = posts._attempt(event())  # looked up anew: nothing is left that is allowed
        assert (refused.state, len(receiver.calls)) == ("waiting", 1)


def test_https_is_verified_for_the_name_and_pinned_to_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(Reply(200), secure=True) as server:
        port = server.server_address[1]
        url = f"https://localhost:{port}/"
        untrusted = sender(url, private=True)._attempt(event())
        assert untrusted.state == "waiting"
        assert "certificate" in str(untrusted.error).lower()
        context = ssl.create_default_context(cafile=str(CERTIFICATE))
        monkeypatch.setattr(webhooks, "ssl_context", lambda: context)
        assert sender(url, private=True)._attempt(event()).state == "delivered"
        resolve(monkeypatch, ["127.0.0.1"])
        other = sender(f"https://{LOOKED_UP}:{port}/", private=True)._attempt(event())
        assert other.state == "waiting"  # the certificate is another's
        assert "certificate" in str(other.error).lower()


def test_pauses_grow_to_an_hour_and_end_after_three_days(monkeypatch: pytest.MonkeyPatch) -> None:
    posts = sender("http://127.0.0.1/", private=False)  # refused without a connection
    now = 10**15
    monkeypatch.setattr(posts, "_now", lambda: now)
    for attempts in range(100):
        row = event(created=now, attempts=attempts)
        pauses = [(posts._attempt(row).due - now) / MICRO for _ in range(20)]
        longest = min(2.0 * 2**attempts, MAX_PAUSE_S)
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert attempts > 20 or len(set(pauses)) > 10  # random
    last = event(created=now - int(DEAD_AFTER_S * MICRO) + 5, attempts=90)
    assert posts._attempt(last).due == now + 5
    dead = posts._attempt(event(created=now - int(DEAD_AFTER_S * MICRO), attempts=90))
    assert (dead.state, dead.ended) == ("dead", now)


def test_a_receiver_may_ask_for_time() -> None:
    with ScriptedServer(Reply(503, headers=(("retry-after", "120"),))) as server:
        posts = sender(server.url, private=True)
        attempt = posts._attempt(event())
        assert 115 < attempt.due / MICRO - time.time() < 125


@pytest.mark.usefixtures("_fast")
def test_a_dead_delivery_is_kept_for_a_week_a_delivered_one_for_a_day(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "PRUNE_S", 0.0)

    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        good = await listen(engine, receiver.url, "decided")
        bad = await listen(engine, "http://127.0.0.1:1/", "decided")
        await decide(engine, "a")
        await until(lambda: [row.state for row in deliveries(engine, good)] == ["delivered"])
        await until(lambda: deliveries(engine, bad)[0].attempts >= 1)
        clock.advance(86_300)
        await asyncio.sleep(0.1)
        assert len(deliveries(engine, good)) == 1
        clock.advance(200)
        await until(lambda: deliveries(engine, good) == [])
        clock.advance(2 * 86_400)
        await until(lambda: [row.state for row in deliveries(engine, bad)] == ["dead"])
        await until(lambda: engine.webhooks.attempts[engine.owned[KEY].id, "dead"] == 1)
        clock.advance(6 * 86_400)
        await asyncio.sleep(0.1)
        assert len(deliveries(engine, bad)) == 1
        clock.advance(2 * 86_400)
        await until(lambda: deliveries(engine, bad) == [])

    with Receiver() as receiver:
        play(database, script, settings=PRIVATE)


@pytest.mark.usefixtures("_fast")
def test_many_events_of_several_policies_all_arrive(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, receiver.url, "decided", models=1)
        await asyncio.gather(*(decide(engine, f"t{number}", force="model") for number in range(400)))
        await observe(engine, "t1", rewards={"model": 1.0})
        await until(lambda: len(receiver.events()) == 400)
        await until(lambda: {row.state for row in deliveries(engine, webhook)} == {"delivered"})
        assert max(receiver.times().values()) == 1
        assert receiver.most_at_once <= THREADS

    with Receiver() as receiver:
        play(database, script, settings=PRIVATE)


def test_only_the_owner_of_a_policy_delivers_its_events(postgres: Database) -> None:
    """Two processes on one database, each with a policy of the tenant."""

    async def script() -> None:
        one = await started(postgres, settings=PRIVATE)
        two = await started(again(postgres), spec=None, settings=PRIVATE, number=1)
        await two.create("default", msgspec.structs.replace(SPEC, name="q"))
        webhook = await listen(one, receiver.url, "decided")
        await two.webhooks.reload()
        await decide(one, "a")
        await until(lambda: len(receiver.events()) == 1)
        await until(lambda: {row.state for row in deliveries(one, webhook)} == {"delivered"})
        await asyncio.sleep(1.2)  # the other process has looked as well
        assert len(receiver.calls) == 1
        assert two.webhooks.attempts == {}
        await one.stop()
        await two.stop()

    with Receiver() as receiver:
        asyncio.run(script())
