"""What must hold of a policy at any time."""

import asyncio
import math
from collections.abc import Awaitable
from typing import Any

import pytest

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.problems import Problem
from deferkit.serve.engine.clock import Clock
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.recovery import roll_on
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.playing import KEY, SPEC


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
    policy = roll_on(store, row, None)
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
    tasks = [*engine._ticking, *engine.fits._waiting, *filter(None, [engine._writing])]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await engine.ownership.in_thread(engine.store.close)
    engine.ownership._thread.shutdown()
