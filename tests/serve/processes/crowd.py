"""Clients that never give up: each call is repeated until it is acknowledged, and every acknowledgement is kept."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tests.serve.processes.service import PATIENCE_S, Service, eventually

PATH = "/v1/policies/p"
TOTAL, TOP_UP = 20, 2
SPEC = {
    "name": "p",
    "features": 3,
    "experts": ["human", "clerk"],  # the clerk's costs come as outcomes, the human's from the review queue
    "budget": {"cost": {"total": TOTAL, "horizon": 100_000, "max_cost": 1}},
    "explore_floor": 0.6,
    "warm_up": 0,
}


class Ack(NamedTuple):
    """A call that was acknowledged."""

    path: str
    body: bytes
    status: int
    reply: bytes
    tries: int

    @property
    def sent(self) -> Any:
        """The body of the call as plain data."""
        return json.loads(self.body)

    @property
    def plain(self) -> Any:
        """The reply as plain data; None if there is none."""
        return json.loads(self.reply) if self.reply else None


class Surprise(AssertionError):
    """A service has answered what it must not."""


class Client:
    """One connection, to one of several services at a time; the next one is tried when one fails."""

    def __init__(self, crowd: "Crowd", number: int) -> None:
        self.crowd = crowd
        self.rng = random.Random(number)
        self.failures: Counter[str] = Counter()
        self._connection: http.client.HTTPConnection | None = None

    def call(self, path: str, body: object, *expected: int) -> Ack:
        """Have a call done, however long that takes."""
        return self.send(path, json.dumps(body).encode(), *expected)

    def send(self, path: str, body: bytes, *expected: int) -> Ack:
        """Send these bytes until they are acknowledged."""
        tries = 0
        while True:
            tries += 1
            try:
                status, reply = self._once(path, body)
                if status in expected:
                    return Ack(path, body, status, reply, tries)
                if status != 503:
                    raise Surprise(f"{path} {body!r} got {status}: {reply!r}")
                self.failures["503"] += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures[type(error).__name__] += 1
            self.close()
            if time.monotonic() > self.crowd.give_up_at:
                raise Surprise(f"{path} {body!r} was not acknowledged after {tries} tries: {self.failures}")
            time.sleep(self.rng.uniform(0.01, 0.1))

    def _once(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            service = self.rng.choice(self.crowd.services)
            self._connection = http.client.HTTPConnection(service.host, service.port, timeout=self.crowd.timeout_s)
        self._connection.request("POST", PATH + path, body, {"content-type": "application/json"})
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        """Take another connection for the next call."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Crowd:
    """Threads that decide, observe, review and top up, as fast as they are answered.

    A cost is known by the one who sends it, so that each is sent for exactly one task.
    """

    def __init__(self, *services: Service, deciders: int = 4, reviewers: int = 2, timeout_s: float = 20.0) -> None:
        self.services = services
        self.timeout_s = timeout_s
        self.decisions: dict[str, bytes] = {}  # replies by task
        self.acks: list[Ack] = []
        self.spent = 0  # micro-units that were acknowledged
        self.topped_up = 0
        self.failures: Counter[str] = Counter()
        self.repeated = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._wrong: list[BaseException] = []
        self.give_up_at = 0.0
        loops = [self._decide] * deciders + [self._review] * reviewers + [self._top_up]
        self._threads = [
            threading.Thread(target=self._run, args=(loop, number), daemon=True) for number, loop in enumerate(loops)
        ]

    def __enter__(self) -> "Crowd":
        self.give_up_at = time.monotonic() + 3600
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Let everyone finish what was begun; the service must be there for that."""
        self.give_up_at = time.monotonic() + (PATIENCE_S if kind is None else 0)
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise if anyone got a reply that is wrong."""
        if self._wrong:
            raise self._wrong[0]

    def go_on(self, more: int) -> None:
        """Wait until this many more calls are acknowledged."""
        enough = self.count + more

        def reached() -> bool:
            self.check()
            return self.count >= enough

        eventually(f"{more} calls are acknowledged", reached)

    @property
    def count(self) -> int:
        """How many calls were acknowledged so far."""
        return len(self.acks)

    def _run(self, loop: Callable[[Client, int], None], number: int) -> None:
        client = Client(self, number)
        try:
            turn = 0
            while not self._stop.is_set() and not self._wrong:
                loop(client, turn)
                turn += 1
        except BaseException as error:
            self._wrong.append(error)
        finally:
            client.close()
            with self._lock:
                self.failures += client.failures

    def _keep(self, ack: Ack, *, spent: int = 0, topped_up: int = 0) -> Any:
        with self._lock:
            self.acks.append(ack)
            self.spent += spent
            self.topped_up += topped_up
        return ack.plain

    def _decided(self, decision: Any, reply: bytes) -> None:
        with self._lock:
            known = self.decisions.setdefault(decision["task"], reply)
        if known != reply:
            raise Surprise(f"A task was answered with {known!r}, then with {reply!r}.")

    def _decide(self, client: Client, turn: int) -> None:
        rng, me = client.rng, threading.get_ident()
        tasks = [{"task": f"{me}-{turn}-{i}", "context": [rng.random() for _ in range(3)]} for i in range(3)]
        if rng.random() < 0.15:
            ack = client.call("/decisions/batch", {"tasks": tasks}, 200)
            replies = [part["decision"] for part in self._keep(ack)["results"]]
            sent = msgspec.json.decode(ack.reply, type=dict[str, list[dict[str, msgspec.Raw]]])
            for each, part in zip(replies, sent["results"], strict=True):
                self._decided(each, bytes(part["decision"]))  # as it was sent: a number may be written in several ways
        else:
            ack = client.call("/decisions", tasks[0], 201)
            replies = [self._keep(ack)]
            self._decided(replies[0], ack.reply)
        for reply in replies:
            rewards = {reply["route"]: rng.randint(0, 1)}
            if reply["route"] == "model" and rng.random() < 0.5:
                self._keep(client.call("/outcomes", {"task": reply["task"], "rewards": rewards}, 200))
            if reply["route"] == "clerk" and rng.random() < 0.8:
                cost = rng.randrange(1_100_000)  # some exceed what was reserved
                body = {"task": reply["task"], "rewards": rewards, "cost": cost / 1e6}
                self._keep(client.call("/outcomes", body, 200), spent=cost)
        if rng.random() < 0.1:
            self._repeat(client, ack)

    def _review(self, client: Client, turn: int) -> None:
        reviewer = f"reviewer {threading.get_ident()}"
        ack = client.call("/reviews/claim", {"reviewer": reviewer, "experts": ["human"]}, 200, 204)
        claimed = self._keep(ack)
        if claimed is None:
            time.sleep(0.05)
            return
        cost = client.rng.randrange(1_100_000)
        lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
        body = lease | {"answer": turn, "rewards": {"human": client.rng.randint(0, 1)}, "cost": cost / 1e6}
        ack = client.call("/reviews/complete", body, 200)
        self._keep(ack, spent=cost)
        if client.rng.random() < 0.1:
            self._repeat(client, ack)

    def _top_up(self, client: Client, turn: int) -> None:
        ack = client.call("/budget", {"id": f"top-up {threading.get_ident()} {turn}", "add": TOP_UP}, 200)
        self._keep(ack, topped_up=TOP_UP * 1_000_000)
        if client.rng.random() < 0.1:
            self._repeat(client, ack)
        time.sleep(0.02)

    def _repeat(self, client: Client, ack: Ack) -> None:
        """A call that was acknowledged gets the same reply again."""
        again = client.send(ack.path, ack.body, ack.status)
        self.repeated += 1
        if again.reply != ack.reply:
            raise Surprise(f"{ack.path} {ack.body!r} got {ack.reply!r}, then {again.reply!r}.")

    def ask_again(self, most: int) -> int:
        """Repeat calls that were acknowledged, those first that had to be sent more than once; return how many."""
        self.give_up_at = time.monotonic() + PATIENCE_S
        client = Client(self, -1)
        fixed = [ack for ack in self.acks if not ack.path.endswith(("/claim", "/outcomes"))]
        chosen = sorted(fixed, key=lambda ack: -ack.tries)[: most // 2]
        chosen += client.rng.sample(fixed, min(len(fixed), most - len(chosen)))
        for ack in chosen:
            self._repeat(client, ack)
        client.close()
        return len(chosen)
