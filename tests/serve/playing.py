"""Short ways to say what a test of the service wants."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from deferkit.serve.domain.policy_spec import BudgetSpec, PolicySpec
from deferkit.serve.domain.request_bodies import ClaimBody, CompleteBody, OutcomeBody, TaskBody
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.lease import Claim
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.review import Complete
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.unit_of_work import Command
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store

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
