"""Time, snapshots and the log, case by case: whatever is damaged, the state is what the log says, or nothing starts."""

import asyncio
import hashlib
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from deferkit.errors import DeferkitError, UnreadableState
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.domain.policy import Policy, Snapshot
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.engine import ownership, recovery
from deferkit.serve.engine import ownership as process_identity
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.recovery import DamagedLog
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    abandon,
    claim,
    complete,
    decide,
    play,
    problem_of,
    replayed,
    snapshot_written,
    started,
)
from tests.serve.harness.policy_histories import RandomHistory

HOUR = 3_600_000_000  # microseconds
SETTINGS = EngineSettings(snapshot_every=10)


def live(database: Database, steps: int = 70, *, spec: Any = SPEC) -> bytes:
    """Let a policy live for a while, with snapshots on the way; return its state at the end."""

    async def script(engine: Engine) -> bytes:
        life = RandomHistory(3, SPEC)
        for _ in range(steps):
            await life.step(engine)
        return engine.owned[KEY].policy.to_bytes()

    return play(database, script, spec=spec, settings=SETTINGS)


def change(database: Database, sql: str) -> None:
    """Do something to the database behind the service's back."""
    connection: Any = database.writer()
    connection.execute(sql)
    connection.close()


def put(database: Database, name: str, **values: Any) -> None:
    connection = database.writer()
    connection.write_all({name: [tuple(values.values())]})
    connection.close()


def put_snapshot(database: Database, seq: int, data: bytes, sha256: bytes | None = None) -> None:
    digest = hashlib.sha256(data).digest() if sha256 is None else sha256
    put(database, "add_snapshot", policy=1, seq=seq, sha256=digest, data=data)


async def start_and_stop(database: Database) -> None:
    engine = Engine(Store(database))
    try:
        await engine.start()
    finally:
        await engine.stop()


def snapshots(database: Database) -> list[tuple[int, bytes, bytes]]:
    return [(seq, bytes(sha256), bytes(data)) for seq, sha256, data in database.reader().run("snapshots", policy=1)]


