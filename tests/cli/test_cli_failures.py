"""Commands that cannot go on say so in one line: a full disk, Ctrl-C during the imports, a worker that is ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SCRIPT

SMALL = ("run", "synthetic", "--horizon", "200", "--trials", "2")
INTERRUPTED_AT = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
"""


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 16 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may make a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("words", [SMALL, (*SMALL, "--json"), ("--version",), ("run", "--help")])
def test_output_to_a_full_disk_gets_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (2, "error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("words", [(*SMALL, "--results"), ("plan", "synthetic", "--horizon", "200", "--out")])
def test_results_on_a_full_disk_get_one_line(full_disk: Path, words: tuple[str, ...]) -> None:
    folder = full_disk / "results"
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words, str(folder)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: Results cannot be kept in {folder / 'trials'}, which has ")
    assert ended.stderr.endswith(" bytes free: No space left on device.\n")
    assert ended.stderr.count("\n") == 1
    assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("name", ["typer", "polars", "deferkit.study.trial"])
def test_an_interrupt_while_modules_are_imported_leaves_no_traceback(name: str) -> None:
    script = INTERRUPTED_AT.format(name=name) + SCRIPT
    ended = subprocess.run([sys.executable, "-c", script, *SMALL], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize("whom", ["a worker", "all of them"])
def test_sigterm_in_a_worker_leaves_no_traceback(whom: str) -> None:
    words = ("run", "synthetic", "--horizon", "300000", "--trials", "8", "--workers", "2")
    command = [sys.executable, "-c", SCRIPT, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        workers: list[int] = []
        until = time.monotonic() + 60
        while len(workers) < 2 and time.monotonic() < until:
            time.sleep(0.05)
            workers = workers_of(process.pid)
        assert process.poll() is None
        if whom == "a worker":
            os.kill(workers[0], signal.SIGTERM)
        else:
            os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    if whom == "a worker":
        assert process.returncode == 2
        assert said == "error: A worker process died. What was finished is saved; run it again to go on.\n"
    else:
        assert process.returncode == 128 + signal.SIGTERM
        assert "Traceback" not in said


def workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]
