"""A service that crashed on a full disk starts again: it can be read, says why it does not write, and recovers."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deferkit.serve.audit.replay import replay
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.faults.processes.conftest import fork_server, reading, service_on
from tests.serve.harness.clients import CROWD_POLICY, PATH, Answer, until
from tests.serve.harness.in_process import KEY, play
from tests.serve.harness.service_process import ServiceProcess

__all__ = ["fork_server", "reading", "service_on"]

FULL = "Read-only: SQLite: database or disk is full."


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 24 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("only root may make a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room on a disk."""
    junk = folder / "junk"
    with junk.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(256))
        except OSError:
            return junk


def decide(service: ServiceProcess, task: str) -> Answer:
    route = "human" if task == "t0" else "model"
    return service.post(f"{PATH}/decisions", task=task, context=[1, 0, 0], force=route)


def answers(service: ServiceProcess) -> bool:
    """Whether it answers, and has loaded the policy."""
    try:
        return service.get("/healthz").status == service.get(f"{PATH}/summary").status == 200
    except OSError:
        assert service.wait(0) is None, service.log
        return False


def crashed_on_a_full_disk(service: ServiceProcess, disk: Path) -> tuple[Path, int]:
    """Have a service decide until there is no room, and kill it."""
    service.start()
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    done = 0
    while decide(service, f"t{done}").status == 201:
        done += 1
        if done == 150:  # more than the file has room for without growing: its log cannot be copied into it
            junk = fill(disk)
    service.kill()
    return junk, done


def test_full_disk_then_a_crash_starts_read_only_and_says_why(
    service_on: Callable[..., ServiceProcess], small_disk: Path, reading: Callable[[str], Database]
) -> None:
    path = str(small_disk / "deferkit.db")
    service = service_on(path)
    junk, done = crashed_on_a_full_disk(service, small_disk)
    service.start()
    until(lambda: answers(service), "it answers")
    for _ in range(3):
        assert service.get("/readyz").status == 503
        assert b"\ndeferkit_failing 1.0" in service.get("/metrics").body
        assert [each["name"] for each in service.get("/v1/policies").json["policies"]] == [CROWD_POLICY["name"]]
        assert service.get(f"{PATH}/summary").json["decisions"] == done
        assert service.get(f"{PATH}/decisions?task=t3").status == 200
        assert len(service.get(f"{PATH}/log?limit=1000").json["rows"]) == done + 1
        refused = decide(service, "new")
        assert (refused.status, refused.json["detail"].startswith(FULL)) == (503, True), refused
        assert service.post(f"{PATH}/reviews/claim", reviewer="ann").status == 503
        assert service.post(f"{PATH}/outcomes", task="t0", cost=0.5).status == 503
    assert '"read-only: the store cannot be written"' in service.log
    junk.unlink()
    until(lambda: service.get("/readyz").status == 200, "it is ready by itself")
    assert decide(service, "new").status == 201
    assert service.post(f"{PATH}/reviews/claim", reviewer="ann").status == 200
    assert service.stop() == 0
    report = replay(Store(reading(path)), *KEY)
    assert (report.faults, report.rows) == ([], done + 2)


def test_a_decision_that_finds_room_again_is_taken_at_once(
    service_on: Callable[..., ServiceProcess], small_disk: Path
) -> None:
    service = service_on(str(small_disk / "deferkit.db"))
    junk, _ = crashed_on_a_full_disk(service, small_disk)
    service.start()
    until(lambda: answers(service), "it answers")
    assert decide(service, "new").status == 503
    junk.unlink()
    assert decide(service, "new").status == 201
    assert service.stop() == 0


def test_a_read_only_service_stops_in_order_and_starts_again(
    service_on: Callable[..., ServiceProcess], small_disk: Path
) -> None:
    service = service_on(str(small_disk / "deferkit.db"))
    junk, done = crashed_on_a_full_disk(service, small_disk)
    for _ in range(2):
        service.start()
        until(lambda: answers(service), "it answers")
        assert service.get(f"{PATH}/summary").json["decisions"] == done
        assert service.stop() == 0
    junk.unlink()
    service.start()
    service.ready()
    assert decide(service, "new").status == 201


def test_a_lease_that_still_fits_does_not_make_a_full_disk_ready(
    sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal goes into the log that is there; who asks whether decisions can be taken is not to be told yes."""

    async def script(engine: Engine) -> None:
        ownership = engine.ownership
        assert ownership.failing == "The disk of the store is full."
        for room, failing in ((False, True), (True, False)):
            monkeypatch.setattr(sqlite, "has_room", lambda room=room: room)
            ownership._renew_at = 0
            await ownership.renew_if_due()
            assert (ownership.failing is not None) is failing

    assert sqlite.has_room()
    monkeypatch.setattr(sqlite, "has_room", lambda: False)
    play(sqlite, script, settings=EngineSettings(tick_s=3600), spec=None)


def test_room_is_what_the_disk_has(small_disk: Path) -> None:
    store = Sqlite(str(small_disk / "deferkit.db"))
    assert store.has_room()
    junk = fill(small_disk)
    assert not store.has_room()
    junk.unlink()
    assert store.has_room()
