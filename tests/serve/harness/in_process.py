"""The engine, the store and the service in this process, and what must hold of them at any time."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest

from deferkit.serve.api.reviews import ClaimBody, CompleteBody
from deferkit.serve.api.tasks import OutcomeBody, TaskBody
from deferkit.serve.domain import records as log_records
from deferkit.serve.domain.accounts import MICRO, Account
from deferkit.serve.domain.api_keys import SCOPES, new_key
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.records import RenewedRecord
from deferkit.serve.domain.rows import DecisionRow, LogRow, SeatRow
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.lease import Claim
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.review import Complete
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.ownership import Clock
from deferkit.serve.engine.recovery import roll_forward
from deferkit.serve.engine.unit_of_work import Command, UnitOfWork
from deferkit.serve.http.server import Server
from deferkit.serve.reports.summary import summary_of
from deferkit.serve.service_settings import ServiceSettings
from deferkit.serve.storage.connections import ReadSet
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.open_store import database_of
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import TIMEOUT_S, Client, until

Result = TypeVar("Result")

KEY = ("default", "p")

SPEC = PolicySpec(name="p", features=2, budget={"cost": BudgetSpec(total=10, horizon=1000, max_cost=1)}, warm_up=0)


def small(total: float, max_cost: float = 1) -> PolicySpec:
    """Return the policy with another budget."""
    return msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=total, horizon=1000, max_cost=max_cost)})


def play(
    database: Database,
    script: Callable[[Engine], Awaitable[Result]],
    *,
    spec: PolicySpec | None = SPEC,
    settings: EngineSettings | None = None,
    number: int = 0,
) -> Result:
    """Start an engine on a database, make the policy, let the script play, stop the engine in order."""

    async def whole() -> Result:
        engine = Engine(Store(database), settings, number=number)
        await engine.start()
        try:
            if spec is not None:
                await engine.create(KEY[0], spec)
            return await script(engine)
        finally:
            await engine.stop()

    return asyncio.run(whole())


async def call(engine: Engine, command: Command) -> Any:
    """Have a command done; return its reply as plain data."""
    reply = await engine.submit(KEY, command)
    return msgspec.json.decode(reply.body) if reply.body else None


async def decide(engine: Engine, task: str, **given: Any) -> Any:
    """Decide a task; asks the human unless told otherwise."""
    given = {"context": [1.0, 0.5], "force": "human"} | given
    return await call(engine, Decide(TaskBody(task=task, **given)))


async def observe(engine: Engine, task: str, **given: Any) -> Any:
    """Report an outcome."""
    return await call(engine, Observe(OutcomeBody(task=task, **given)))


async def claim(engine: Engine, reviewer: str = "ann", **given: Any) -> Any:
    """Claim a review."""
    return await call(engine, Claim(ClaimBody(reviewer=reviewer, **given)))


async def complete(engine: Engine, claimed: Any, **given: Any) -> Any:
    """Answer a review that was claimed."""
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token") if name in claimed}
    return await call(engine, Complete(CompleteBody(**lease, **given)))


def again(database: Database) -> Database:
    """Return the same database as another process has it."""
    if isinstance(database, Sqlite):
        return Sqlite(database.path)
    assert isinstance(database, Postgres)
    return Postgres(database.conninfo)


def check_in_step(policy: Policy) -> None:
    """Check that the learner has what is free of the accounts, and holds what they hold."""
    summary = policy.learner.summary()
    single = policy.spec.resources[0]
    left = summary.left if not isinstance(summary.left, float) else {single: summary.left}
    owned = summary.reserved if not isinstance(summary.reserved, float) else {single: summary.reserved}
    for name, account in policy.accounts.items():
        free = account.free
        assert left[name] == pytest.approx(math.inf if free is None else free / MICRO, abs=1e-9)
        assert owned[name] == pytest.approx(account.reserved / MICRO, abs=1e-9)
        if account.total is not None:
            assert account.reserved + account.posted <= account.total
            assert not account.suspense or free == 0


def check_booked(engine: Engine) -> None:
    """Check that each account has posted, or holds in suspense, the costs of all decisions and efforts, once."""
    owned = engine.owned[KEY]
    reader = engine.store.database.reader()
    booked = dict.fromkeys(owned.policy.accounts, 0)
    reserved = dict.fromkeys(owned.policy.accounts, 0)
    tasks = {str(row.task) for row in engine.store.log(owned.id) if row.task is not None}
    for task in tasks:
        decision = engine.store.decision(owned.id, task)
        assert decision is not None
        efforts = [claim.effort for claim in engine.store.claims(owned.id, task) if claim.effort is not None]
        for cost in [*efforts, *([] if decision.cost is None else [decision.cost])]:
            for name, micro in cost.items():
                booked[name] += micro
        if decision.state == "open":
            for name, micro in (decision.held or {}).items():
                reserved[name] += micro
    for name, account in owned.policy.accounts.items():
        assert account.posted + account.suspense == booked[name]
        assert account.reserved == reserved[name]
    assert {row[0]: tuple(row[1:]) for row in reader.run("budgets", policy=owned.id)} == owned.policy.accounts


def account(engine: Engine) -> Account:
    """Return the account of the policy, checked against all that it must agree with."""
    check_in_step(engine.owned[KEY].policy)
    check_booked(engine)
    return engine.owned[KEY].policy.accounts["cost"]


def records(engine: Engine) -> int:
    """Return how long the log of the policy is."""
    return engine.owned[KEY].policy.seq


def replayed(store: Store, key: tuple[str, str] = KEY) -> Policy:
    """Return the policy that the whole log gives, without any snapshot."""
    row = store.policy(*key)
    assert row is not None
    policy = roll_forward(store, row, None)
    assert (policy.seq, policy.head) == (row.seq, bytes(row.head))
    return policy


async def problem_of(doing: Awaitable[Any]) -> Problem:
    """Return the problem that something ends in."""
    with pytest.raises(Problem) as caught:
        await doing
    return caught.value


class HandClock(Clock):
    """A clock that is moved by hand."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(0)
        self.at = engine.clock.now()

    def now(self) -> int:
        return self.at

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.at += int(seconds * MICRO)


