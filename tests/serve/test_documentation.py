"""The commands and the code on our pages that need a service run as they are written, against a real one."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferkit import Budget
from tests.command_line import deferkit
from tests.serve.harness.clients import TIMEOUT_S
from tests.serve.harness.service_process import ServiceProcess

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "service-guide.md").read_text()
SECTION = GUIDE[GUIDE.index("\n## First calls\n") : GUIDE.index("\n## Topics\n")]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("readme")) as started:
        yield started


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def documents(text: str) -> list[Any]:
    """Return the JSON documents that a text consists of."""
    found, at = [], 0
    while at < len(text):
        value, end = json.JSONDecoder().raw_decode(text, at)
        found.append(value)
        at = len(text) - len(text[end:].lstrip())
    return found


def ended(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_commands_run(service: ServiceProcess, tmp_path: Path) -> None:
    commands = [block for block in blocks(SECTION, "sh") if "curl" in block]
    assert len(commands) >= 1
    for block in commands:
        assert ADDRESS in block
        done = ended(["bash", "-euo", "pipefail", "-c", block.replace(ADDRESS, service.url)], tmp_path)
        replies = documents(done.stdout)
        assert len(replies) == len(re.findall(r"^curl", block, flags=re.MULTILINE))
        assert not [reply for reply in replies if "code" in reply]
    with service.client("claims") as client:
        summary = client.summary()
        task = client.read("claim-17")
    assert (summary.spent, summary.reserved, summary.outcomes) == (4.5, 0.0, 2)
    assert (task["final"], task["answer"]) == ("human", "refuse")


def test_the_code_that_needs_a_service_runs(service: ServiceProcess, tmp_path: Path) -> None:
    found = [block for page in PAGES for block in blocks(page.read_text(), "python") if "Client(" in block]
    assert any(block in SECTION for block in found)
    for block in found:
        done = ended([sys.executable, "-W", "error", "-c", block.replace(ADDRESS, service.url)], tmp_path)
        assert done.stderr == ""
    with service.client("reviews") as client:
        assert client.summary().decisions == 1


def test_the_key_command_prints_a_key_once_that_is_good_for_the_rest(tmp_path: Path) -> None:
    [words] = re.findall(r"`deferkit (keys create [^`]*)`", SECTION)
    store = tmp_path / "deferkit.db"
    with ServiceProcess(tmp_path, store=store) as service:
        with service.client("claims") as client:
            client.create(features=1, budget=Budget(100, horizon=1000, max_cost=1))
        made = deferkit(*words.split(), "--store", str(store), cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        key = made.stdout.strip()
        assert re.fullmatch(r"dk_[0-9a-f]+_\S+", key)
        with service.client("claims", key=key) as client:  # it was made without a key
            decision = client.decide([1.0], force="model")
            client.observe(decision.id, {"model": 1.0})
            assert client.reviews.claim("ann") is None
            assert client.summary().decisions == 1
    listed = deferkit("keys", "list", "--store", str(store), cwd=tmp_path)
    assert "default" in listed.stdout
    assert key not in listed.stdout
