"""The commands of docs/tutorial.md run as they are written, in order, against the real command line and service."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
ADDRESS = "127.0.0.1:8080"
TIMEOUT_S = 240
LOOK = "curl -s http://127.0.0.1:8080/v1/policies/moderation/summary > summary.json\n"
"""What the test looks at before the service is stopped."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of somebody who has followed the tutorial, and what the terminal showed."""
    folder = tmp_path_factory.mktemp("tutorial")
    port = free_port()
    *before, stop = COMMANDS
    assert "kill %1" in stop
    # `set -e` ends it at the first command that fails; what is installed is found without a network
    script = "\n".join(["set -euo pipefail", *before, LOOK, stop, "echo the end"])
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DEFERKIT_PORT": str(port),
        "PIP_NO_INDEX": "1",
        "COLUMNS": "100",
    }
    with subprocess.Popen(
        ["bash", "-c", script.replace(ADDRESS, f"127.0.0.1:{port}")],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the service too, if it was left behind
    assert shell.returncode == 0, printed
    assert printed.endswith("the end\n")
    return folder, printed


def test_every_block_of_the_page_is_a_command_or_its_output() -> None:
    fences = re.findall(r"^```(\w*)$", PAGE, flags=re.MULTILINE)
    assert fences[::2] == ["sh"] * len(COMMANDS)
    assert len(COMMANDS) >= 8


def test_it_ends_with_a_plan(followed: tuple[Path, str]) -> None:
    folder, printed = followed
    assert (folder / "results" / "plan.html").stat().st_size > 100_000
    said = " ".join(printed.split())
    assert re.search(r"With [\d.]+ minutes \(10 % of reviewing everything\)", said)
    assert "the smallest budget that gets so much of" in said


def test_it_ends_with_a_served_policy(followed: tuple[Path, str]) -> None:
    folder, printed = followed
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["decisions"] == 300
    assert 0 < summary["deferral_rate"] < 0.5
    assert re.search(r"300 decisions, \d+% reviewed; [\d.]+ minutes spent", printed)
    assert "The log is whole" in printed  # of the replay


def test_it_ends_with_an_answered_review(followed: tuple[Path, str]) -> None:
    _, printed = followed
    waiting = re.search(r"(\d+) tasks wait for you", printed)
    assert waiting is not None
    assert int(waiting[1]) > 0
    [(task, rewards)] = re.findall(r"^(item-\d+) \{.*\n(\{.*\})$", printed, flags=re.MULTILINE)
    assert int(task.removeprefix("item-")) >= 250
    assert '"human": 1' in rewards.replace("'", '"')
