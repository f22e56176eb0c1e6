"""What a service holds in memory as its log grows to a million decisions, and how long it then takes to start.

Batches of 1,000 tasks go through the engine to SQLite, in a process of its own; experts' costs come back as outcomes.
That process then ends without a word, with almost as many records behind the last snapshot as there can be, and
`deferkit serve` is started on what it has left: the time until it is ready has all in it, loading Python as well.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import argparse
import asyncio
import contextlib
import http.client
import json
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from measure import cpu_model, make_console, make_table

from deferkit.serve.api.tasks import BatchBody, OutcomeBody, TaskBody
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.decide import DecideMany
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store

DECISIONS, BATCH, AT_ONCE, N_FEATURES = 1_000_000, 1000, 4, 20
STOPS = (0.05, 0.2, 0.6, 1.0)  # parts of the way at which memory is measured
KEY = ("default", "p")
PAGE = os.sysconf("SC_PAGESIZE")
SERVE = "from deferkit.cli import main; main()"


def resident() -> float:
    """Return the memory that this process holds now, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


async def batch(engine: Engine, number: int, contexts: list[list[float]]) -> int:
    """Decide a batch, report what the experts cost, and return how many were asked."""
    bodies = [TaskBody(task=f"{number}-{i}", context=context) for i, context in enumerate(contexts)]
    reply = await engine.submit(KEY, DecideMany(BatchBody(tasks=bodies)))
    results: list[dict[str, Any]] = msgspec.json.decode(reply.body)["results"]
    asked = [each["decision"]["task"] for each in results if each["decision"]["route"] != "model"]
    outcomes = [OutcomeBody(task=task, rewards={"human": 0.9, "model": 0.4}, cost=0.5) for task in asked]
    for start in range(0, len(outcomes), 100):
        await asyncio.gather(*(engine.submit(KEY, Observe(body)) for body in outcomes[start : start + 100]))
    return len(asked)


async def fill(path: str, decisions: int) -> None:
    """Take decisions; print a line of JSON at each stop, and end as if killed, far behind the last snapshot."""
    settings = EngineSettings()
    engine = Engine(Store(Sqlite(path)), settings)
    await engine.start()
    total = BudgetSpec(total=decisions / 10, horizon=decisions, max_cost=1)
    await engine.create(KEY[0], PolicySpec(name="p", features=N_FEATURES, budget={"cost": total}))
    policy = engine.owned[KEY]
    rng = np.random.default_rng(0)
    contexts = rng.random((50, BATCH, N_FEATURES)).round(4).tolist()
    stops = [round(part * decisions / BATCH) for part in STOPS]
    began, asked, done = time.perf_counter(), 0, 0

    def behind() -> int:
        return policy.policy.seq - policy.snapshot_at

    while done < stops[-1] or behind() < 0.9 * settings.snapshot_every:
        at_once = AT_ONCE if done < stops[-1] else 1
        numbers = range(done, done + at_once)
        asked += sum(await asyncio.gather(*(batch(engine, n, contexts[n % len(contexts)]) for n in numbers)))
        for stop in [stop for stop in stops if done < stop <= done + at_once]:
            seconds = time.perf_counter() - began
            line = {"decisions": stop * BATCH, "asked": asked, "records": policy.policy.seq, "MB": resident()}
            print(json.dumps(line | {"rate": stop * BATCH / seconds}), flush=True)
        done += at_once
    line = {"decisions": done * BATCH, "behind": behind(), "records": policy.policy.seq}
    print(json.dumps(line | {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}), flush=True)
    os._exit(0)


def seconds_to_ready(path: str) -> tuple[float, float]:
    """Start the service on a file; return the seconds until it is ready, and its memory then in MB. Stop it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    began = time.perf_counter()
    command = [
        sys.executable,
        "-c",
        SERVE,
        "serve",
        f"--store={path}",
        f"--port={port}",
        "--log-level=error",
        "--rate=0",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not is_ready(port):
            time.sleep(0.01)
            assert process.poll() is None, "The service did not start."
        took = time.perf_counter() - began
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        process.terminate()
        assert process.wait(120) == 0
    return took, pages * PAGE / 1e6


def is_ready(port: int) -> bool:
    """Whether the service on a port takes decisions."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=DECISIONS)
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fill:
        asyncio.run(fill(given.fill, given.decisions))
        return
    console = make_console()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "deferkit.db")
        command = [sys.executable, __file__, "--fill", path, "--decisions", str(given.decisions)]
        *rows, end = map(json.loads, subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines())
        size = Path(path).stat().st_size
        killed, stopped = seconds_to_ready(path), seconds_to_ready(path)
    console.print(f"{cpu_model()}; SQLite, {N_FEATURES} features, batches of {BATCH:,}")
    table = make_table([], ["decisions", "asked", "records", "decisions/s", "memory MB"])
    for row in rows:
        values = (row["decisions"], row["asked"], row["records"], row["rate"], row["MB"])
        table.add_row(*(f"{value:,.0f}" for value in values))
    console.print(table)
    console.print(f"peak {end['peak']:,.0f} MB; the file has {size / 1e9:.2f} GB after {end['decisions']:,} decisions")
    console.print(f"ready in {killed[0]:.1f} s and {killed[1]:,.0f} MB after a kill, {end['behind']:,} records behind")
    console.print(f"ready in {stopped[0]:.1f} s and {stopped[1]:,.0f} MB after an end in order")


if __name__ == "__main__":
    main()
