"""How many files of the package the usual operations cross: `make walks` prints them, tests/test_walks.py bounds them.

An operation is traced with `sys.setprofile` in all threads. Of several repetitions the one with the fewest files
counts, so that background work (a tick of the server, a renewal of leases) is left out. Compiled steps are not seen.
"""

import io
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from queue import Queue
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

import deferkit
from deferkit import Budget, Client, Deferrer

PACKAGE = str(Path(deferkit.__file__).parent) + os.sep
CLIENT = ("client", "http_connections.py")  # of the caller, in this process too
REPETITIONS = 5
STARTUP_S = 60.0
BUDGET = Budget(100.0, horizon=1_000, max_cost=1)
NAMED = {"numbers": ["amount", "age"], "categories": {"country": ["de", "fr"]}}


class Walk(NamedTuple):
    """Files and calls of an operation within the package."""

    files: int
    calls: int
    visited: Counter[str]


class Tracer:
    """Counts the calls into each file of the package, in all threads that are started while it is installed."""

    def __init__(self) -> None:
        self.calls: Counter[str] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call."""
        if self.calls is None or event != "call":
            return
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            path = name.removeprefix(PACKAGE)
            if not path.startswith(CLIENT):
                self.calls[path] += 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Trace this thread and the ones that are started."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def walk(self, operation: Callable[[], object]) -> Walk:
        """Return the walk of an operation."""
        self.calls = Counter()
        try:
            operation()
        finally:
            visited, self.calls = self.calls, None
        return Walk(len(visited), sum(visited.values()), visited)


def shortest(walks: list[Walk]) -> Walk:
    """Return the walk with the fewest files."""
    return min(walks, key=lambda walk: (walk.files, walk.calls))


def walk_library(tracer: Tracer) -> Walk:
    """Return the walk of `Deferrer.decide` and `observe` with a vector."""
    deferrer = Deferrer(n_features=3, budget=BUDGET)
    context = np.array([1.0, 0.2, 0.4])

    def decide_and_observe() -> None:
        decision = deferrer.decide(context)
        asked = decision.route != "model"
        deferrer.observe(decision.id, rewards={decision.route: 1.0}, cost=1.0 if asked else None)

    decide_and_observe()
    return shortest([tracer.walk(decide_and_observe) for _ in range(REPETITIONS)])


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """Run a service in a thread; yield its URL."""
    from deferkit.serve.http.server import Server  # noqa: PLC0415 - traced threads start here
    from deferkit.serve.service_settings import ServiceSettings  # noqa: PLC0415
    from deferkit.serve.storage.open_store import database_of  # noqa: PLC0415
    from deferkit.serve.storage.store import Store  # noqa: PLC0415

    settings = ServiceSettings(store=str(folder / "walks.db"), port=0)
    database = database_of(settings.store)
    database.prepare()
    urls: Queue[str] = Queue()
    server = Server(settings, Store(database), urls.put)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield urls.get(timeout=STARTUP_S)
    finally:
        server.should_exit = True
        thread.join(STARTUP_S)


def walk_service(tracer: Tracer, folder: Path) -> dict[str, Walk]:
    """Return the walks of decisions and of a review answer over HTTP, in this process."""
    with service(folder) as url:
        model = Client(url, policy="vector")
        model.create(features=2, budget=BUDGET, warm_up=0)
        model.decide([1.0, 0.5])
        people = Client(url, policy="named")
        people.create(features=NAMED, budget=BUDGET, warm_up=0)
        named = {"amount": 3.0, "age": 40.0, "country": "de"}
        people.decide(named, force="human", payload={"text": "a"})

        def answer() -> Callable[[], object]:
            people.decide(named, force="human", payload={"text": "a"})
            review = people.reviews.claim("ann")
            assert review is not None
            return lambda: people.reviews.complete(review, "yes", rewards={"human": 1.0}, cost=0.5)

        by_model = [tracer.walk(lambda: model.decide([1.0, 0.5], force="model")) for _ in range(REPETITIONS)]
        deferred = [
            tracer.walk(lambda: people.decide(named, force="human", payload={"text": "a"})) for _ in range(REPETITIONS)
        ]
        answers = [tracer.walk(answer()) for _ in range(REPETITIONS)]
        model.close()
        people.close()
    return {
        "HTTP decision, vector, model": shortest(by_model),
        "HTTP decision, named features, deferred": shortest(deferred),
        "HTTP review answer": shortest(answers),
    }


def write_table(path: Path) -> None:
    """Write a small table of tasks."""
    rng = np.random.default_rng(0)
    lines = ["x_amount,x_score,model_reward,human_reward,cost"]
    for amount, score, chance in rng.random((200, 3)):
        lines.append(f"{amount:.3f},{score:.3f},{int(chance < score)},{int(chance < 0.9)},1")
    path.write_text("\n".join(lines), encoding="utf-8")


def run_command(words: list[str]) -> None:
    """Run a command of the command line."""
    from deferkit.cli import application  # noqa: PLC0415

    app: Any = application(words)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        app(words, standalone_mode=False)


def walk_commands(tracer: Tracer, folder: Path) -> dict[str, Walk]:
    """Return the walks of `deferkit run` on a table, and of an experiment with few trials."""
    table = folder / "tasks.csv"
    write_table(table)
    run = ["run", str(table), "--budget", "10%", "--trials", "1", "--workers", "1"]
    study = ["reproduce", "exp2", "--quick", "--workers", "1", "--out", str(folder / "results")]
    run_command(run)  # imports are not a part of the walk
    return {
        "deferkit run tasks.csv": tracer.walk(lambda: run_command(run)),
        "deferkit reproduce exp2": tracer.walk(lambda: run_command(study)),
    }


def measure(*, commands: bool = True) -> dict[str, Walk]:
    """Return the walks of all operations by name."""
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as name, tracer.installed():
        folder = Path(name)
        found = {"Deferrer.decide and observe": walk_library(tracer)} | walk_service(tracer, folder)
        return found | (walk_commands(tracer, folder) if commands else {})


def main() -> None:
    """Print the walks; with --files, the files of each."""
    for name, walk in measure().items():
        print(f"{name:42} {walk.files:3} files {walk.calls:7,} calls")
        if "--files" in sys.argv:
            print(*(f"    {path} {count}" for path, count in sorted(walk.visited.items())), sep="\n")


if __name__ == "__main__":
    main()
