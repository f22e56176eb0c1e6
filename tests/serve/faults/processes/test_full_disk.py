"""A disk without room. Decisions are refused, reads go on, and it recovers by itself."""

import resource
from collections.abc import Callable
from pathlib import Path

from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import CROWD_POLICY, PATH, until
from tests.serve.harness.in_process import KEY
from tests.serve.harness.policy_histories import check_log, check_state
from tests.serve.harness.service_process import ServiceProcess

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]


def let_files_grow_to(service: ServiceProcess, size: int) -> None:
    """Limit the files that a process writes: to the process it is as if the disk were full."""
    assert service.pid is not None
    _, most = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (size, most))


def decide(service: ServiceProcess, number: int) -> int:
    return service.post(f"{PATH}/decisions", task=f"t{number}", context=[1, 0, number % 7]).status


def again(service: ServiceProcess, number: int) -> None:
    """Wait until a decision is taken."""
    until(lambda: decide(service, number) == 201, "decisions are taken again")


def test_a_full_disk_refuses_decisions_and_recovers(
    service_on: ServiceOn, sqlite_path: str, reading: Reading, soak: bool
) -> None:
    service = service_on(sqlite_path, snapshot_every=30)
    service.start()
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    done = 0
    for _ in range(20 if soak else 2):
        before = done
        while decide(service, done) == 201:
            done += 1
            if done == before + 40:
                log = Path(f"{sqlite_path}-wal")
                let_files_grow_to(service, log.stat().st_size + 10_000)  # room for one or two commits
        assert done >= before + 40
        let_files_grow_to(service, 0)  # by now nothing at all can be written, not even its own messages
        summary = service.get(f"{PATH}/summary")
        assert (summary.status, summary.json["decisions"]) == (200, done)  # what failed is not in it
        for _ in range(5):
            assert decide(service, done) == 503
            assert service.post(f"{PATH}/budget", id="more", add=1).status == 503
            assert service.get(f"{PATH}/decisions?task=t{done - 1}").status == 200
            assert service.get(f"{PATH}/decisions?task=t{done}").status == 404
            assert service.get(f"{PATH}/log").status == 200
        assert service.get("/readyz").status == 503
        assert service.get("/healthz").status == 200
        after = service.get(f"{PATH}/summary").json
        assert after["budget"] == summary.json["budget"]
        let_files_grow_to(service, resource.RLIM_INFINITY)
        again(service, done)
        assert service.get("/readyz").status == 200
        done += 1
    assert service.stop() == 0
    store = Store(reading(sqlite_path))
    row = store.policy(*KEY)
    assert row is not None
    assert check_log(store, row) == [f"t{number}" for number in range(done)]
    check_state(store, row)
