"""What the service does not do: fetch, unpickle, or tell what it was told."""

import ast
import hashlib
import io
import json
import logging
import pickle
import socket
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import deferkit.learn
import deferkit.serve
from deferkit.serve.domain.policy import Snapshot
from deferkit.serve.structured_logs import JsonLines
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running
from tests.serve.harness.service_process import ServiceProcess

SECRETS = ("s3cret", "1234.5678")
FETCHERS = {"http", "urllib.request", "urllib3", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "subprocess"} | {
    "deferkit.http_connections"
}
UNPICKLERS = {"pickle", "_pickle", "dill", "joblib", "shelve", "marshal"}


def imported(folder: str) -> dict[str, set[str]]:
    """Return the modules that each file of a folder imports."""
    found: dict[str, set[str]] = {}
    for path in Path(folder).rglob("*.py"):
        names = found.setdefault(path.relative_to(folder).as_posix(), set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name: {part for each in names for part in (each, each.partition(".")[0])} for name, names in found.items()}


def test_the_urls_of_a_task_are_not_fetched(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        payload = {"url": url, "image": f"<img src='{url}'>", "$ref": url, "markdown": f"![x]({url})", "text": url}
        assert client.decide(url, payload=payload, model_answer={"url": url}).status == 201
        claimed = client.post("/v1/policies/p/reviews/claim", {"reviewer": url}).json
        assert claimed["payload"] == payload
        lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
        answer = {**lease, "answer": payload, "rewards": {"human": 1.0}, "cost": 0.5}
        assert client.post("/v1/policies/p/reviews/complete", answer).status == 200
        assert client.get(f"/v1/policies/p/decisions?task={url}").json["answer"] == payload
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_nothing_that_fetches_is_imported_but_to_reach_the_owner_of_a_policy_and_webhooks() -> None:
    found = imported(deferkit.serve.__path__[0])
    assert {name for name, names in found.items() if names & FETCHERS} == {"http/forwarding.py", "engine/webhooks.py"}


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("within", [False, True])
def test_a_pickle_in_the_place_of_a_snapshot_is_passed_over(tmp_path: Path, within: bool) -> None:
    marker = tmp_path / "unpickled"
    with running(tmp_path) as service:
        client = service.client()
        client.post("/v1/policies", POLICY)
        first = [client.decide(f"t{n}").body for n in range(5)]
    with apsw.Connection(str(tmp_path / "deferkit.db")) as file:
        data: Any = file.execute("SELECT data FROM snapshots").fetchall()[0][0]
        trap = pickle.dumps(Trap(marker))
        snapshot = msgspec.msgpack.decode(bytes(data), type=Snapshot)
        bad = msgspec.msgpack.encode(msgspec.structs.replace(snapshot, learner=trap)) if within else trap
        file.execute("UPDATE snapshots SET data = ?, sha256 = ?", (bad, hashlib.sha256(bad).digest()))
    file.close()
    with running(tmp_path) as service:
        assert [service.client().decide(f"t{n}").body for n in range(5)] == first
        assert service.client().decide("next").status == 201
    assert not marker.exists()
    pickle.loads(trap)
    assert marker.exists()


def test_a_pickle_that_is_sent_is_refused(client: Client, tmp_path: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "unpickled"))
    for kind in ("application/json", "application/octet-stream", "application/python-pickle"):
        assert client.post("/v1/policies", trap, headers={"content-type": kind}).status in (400, 415)
    assert not (tmp_path / "unpickled").exists()


def test_nothing_that_unpickles_is_imported() -> None:
    for package in (deferkit.serve, deferkit.learn):
        assert not {name for name, names in imported(package.__path__[0]).items() if names & UNPICKLERS}


def misbehave(client: Client) -> list[bytes]:
    """Send secrets wherever they can be sent, right and wrong; return what came back wrong."""
    named = {"features": {"numbers": ["age"], "categories": {"town": ["a", "b"]}}, "name": "named"}
    assert client.post("/v1/policies", POLICY | named).status == 201
    answers = [
        client.decide("t", payload="s3cret", context=[1234.5678, 1.0]),
        client.decide("t", payload="s3cret", context=[1234.5678, 2.0]),
        client.decide("u", context=[1234.5678]),
        client.decide("u", context=["s3cret", 1234.5678]),
        client.decide("u", context={"s3cret": 1234.5678}),
        client.decide("u", context=[1234.5678e60, 1.0]),
        client.decide("u", "named", context=[1234.5678, 1234.5678]),
        client.decide("u", "named", context={"age": "s3cret", "town": "a"}),
        client.decide("u", "named", context={"age": 1234.5678, "town": 1234.5678}),
        client.post("/v1/policies/p/decisions", b'{"task": "u", "context": [1234.5678, 1.0], "payload": "s3cret"'),
        client.post("/v1/policies/p/outcomes", {"task": "t", "rewards": {"human": 1234.5678}}),
        client.post("/v1/policies/p/reviews/complete", {"task": "t", "epoch": 9, "answer": "s3cret"}),
        client.get("/v1/policies", headers={"authorization": "Bearer dk_s3cret_s3cret"}),
        client.get("/v1/policies", headers={"authorization": "Basic s3cret"}),
    ]
    batch = [{"task": "v", "context": ["s3cret"]}, {"task": "w", "context": [1234.5678] * 3}]
    answers += [client.post("/v1/policies/p/decisions/batch", {"tasks": [each]}) for each in batch]
    return [answer.body for answer in answers if answer.status != 201]


def test_logs_errors_and_metrics_do_not_tell_what_was_sent(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, "--log-level", "debug") as served:
        client = Client(served.url)
        client.post("/v1/policies", POLICY)
        wrong = misbehave(client)
        assert len(wrong) >= 14
        told = [*wrong, client.get("/metrics").body, client.get("/v1/policies/p/summary").body]
        client.connection.close()
        assert served.stop() == 0
        told.append(served.log.encode())
        assert len(served.events()) == len(served.log.splitlines()) - 2  # the two lines for people at the start
    for secret in SECRETS:
        assert not [text for text in told if secret.encode() in text and b"reward" not in text]


def test_a_fault_of_ours_is_logged_without_its_words(
    service: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("deferkit.serve")
    monkeypatch.setattr(logger, "handlers", [handler])

    def fail(*_: Any) -> None:
        try:
            int("s3cret")
        except ValueError as error:
            raise RuntimeError("s3cret\n{}") from error

    monkeypatch.setattr(service.store, "policy", fail)
    answer = client.get("/v1/policies/p")
    assert answer.json == {"status": 500, "code": "internal", "detail": "The call failed: RuntimeError."}
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"], line["trace"][0]) == ("error", "a call failed", "RuntimeError")
    assert "ValueError" in line["trace"]
    assert "s3cret" not in stream.getvalue()


def test_nothing_breaks_a_line_of_the_log() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    bad = 'a\nb\r\u2028\x1b[31m"\ud800'
    record = logging.makeLogRecord({"msg": "%s", "args": (bad,), "levelname": "INFO", "task": bad, "other": {1: bad}})
    handler.handle(record)
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == bad
