"""Disks that fail, on SQLite: full, not confirming, without power."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deferkit.serve.api.common import Reply
from deferkit.serve.engine import ownership
from deferkit.serve.engine.commands.lease import Claim
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.recovery import recover
from deferkit.serve.storage import sqlite
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.fault_injection import Disk, Op
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    check_booked,
    claim,
    decide,
    observe,
    play,
    problem_of,
    replayed,
    started,
)
from tests.serve.harness.policy_histories import RandomHistory

ROOT = Path(__file__).parents[3]
WAL, FILE = "-wal", ".db"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk; the write-ahead log is copied to the file often, so that this is tried too."""
    monkeypatch.setattr(sqlite, "PAGES_BETWEEN_CHECKPOINTS", 20)
    made = Disk()
    yield made
    made.unregister()


def state(engine: Engine) -> bytes:
    return engine.owned[KEY].policy.to_bytes()


def test_a_full_disk_is_503_until_there_is_space_again(disk: Disk, tmp_path: Path) -> None:
    async def script(engine: Engine) -> None:
        for i in range(6):
            await decide(engine, f"t{i}")
        await observe(engine, "t0", rewards={"human": 1.0}, cost=0.5)
        before = state(engine)
        disk.full = (WAL, FILE)
        for _ in range(3):
            calls = [decide(engine, f"u{i}") for i in range(5)] + [claim(engine), observe(engine, "t1", cost=0.5)]
            for problem in [await problem_of(each) for each in calls]:
                assert (problem.status, problem.retry_after) == (503, 1.0)
            assert state(engine) == before
        assert engine.failing is not None
        row = engine.store.decision(engine.owned[KEY].id, "t0")  # reads go on
        assert row is not None
        assert row.cost == {"cost": 500_000}
        assert replayed(engine.store).to_bytes() == before
        await engine.ownership.snapshot(engine.owned[KEY])  # fails, and that is all
        disk.full = ()
        assert (await decide(engine, "u0"))["id"] == 6
        assert engine.failing is None
        check_booked(engine)
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(Sqlite(str(tmp_path / "a.db"), vfs=disk.name), script, settings=EngineSettings(tick_s=0.01))


def test_where_only_the_file_cannot_grow_the_log_does_until_there_is_space(disk: Disk, tmp_path: Path) -> None:
    async def script(engine: Engine) -> None:
        disk.full = (FILE,)
        await asyncio.gather(*(decide(engine, f"t{i}", force=None) for i in range(60)))
        assert disk.ops[-1].path.endswith(WAL)
        assert engine.failing is None
        disk.full = ()
        await decide(engine, "x", force=None)
        assert disk.ops[-1] == Op("a.db", "sync")

    settings = EngineSettings(group_limit=1)  # as many commits as decisions
    play(Sqlite(str(tmp_path / "a.db"), vfs=disk.name), script, settings=settings)


async def until_given_up(engine: Engine) -> None:
    async with asyncio.timeout(30):
        while engine.ready:
            await asyncio.sleep(0.01)


async def commits(engine: Engine, disk: Disk) -> None:
    disk.unconfirmed = (WAL,)
    assert (await problem_of(decide(engine, "x"))).status == 503


async def creates(engine: Engine, disk: Disk) -> None:
    disk.unconfirmed = (WAL,)
    assert (await problem_of(engine.create("other", SPEC))).status == 503


async def keeps_a_snapshot(engine: Engine, disk: Disk) -> None:
    add = engine.store.add_snapshot

    def fails(*given: Any) -> None:
        disk.unconfirmed = (WAL,)
        add(*given)

    vars(engine.store)["add_snapshot"] = fails
    engine.owned[KEY].snapshot_at = -engine.settings.snapshot_every
    await decide(engine, "x")  # is on the disk, the snapshot is not
    await until_given_up(engine)


async def renews(engine: Engine, disk: Disk) -> None:
    disk.unconfirmed = (WAL,)
    engine.ownership._renew_at = 0
    await until_given_up(engine)


async def others_wait(engine: Engine, disk: Disk) -> None:
    """Of what is in line for the disk when it fails, nothing gets there."""
    asked: list[None] = []

    def write() -> None:
        asked.append(None)
        epochs = {owned.id: owned.epoch for owned in engine.owned.values()}
        engine.store.renew(epochs, engine.ownership.owner, engine.ownership.expiry())

    async with engine.ownership.busy:  # so that no renewal is among them
        disk.unconfirmed = (WAL,)
        ended = await asyncio.gather(*(engine.ownership.in_thread(write) for _ in range(5)), return_exceptions=True)
    assert [type(error).__name__ for error in ended] == ["StoreBroken"] * 5
    assert len(asked) == 1


async def checkpoints(engine: Engine, disk: Disk) -> None:
    disk.unconfirmed = (FILE,)
    for i in range(60):
        if not engine.ready:
            break
        await asyncio.gather(decide(engine, f"x{i}", force=None), return_exceptions=True)
    assert not engine.ready


async def stops(engine: Engine, disk: Disk) -> None:
    """Two policies are to be released: after the first could not be, the second is not tried."""
    await engine.create("other", SPEC)
    disk.unconfirmed = (WAL,)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.store, "close", lambda: None)  # the end of a process does not tidy up
        await engine.stop()


