"""Two processes on PostgreSQL go from the release before to this one, one after the other, under load.

It needs the history of the repository, from which the release before is taken: it is a part of `make soak`.
"""

import filecmp
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.faults.processes.test_webhooks import expected
from tests.serve.harness.clients import CROWD_POLICY, PATH, Client, Crowd, until
from tests.serve.harness.service_process import ROOT, ServiceProcess, free_port
from tests.serve.harness.webhook_receiver import Receiver
from tests.serve.storage.test_migrations import STEPS, version

RELEASE_BEFORE = "e9b1f8ba3aa181787c1b29d3b42d0fad7ff11993"  # the last with 12 steps of the schema
SCHEMA_BEFORE = 12
MAX_REFUSED_S = 2.0
COMPILED = ("*.pyx", "*.pxd", "*.h", "layout.py")

Reading = Callable[[str], Database]


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the release before, with its extension modules."""
    if not os.environ.get("DEFERKIT_SOAK"):
        pytest.skip("a part of make soak")
    archive = subprocess.run(["git", "archive", RELEASE_BEFORE], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("there is no history to take the release before from")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    sources = [path.relative_to(folder) for name in COMPILED for path in (folder / "src").rglob(name)]
    same, _, _ = filecmp.cmpfiles(folder, ROOT, sources, shallow=False)
    if len(same) == len(sources):
        for path in (ROOT / "src").rglob("*.so"):
            shutil.copy(path, folder / path.relative_to(ROOT))
    else:
        subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=folder, check=True)
    return folder / "src"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


class Waits:
    """Calls one service after the other, and notes how long each call takes until it is acknowledged."""

    def __init__(self, services: list[ServiceProcess]) -> None:
        self.services = services
        self.calls = 0
        self.longest = 0.0
        self.wrong: list[BaseException] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        """Decide tasks until it is over."""
        try:
            while not self.over.is_set():
                began = time.monotonic()
                while not self.decide({"task": f"probe-{self.calls}", "context": [1, 0, 0]}):
                    time.sleep(0.02)
                self.calls += 1
                self.longest = max(self.longest, time.monotonic() - began)
        except BaseException as error:
            self.wrong.append(error)

    def decide(self, body: dict[str, Any]) -> bool:
        """Ask all services in turn; whether one has decided."""
        for service in self.services:
            client = Client(service.url, timeout_s=10)
            try:
                answer = client.call("POST", f"{PATH}/decisions", body)
                if answer.status == 201:
                    return True
                assert answer.status == 503, answer
            except OSError:
                pass
            finally:
                client.connection.close()
        return False


def test_under_load_nothing_is_lost_and_no_call_is_refused_for_long(
    release_before: Path, postgres_store: str, reading: Reading, receiver: Receiver, tmp_path: Path
) -> None:
    ports = [free_port(), free_port()]

    def service(port: int, source: Path) -> ServiceProcess:
        """Start a service of a release."""
        made = ServiceProcess(
            tmp_path,
            *("--rate=0", "--webhook-private", f"--address=http://127.0.0.1:{port}"),
            store=postgres_store,
            port=port,
            environment={"PYTHONPATH": str(source)},
        )
        made.start()
        return made

    now = ROOT / "src"
    services = [service(port, release_before) for port in ports]
    try:
        for each in services:
            each.ready()
        assert version(reading(postgres_store)) == SCHEMA_BEFORE
        assert services[0].post("/v1/policies", **CROWD_POLICY).status == 201
        assert services[1].post("/v1/policies", **CROWD_POLICY | {"name": "q"}).status == 201  # each owns a policy
        events = ["decided", "completed", "expired"]
        assert services[0].post("/v1/webhooks", url=receiver.url, events=events).status == 201
        waits = Waits(services)
        refused = []  # the longest wait so far, after each of the two steps
        with Crowd(*services) as crowd:
            waits.thread.start()
            crowd.go_on(100)
            for number in (0, 1):
                if number == 0:
                    receiver.open.clear()  # some events are left to the next owner
                    time.sleep(0.5)
                assert services[number].stop() == 0
                receiver.open.set()
                crowd.go_on(50)
                services[number] = service(ports[number], now)
                services[number].ready()
                crowd.go_on(100)
                refused.append(round(waits.longest, 2))
            assert version(reading(postgres_store)) == len(STEPS)
        waits.over.set()
        waits.thread.join()
        assert not waits.wrong, waits.wrong
        wanted = expected(Store(reading(postgres_store)))
        until(lambda: len(receiver.events()) >= len(wanted), "all events have come")
        assert [each.stop() for each in services] == [0, 0]
    finally:
        receiver.open.set()
        for each in services:
            each.kill()
    told = [(event["event"], event["data"]["task"]) for event in receiver.events()]
    assert len(told) == len(set(told))
    assert set(told) == wanted
    print(
        f"{crowd.count} calls of the crowd and {waits.calls} of a probe, {dict(crowd.failures)}, {len(told)} events,"
        f" {len(receiver.calls) - len(told)} came again; the longest waits were {refused} s"
    )
    assert waits.longest <= MAX_REFUSED_S