async def started(
    database: Database, *, spec: PolicySpec | None = SPEC, settings: EngineSettings | None = None, **given: Any
) -> Engine:
    """Return an engine that was started, for a test that stops it, or lets it die, in its own way."""
    engine = Engine(Store(database), settings, **given)
    await engine.start()
    if spec is not None:
        await engine.create(KEY[0], spec)
    return engine


async def abandon(engine: Engine) -> None:
    """Let an engine die: no snapshot, nothing given up, nobody told."""
    tasks = [*engine._ticking, *engine.fits._polling, *filter(None, [engine._writing])]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await engine.ownership.in_thread(engine.store.close)
    engine.ownership._thread.shutdown()


async def snapshot_written(engine: Engine) -> None:
    """Wait for the snapshot that is being made, if there is one."""
    if engine.ownership._snapshot is not None:
        await engine.ownership._snapshot


NAME = "Zoë 宠 ' \" % :x \\"  # what a database might trip over


def add(store: Store, name: str = "p", *, tenant: str = "default", owner: str = "a", expires: int = 100) -> OwnedPolicy:
    """Write a new policy and own it."""
    policy = Policy(msgspec.structs.replace(SPEC, name=name))
    body = policy.append(log_records.CreatedRecord(spec=policy.spec), 5)
    first = LogRow(0, 0, 5, "created", None, body, policy.head)
    number = store.add_policy(tenant, policy, first, owner, "here:1", expires)
    assert number is not None
    return OwnedPolicy(number, tenant, policy, 1, 0)


def decision(owned: OwnedPolicy, task: str, **given: Any) -> DecisionRow:
    """Return a decision with something in each column."""
    return DecisionRow(
        policy=owned.id,
        task=task,
        id=2**60,
        digest=b"\x00\xff'%s",
        reply=b'{"a":1}',
        at=1_700_000_000_000_000,
        route="human",
        state="open",
        held={"cost": 1_000_000},
        rewards={"model": 0.1 + 0.2},
        cost=None,
        final=None,
        answer=None,
        told="",
    )._replace(**given)


def seat(owned: OwnedPolicy, task: str, number: int = 0, **given: Any) -> SeatRow:
    """Return a seat with something in each column."""
    return SeatRow(
        policy=owned.id,
        task=task,
        seat=number,
        expert="human",
        state="waiting",
        epoch=0,
        reviewer=None,
        lease_until=0,
        priority=1e-300,
        created=7,
        deadline=None,
        payload='{"text":"\\u0000 %s"}',
        model_answer=None,
        answer=None,
        rewards={},
        cost=None,
    )._replace(**given)


