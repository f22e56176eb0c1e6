"""The bridge against a real Label Studio on SQLite: `make test-label-studio`, which sets DEFERKIT_LABEL_STUDIO."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from deferkit import Client
from deferkit.connectors import label_studio_api
from deferkit.connectors.label_studio import BridgeCounts, LabelStudioBridge
from deferkit.connectors.label_studio_api import LabelStudio
from tests.command_line import SCRIPT
from tests.connectors.test_label_studio import POLICY
from tests.serve.harness.clients import until
from tests.serve.harness.in_process import Running, running
from tests.serve.harness.service_process import free_port

LEGACY = "0123456789abcdef0123456789abcdef01234567"
START_S = 900.0  # migrations of a new database take a minute, or several on a busy machine
CONFIG = """
<View>
  <Text name="text" value="$text"/>
  <Choices name="label" toName="text" choice="single"><Choice value="spam"/><Choice value="ham"/></Choices>
</View>
"""


class Server:
    """A Label Studio that was started for these checks."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "label-studio.log"
        environment = os.environ | {
            "LABEL_STUDIO_BASE_DATA_DIR": str(folder),
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "LATEST_VERSION_CHECK": "false",
            "COLLECT_ANALYTICS": "false",
            "SSRF_PROTECTION_ENABLED": "false",  # else no webhook may go to this machine
            "SENTRY_DSN": "",
            "FRONTEND_SENTRY_DSN": "",
        }
        words = ["--no-browser", "--port", self.url.rpartition(":")[2], "--user-token", LEGACY]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    os.environ["DEFERKIT_LABEL_STUDIO"],
                    "start",
                    *words,
                    "--username",
                    "a@b.example",
                    "--password",
                    "secret-8",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.http = httpx.Client(base_url=self.url, headers={"authorization": f"Token {LEGACY}"}, timeout=60)
        try:
            until(self.answers, f"Label Studio starts: {self.log}", START_S)
        except BaseException:
            self.stop()
            raise

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return self.http.get("/health").status_code == 200
        except httpx.HTTPError:
            time.sleep(0.5)
            return False

    def call(self, method: str, path: str, **given: Any) -> Any:
        reply = self.http.request(method, path, **given)
        assert reply.is_success, f"{reply.status_code} {reply.text[:500]}"
        return reply.json() if reply.content else None

    def stop(self) -> None:
        self.http.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("label-studio"))
    yield server
    server.stop()


class Project:
    """A project of its own, as its annotators see it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.number = int(server.call("POST", "/api/projects/", json={"title": "mails", "label_config": CONFIG})["id"])

    def tasks(self) -> dict[str, int]:
        """The numbers of the tasks by the service's id; raise if one is there twice."""
        reply = self.server.call("GET", "/api/tasks/", params={"project": self.number, "page_size": 1000})
        found = [(each["data"]["deferkit_task"], each["id"]) for each in reply["tasks"]]
        assert len(dict(found)) == len(found), found
        return dict(found)

    def has_more_than(self, number: int) -> bool:
        return len(self.tasks()) > number

    def annotate(self, task: str, choice: str = "spam", *, lead_time: float = 90.0, skipped: bool = False) -> None:
        region = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": [choice]}}
        body = {"result": [] if skipped else [region], "lead_time": lead_time, "was_cancelled": skipped}
        self.server.call("POST", f"/api/tasks/{self.tasks()[task]}/annotations/", json=body)


@pytest.fixture
def project(server: Server) -> Project:
    return Project(server)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as service:
        assert service.client().post("/v1/policies", POLICY).status == 201
        yield service


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    with Client(service.url, policy="mails") as client:
        yield client


@pytest.fixture
def studio(server: Server, project: Project) -> Iterator[LabelStudio]:
    with LabelStudio(server.url, token=LEGACY, project=project.number) as studio:
        yield studio


def ask(client: Client, *tasks: str) -> None:
    for task in tasks:
        client.decide([1.0, 0.5], task=task, force="human", payload={"text": f"mail {task}"}, model_answer="ham")


def is_answered(client: Client, task: str) -> bool:
    return client.read(task)["answer"] is not None


STRANGE = "50% of 'a' \"b\" & ü/\\ +?#=1"


def test_annotations_complete_tasks_whatever_their_ids(client: Client, studio: LabelStudio, project: Project) -> None:
    ask(client, "a", STRANGE)
    bridge = LabelStudioBridge(client, studio)
    assert bridge.step() == BridgeCounts(created=2)
    project.annotate(STRANGE, "spam", lead_time=90.0)
    assert bridge.step() == BridgeCounts(completed=1)
    assert client.read(STRANGE)["answer"] == {"label": "spam"}
    summary = client.summary()
    assert (summary.spent, summary.reserved) == (1.5, 5.0)
    assert LabelStudioBridge(client, studio).step() == BridgeCounts()  # another start
    assert set(project.tasks()) == {"a", STRANGE}


def test_more_tasks_than_a_page_has(
    client: Client, studio: LabelStudio, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_studio_api, "PAGE", 3)
    names = [f"t{number}" for number in range(7)]
    ask(client, *names)
    bridge = LabelStudioBridge(client, studio)
    assert bridge.step().created == 7
    assert len(list(studio.of_policy("mails"))) == 7
    for name in (names[0], names[6]):
        project.annotate(name)
    assert bridge.step() == BridgeCounts(completed=2)
    assert len(project.tasks()) == 7


