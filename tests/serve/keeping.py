"""Rows for tests of the store."""

from collections.abc import Callable
from typing import Any

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.rows import DecisionRow, LogRow, SeatRow
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.store import Store
from deferkit.serve.storage.transaction import ReadSet
from tests.serve.playing import SPEC

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