def write(
    store: Store, owned: OwnedPolicy, *reads: ReadSet, fill: Callable[[UnitOfWork], None], owner: str = "a"
) -> None:
    """Commit a group that does what `fill` does to it."""
    work = store.begin(reads, UnitOfWork())
    try:
        work.changed[owned.id] = owned
        fill(work)
        store.commit(work, owner, 200)
    finally:
        store.rollback()


POLICY: dict[str, Any] = {
    "name": "p",
    "features": 2,
    "budget": {"cost": {"total": 10, "horizon": 1000, "max_cost": 1}},
    "warm_up": 0,
}


class Running(NamedTuple):
    """A service in a thread."""

    url: str
    server: Server
    store: Store
    clients: list[Client]

    def client(self, tenant: str | None = None, *scopes: str, key: str | None = None) -> Client:
        """Return a client; with a new key if it is of a tenant."""
        self.clients.append(Client(self.url, key if tenant is None else self.key(tenant, *scopes)))
        return self.clients[-1]

    def key(self, tenant: str, *scopes: str, reviewer: str | None = None) -> str:
        """Make a key, bound to a reviewer if there is one."""
        key, row = new_key(tenant, list(scopes or SCOPES), "", reviewer=reviewer)
        self.store.add_key(row)
        return key

    @contextmanager
    def held_up(self) -> Iterator["Gate"]:
        """Let nothing be committed until the gate is opened, or the end."""
        gate, begin = Gate(threading.Event(), threading.Event()), self.store.begin

        def later(reads: Any, work: Any) -> Any:
            gate.reached.set()
            gate.open.wait(TIMEOUT_S)
            return begin(reads, work)

        self.store.begin = later  # type: ignore[method-assign,assignment]
        try:
            yield gate
        finally:
            self.store.begin = begin  # type: ignore[method-assign]
            gate.open.set()


class Gate(NamedTuple):
    """Where the writer waits."""

    reached: threading.Event
    open: threading.Event


@contextmanager
def running(folder: Path, *, tenants: bool = False, telemetry: Any = None, **given: Any) -> Iterator[Running]:
    """Run a service in a thread; with tenants, there is a key from the start."""
    values: dict[str, Any] = {"store": str(folder / "deferkit.db"), "port": 0}
    settings = ServiceSettings(**values | given)
    database = database_of(settings.store)
    database.prepare()
    store = Store(database)
    if tenants:
        store.add_key(new_key("nobody", ["admin"], "")[1])
    urls: list[str] = []
    server = Server(settings, store, urls.append, telemetry)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: urls or not thread.is_alive())
    service = Running(urls[0], server, store, [])
    try:
        yield service
    finally:
        for client in service.clients:
            client.connection.close()
        server.should_exit = True
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def own_until_killed(kind: str, place: str) -> None:
    """Own the policy, decide a task, print `ready` and wait to be killed: the main function of another process."""

    async def script() -> None:
        database = Sqlite(place) if kind == "Sqlite" else Postgres(place)
        engine = await started(database, settings=EngineSettings(address="there:1"))
        await decide(engine, "first")
        print("ready", flush=True)
        await asyncio.sleep(600)

    asyncio.run(script())


HOUR = 3600.0


def renewing(**given: Any) -> PolicySpec:
    """Return a policy with a budget that renews, three reviews an hour unless told otherwise."""
    budget: dict[str, Any] = {"total": 3, "every": "1h", "max_cost": 1} | given
    return msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(**budget)})


def by_hand(engine: Engine) -> HandClock:
    """Let the time of an engine pass only when it is told to."""
    clock = HandClock(engine)
    engine.ownership.clock = clock
    return clock


def dated(until: float, **given: Any) -> PolicySpec:
    """Return a policy with a budget that ends."""
    budget: dict[str, Any] = {"total": 3, "until": until, "max_cost": 1} | given
    return msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(**budget)})


def summary(engine: Engine) -> Any:
    """Return the summary of the policy, as its route does for an empty queue."""
    return summary_of(engine.owned[KEY], (0, 0, None), engine.owned[KEY].time(engine.clock.now()))


def renewals(engine: Engine) -> list[RenewedRecord]:
    """Return the renewals in the log of the policy."""
    found = [log_records.decode(bytes(row.body)) for row in engine.store.log(engine.owned[KEY].id)]
    return [each for each in found if isinstance(each, RenewedRecord)]