def test_a_skipped_task_is_declined_and_others_are_withdrawn(
    client: Client, studio: LabelStudio, project: Project
) -> None:
    ask(client, "a", "b", "c")
    bridge = LabelStudioBridge(client, studio)
    bridge.step()
    project.annotate("a", lead_time=30.0, skipped=True)
    client.expire("b")
    draft = {"result": [], "lead_time": 1.0}
    project.server.call("POST", f"/api/tasks/{project.tasks()['c']}/drafts", json=draft)
    client.expire("c")
    assert bridge.step() == BridgeCounts(skipped=1, withdrawn=1)
    assert set(project.tasks()) == {"a", "c"}  # somebody has begun c
    assert client.summary().spent == 0.5


def test_tasks_of_an_earlier_run_are_swept(client: Client, studio: LabelStudio, project: Project) -> None:
    ask(client, "a", "b")
    LabelStudioBridge(client, studio).step()
    project.server.call(
        "POST", "/api/tasks/", json={"project": project.number, "data": {"text": "", "deferkit_task": ""}}
    )
    client.expire("a")
    assert LabelStudioBridge(client, studio).step() == BridgeCounts(withdrawn=1)
    assert set(project.tasks()) == {"b", ""}


def test_a_task_without_what_the_interface_needs_is_declined(client: Client, studio: LabelStudio) -> None:
    ask(client, "good")
    client.decide([1.0, 0.5], task="bad", force="human", payload={"image": "none"})
    assert LabelStudioBridge(client, studio).step() == BridgeCounts(created=1)
    assert {seat["task"]: seat["declines"] for seat in client.reviews.list()} == {"good": 0, "bad": 1}


def test_personal_access_tokens_are_refreshed(client: Client, server: Server, project: Project) -> None:
    token = server.call("POST", "/api/token/")["token"]
    with LabelStudio(server.url, token=token, project=project.number) as studio:
        ask(client, "a")
        bridge = LabelStudioBridge(client, studio)
        assert bridge.step() == BridgeCounts(created=1)
        studio._http.headers["authorization"] = "Bearer expired"  # as it is after some minutes
        project.annotate("a")
        assert bridge.step() == BridgeCounts(completed=1)


class BridgeProcess:
    """`deferkit bridge label-studio` in a process of its own."""

    def __init__(self, service: Running, project: Project, folder: Path, *words: str) -> None:
        self.log = folder / "bridge.log"
        given = [
            "--url",
            project.server.url,
            "--project",
            str(project.number),
            "--service",
            service.url,
            "--poll-s",
            "0.2",
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, "bridge", "label-studio", *given, *words],
                stdout=log,
                stderr=log,
                env=os.environ | {"LABEL_STUDIO_API_KEY": LEGACY},
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "BridgeProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def test_a_bridge_that_is_killed_again_and_again_loses_nothing_and_makes_nothing_twice(
    service: Running, client: Client, project: Project, tmp_path: Path
) -> None:
    """Killed at moments of its start, of claiming and creating, and between creation and annotation."""
    names = [f"t{number}" for number in range(12)]
    ask(client, *names)
    known = 0
    for _ in range(8):
        with BridgeProcess(service, project, tmp_path) as bridge:
            until(partial(project.has_more_than, known), f"a task is created: {bridge.log}")
        # killed: some are created, the next one may be on its way
        time.sleep(0.5)  # what was on its way is there by then
        known = len(project.tasks())
        if known == len(names):
            break
    for name in names[:6]:
        project.annotate(name)  # while no bridge runs
    with BridgeProcess(service, project, tmp_path) as bridge:
        until(lambda: client.summary().spent == 9.0, f"six are completed: {bridge.log}")
    for name in names[6:]:
        project.annotate(name)
    with BridgeProcess(service, project, tmp_path) as bridge:
        until(lambda: client.summary().spent == 18.0, f"all are completed: {bridge.log}")
    assert set(project.tasks()) == set(names)
    assert client.summary().reserved == 0.0
    assert all(client.read(name)["answer"] == {"label": "spam"} for name in names)


def test_a_webhook_wakes_the_bridge_and_is_made_once(
    service: Running, client: Client, project: Project, tmp_path: Path
) -> None:
    words = ("--poll-s", "3600", "--listen", f"127.0.0.1:{free_port()}")
    ask(client, *"abcdef")
    for names in ("abc", "def"):  # two starts
        with BridgeProcess(service, project, tmp_path, *words) as bridge:
            until(lambda: "created 6" in bridge.log.read_text(), f"it looks: {bridge.log}")
            for (
                name
            ) in names:  # Label Studio gives a webhook a second, and does not repeat it: one of them comes through
                project.annotate(name)
                time.sleep(2.0)
            until(partial(is_answered, client, names[0]), f"it is woken: {bridge.log}")
    hooks = project.server.call("GET", "/api/webhooks/", params={"project": project.number})
    assert [sorted(hook["actions"]) for hook in hooks] == [["ANNOTATION_CREATED", "ANNOTATION_UPDATED"]]