def test_who_is_killed_again_and_again_has_snapshots_all_the_same(database: Database) -> None:
    async def lives(number: int) -> list[int]:
        engine = await started(database, spec=SPEC if number == 0 else None, settings=SETTINGS)
        for i in range(6):
            await decide(engine, f"{number}-{i}", force="model")
            await snapshot_written(engine)
        found = engine.store.snapshot_seqs(engine.owned[KEY].id)
        await abandon(engine)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_identity, "is_dead", lambda *_, **__: True)
        assert [len(asyncio.run(lives(number))) for number in range(6)] == [0, 1, 1, 2, 3, 3]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_while_the_service_runs_moves_nothing(
    hours: int, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await claim(engine, "ann")
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + hours * HOUR * 1000)
        await decide(engine, "b", force="model")
        assert await claim(engine, "bo") is None
        times = [row.at for row in engine.store.log(engine.owned[KEY].id)]
        assert times == sorted(times)
        assert times[-1] - times[0] < HOUR / 2

    play(database, script)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_between_two_lives_ends_no_lease_and_turns_no_order(
    hours: int, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(engine: Engine) -> Any:
        await decide(engine, "a")
        return await claim(engine, "ann")

    async def after(engine: Engine) -> None:
        assert await claim(engine, "bo") is None  # nobody could have extended it in the meantime
        await decide(engine, "b", force="model")
        await complete(engine, lease, cost=0.5)
        times = [row.at for row in engine.store.log(engine.owned[KEY].id)]
        assert times == sorted(times)

    lease = play(database, before)
    now = database.now
    monkeypatch.setattr(database, "now", lambda: now() + hours * HOUR)
    play(database, after, spec=None)


def flipped(data: bytes, place: float) -> bytes:
    at = int(place * (len(data) - 1))
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flipped at its start": lambda data: flipped(data, 0.0),
    "flipped in the middle": lambda data: flipped(data, 0.5),
    "flipped at its end": lambda data: flipped(data, 1.0),
    "cut": lambda data: data[: len(data) // 2],
    "nothing": lambda _: b"",
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("which", [1, 3])
def test_a_damaged_snapshot_is_passed_over(how: str, which: int, database: Database) -> None:
    """The latest one, or all three: an older one and the log, or the log alone, give the same state."""
    before = live(database)
    kept = snapshots(database)
    assert len(kept) == 3
    for seq, sha256, data in kept[:which]:
        put_snapshot(database, seq, DAMAGE[how](data), sha256)
    assert [seq for seq, _ in Store(database).snapshots(1)] == [seq for seq, _, _ in kept[which:]]

    async def script(engine: Engine) -> bytes:
        return engine.owned[KEY].policy.to_bytes()

    assert play(database, script, spec=None) == before


def test_a_snapshot_of_another_past_is_passed_over(database: Database) -> None:
    before = live(database)
    seq, _, data = snapshots(database)[0]
    other = Policy.from_bytes(data)
    other.head = bytes(32)
    put_snapshot(database, seq, other.to_bytes())
    row = Store(database).policy(*KEY)
    assert row is not None
    assert recovery.load_snapshot(Store(database), row, seq, other.to_bytes()) is None
    assert recovery.recover(Store(database), row).to_bytes() == before


def test_the_whole_log_gives_the_live_state(database: Database) -> None:
    before = live(database, 150)
    assert replayed(Store(database)).to_bytes() == before
    for seq, _, data in snapshots(database):
        row = Store(database).policy(*KEY)
        assert row is not None
        assert Policy.from_bytes(data).seq == seq
        assert recovery.roll_forward(Store(database), row, Policy.from_bytes(data)).to_bytes() == before


@pytest.mark.parametrize("seq", [0, 1, 17, -1])
def test_a_row_of_the_log_that_was_edited_or_deleted_is_named(seq: int, database: Database) -> None:
    live(database, 40)
    change(database, "DELETE FROM snapshots")
    store = Store(database)
    rows = list(store.log(1))
    number = rows[seq].seq
    row = store.policy(*KEY)
    assert row is not None
    whole = rows[seq]
    for edited in (
        whole._replace(at=whole.at + 1),
        whole._replace(hash=bytes(32)),
        whole._replace(body=bytes(whole.body) + b" "),
        whole,
    ):
        change(database, f"DELETE FROM log WHERE seq = {number}")
        put(database, "add_log", **edited._asdict())
        if edited is not whole:
            with pytest.raises(DamagedLog, match=f"Row {number} of the log of policy 'p'"):
                recovery.recover(store, row)
    assert recovery.recover(store, row).seq == len(rows)
    change(database, f"DELETE FROM log WHERE seq = {number}")
    wanted = f"Row {number} of the log of policy 'p' is missing|does not begin" if seq >= 0 else f"after {number} rows"
    with pytest.raises(DamagedLog, match=wanted):
        recovery.recover(store, row)


def test_a_damaged_policy_is_not_served_and_the_others_are(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    live(database, 40)
    change(database, "DELETE FROM snapshots")
    change(database, "UPDATE log SET at = at + 1 WHERE seq = 7")
    reads: list[PolicyRow] = []

    def counted(store: Store, row: PolicyRow, *rest: Any) -> Policy:
        reads.append(row)
        return recovery.recover(store, row, *rest)

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        for _ in range(3):
            problem = await problem_of(decide(engine, "a"))
            assert (problem.status, problem.code) == (500, "damaged")
            assert "Row 7 of the log of policy 'p' was changed" in str(problem)
        body = TaskBody(task="a", context=[1.0, 0.5])
        assert (await engine.submit(("other", "p"), Decide(body))).status == 201
        await engine.ownership.adopt_orphans()
        assert len(reads) == 1  # not with every call

    monkeypatch.setattr(ownership, "recover", counted)
    play(database, script, spec=None)


def test_an_account_that_was_edited_is_noticed(database: Database) -> None:
    live(database, 20)
    change(database, "UPDATE budgets SET total = total + 1")
    row = Store(database).policy(*KEY)
    assert row is not None
    with pytest.raises(DamagedLog, match="budgets of policy 'p' are not what its log says"):
        recovery.recover(Store(database), row)


class Bomb:
    """Does something when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path(self.path),))

    def __init__(self, path: str) -> None:
        self.path = path


def test_a_pickle_as_a_snapshot_is_refused_and_not_executed(database: Database, tmp_path: Path) -> None:
    before = live(database, 30)
    bomb = pickle.dumps(Bomb(str(tmp_path / "executed")))
    with pytest.raises(UnreadableState):
        Policy.from_bytes(bomb)
    seq, _, data = snapshots(database)[0]
    wrapped = msgspec.structs.replace(msgspec.msgpack.decode(data, type=Snapshot), learner=bomb)
    with pytest.raises(UnreadableState):
        Policy.from_bytes(msgspec.msgpack.encode(wrapped))
    for each in (bomb, msgspec.msgpack.encode(wrapped)):
        put_snapshot(database, seq, each)  # with the right checksum

        async def script(engine: Engine) -> bytes:
            return engine.owned[KEY].policy.to_bytes()

        assert play(database, script, spec=None) == before
        seq = snapshots(database)[0][0]
    assert not (tmp_path / "executed").exists()


def test_a_sqlite_that_can_corrupt_its_file_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(DeferkitError, match="SQLite 3.51.2 can corrupt its file; 3.51.3 or later is needed"):
        asyncio.run(start_and_stop(Sqlite(str(tmp_path / "a.db"))))
    assert list(tmp_path.iterdir()) == []