@pytest.mark.parametrize("fails", [commits, creates, keeps_a_snapshot, renews, others_wait, checkpoints, stops])
def test_after_a_failed_fsync_nothing_more_is_written(
    fails: Callable[[Engine, Disk], Any], disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "is_dead", lambda *_, **__: True)
    errors: list[Exception] = []
    database = Sqlite(str(tmp_path / "a.db"), vfs=disk.name)

    async def script() -> list[Any]:
        engine = await started(database, settings=EngineSettings(tick_s=0.01), broken=errors.append)
        replies = [await decide(engine, f"t{i}") for i in range(5)]
        await fails(engine, disk)
        assert [type(error).__name__ for error in errors] == ["StoreBroken"]
        disk.unconfirmed = ()  # it would work again, but who knows what is missing
        written = len(disk.ops)
        for call in (decide(engine, "y"), claim(engine), engine.submit(("other", "p"), Claim(None))):  # type: ignore[arg-type]
            assert (await problem_of(call)).status == 503
        _, going_on = await asyncio.wait(engine._ticking, timeout=60)
        assert not going_on  # there are no more ticks
        assert len(disk.ops) == written
        assert len(errors) == 1
        if fails is stops:
            engine.store.close()
        else:
            await engine.stop()
        return replies

    async def after(engine: Engine) -> None:
        assert [await decide(engine, f"t{i}") for i in range(5)] == replies

    replies = asyncio.run(script())
    play(database, after, spec=None)


def live_until_the_disk_fails(path: str) -> None:
    """Decide and print; the last one is not confirmed, and the process ends in the middle of it."""
    disk = Disk()

    async def script(engine: Engine) -> None:
        for i in range(5):
            print((await decide(engine, f"t{i}"))["id"], flush=True)
        disk.unconfirmed = (WAL,)
        await decide(engine, "x")
        print("not reached", flush=True)

    play(Sqlite(path, vfs=disk.name), script)


def test_the_process_stops_when_the_disk_does_not_confirm(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    code = "import sys; from tests.serve.faults.test_disk import live_until_the_disk_fails as f; f(sys.argv[1])"
    ended = subprocess.run(
        [sys.executable, "-c", code, path],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (74, ["0", "1", "2", "3", "4"]), ended.stderr
    assert "the disk did not confirm a write" in ended.stderr

    async def after(engine: Engine) -> None:
        assert [(await decide(engine, f"t{i}"))["id"] for i in range(5)] == [0, 1, 2, 3, 4]

    play(Sqlite(path), after, spec=None)


class Acknowledged(NamedTuple):
    """What a caller was told, and how much the disk had been asked for by then."""

    moment: int
    seq: int
    head: bytes
    claim: tuple[str, int, int] | None


class Lived(NamedTuple):
    """A life on a disk."""

    said: list[Acknowledged]
    states: dict[int, bytes]  # by the number of records


def live_on(disk: Disk, path: Path, synchronous: str) -> Lived:
    """Let a policy live on a disk; return all that was acknowledged."""
    said: list[Acknowledged] = []
    states: dict[int, bytes] = {}

    async def script(engine: Engine) -> None:
        life = RandomHistory(11, SPEC)
        states[1] = state(engine)
        for _ in range(80):
            command, reply = await life.step(engine)
            policy = engine.owned[KEY].policy
            claimed = None
            if isinstance(command, Claim) and isinstance(reply, Reply) and reply.status == 200:
                claimed = tuple(life.leases[-1].values())
            said.append(Acknowledged(len(disk.ops), policy.seq, policy.head, claimed))
            states[policy.seq] = state(engine)

    play(Sqlite(str(path), synchronous=synchronous, vfs=disk.name), script, settings=EngineSettings(snapshot_every=15))
    return Lived(said, states)


def lost(folder: Path, told: list[Acknowledged], states: dict[int, bytes]) -> int:
    """Return how much of what was acknowledged is not there any more; check that what is there is right."""
    database = Sqlite(str(folder / "a.db"))
    try:
        database.prepare()
        store = Store(database)
        row = store.policy(*KEY)
        if row is None:
            return len(told)
        policy = recover(store, row)
        assert database.reader().execute("PRAGMA integrity_check") == [("ok",)]
        assert policy.to_bytes() == states[policy.seq]
        assert replayed(store) == policy
        heads = {line.seq + 1: bytes(line.hash) for line in store.log(row.id)}
        gone = [each for each in told if heads.get(each.seq) != each.head]
        for each in told:
            if each.claim is not None and each not in gone:
                task, seat, epoch, *_ = each.claim
                if (seat, epoch) not in [(claim.seat, claim.epoch) for claim in store.claims(row.id, task)]:
                    gone.append(each)
        return len(gone)
    finally:
        database.close()


def test_after_a_loss_of_power_all_that_was_acknowledged_is_there(disk: Disk, tmp_path: Path) -> None:
    said, states = live_on(disk, tmp_path / "a.db", "FULL")
    assert {op.path for op in disk.ops if op.kind == "sync"} >= {"a.db", "a.db-wal"}  # checkpoints too
    begun = said[0].moment
    moments = [each.moment for each in said[::6]] + list(range(begun, len(disk.ops), 61)) + [len(disk.ops)]
    for number, moment in enumerate(moments):
        told = [each for each in said if each.moment <= moment]
        for seed in (None, number):
            folder = tmp_path / f"{number}-{seed}"
            disk.after_power_loss(folder, moment=moment, seed=seed)
            assert lost(folder, told, states) == 0, (moment, seed)


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_the_same_test_notices_when_durability_is_turned_down(synchronous: str, disk: Disk, tmp_path: Path) -> None:
    said, states = live_on(disk, tmp_path / "a.db", synchronous)
    moment = said[-1].moment  # before the end, which tidies up
    disk.after_power_loss(tmp_path / "after", moment=moment)
    gone = lost(tmp_path / "after", said, states)
    assert gone == len(said) if synchronous == "OFF" else 0 < gone < len(said)
