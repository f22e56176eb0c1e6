"""How long a step of `Deferrer.run` takes, beside the same loop in C.

The C kernel keeps the inverses and the estimates and nothing else. `gradient` does what the kernel does, plus all
that makes it a product; the other pacings do more. A round makes a learner and runs it over the whole stream: the
checks of its inputs, and for C the allocation, are in the time. Afterwards: whether memory is flat in the number of
tasks. What the first call of a process costs is in versions.py.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import ctypes
import multiprocessing
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import (
    BUDGET_SHARE,
    MAX_COST,
    NOISE,
    RIDGE,
    Effort,
    Floats,
    Round,
    Tasks,
    Times,
    clock,
    draw_tasks,
    interleave,
    make_console,
    make_learner,
    make_table,
    setting,
    status_bytes,
)
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from deferkit import Deferrer, Exploration

SCALE = 0.8  # of the widths, in units of the noise
PACINGS = ("gradient", "adaptive", "resolve", "default")
BLOCKS = 20  # that the run for memory is cut into


class Size(NamedTuple):
    """One row of the table."""

    n_features: int
    n_tasks: int
    link: str = "identity"


SIZES = (Size(20, 1_000_000), Size(50, 200_000), Size(200, 20_000), Size(20, 1_000_000, "logistic"))
LONGEST = max(size.n_tasks for size in SIZES)


class Kernel:
    """The loop in C, compiled for this very machine."""

    SOURCE = Path(__file__).with_name("kernel.c")
    FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC")

    def __init__(self, folder: Path) -> None:
        made, library = folder / "kernel.o", folder / "kernel.so"
        # Linked apart, without -ffast-math: with it, gcc 12 and older link start-up code that rounds denormals to
        # zero in the whole process, and so would change what is measured beside the kernel.
        subprocess.run(["gcc", *self.FLAGS, "-c", self.SOURCE, "-o", made], check=True)
        subprocess.run(["gcc", "-shared", made, "-o", library, "-lm"], check=True)
        self._run = ctypes.CDLL(str(library)).run
        floats = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
        bytes_ = np.ctypeslib.ndpointer(np.int8, flags="C_CONTIGUOUS")
        numbers = [ctypes.c_double] * 4
        self._run.argtypes = [ctypes.c_int, ctypes.c_long, floats, floats, floats, *numbers, bytes_]
        self._run.restype = ctypes.c_double

    @classmethod
    def compiler(cls) -> str:
        """Return the compiler and its flags."""
        release = subprocess.run(["gcc", "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()
        return f"gcc {release} {' '.join(cls.FLAGS)}"

    def run(self, tasks: Tasks) -> NDArray[np.int8]:
        """Return the routes of a stream."""
        n, d = tasks.contexts.shape
        routes = np.zeros(n, dtype=np.int8)
        settings = (BUDGET_SHARE * n, MAX_COST, RIDGE, SCALE * NOISE)
        self._run(d, n, tasks.contexts, tasks.rewards, tasks.costs, *settings, routes)
        return routes


@lru_cache(maxsize=1)
def draw_size(size: Size) -> Tasks:
    """Return the stream of a size; the last one is kept."""
    rng = np.random.default_rng(size.n_features)
    return draw_tasks(size.n_features, size.n_tasks, rng, binary=size.link == "logistic")


def learner_named(name: str, n_features: int, horizon: int, link: str) -> Deferrer:
    """Return a fresh learner: of this pacing and with the widths of the kernel, or the default one."""
    if name == "default":
        return make_learner(n_features, horizon, link=link)
    widths = Exploration(scale=SCALE, prior=0.0, noise=NOISE)
    return make_learner(n_features, horizon, pacing=name, exploration=widths, link=link)


def run_learner(learner: Deferrer, tasks: Tasks) -> NDArray[np.int64]:
    """Return the routes of a stream."""
    rewards: dict[str, Floats] = {"model": tasks.rewards[:, 0], "human": tasks.rewards[:, 1]}
    return learner.run(tasks.contexts, rewards, tasks.costs).routes


def kernel_round(kernel: Kernel, tasks: Tasks) -> Round:
    return lambda: clock(lambda: kernel.run(tasks), len(tasks))


def learner_round(name: str, tasks: Tasks, link: str) -> Round:
    def work() -> NDArray[np.int64]:
        return run_learner(learner_named(name, tasks.n_features, len(tasks), link), tasks)

    return lambda: clock(work, len(tasks))


def time_size(size: Size, kernel: Kernel, n_rounds: int) -> tuple[Times, float]:
    """Return the times, and the share of tasks that the kernel and `gradient` route alike (NaN without a kernel)."""
    tasks = draw_size(size)
    contenders = {name: learner_round(name, tasks, size.link) for name in PACINGS}
    if size.link != "identity":
        return interleave(contenders, n_rounds), float("nan")
    twin = learner_named("gradient", size.n_features, size.n_tasks, size.link)
    alike = float(np.mean(kernel.run(tasks) == run_learner(twin, tasks)))
    return interleave({"C": kernel_round(kernel, tasks), **contenders}, n_rounds), alike


def add_size(table: Table, size: Size, times: Times, alike: float) -> None:
    has_kernel = "C" in times.rounds
    row = [size.link, str(size.n_features), f"{size.n_tasks:,}", f"{times.best('C'):.3f}" if has_kernel else "–"]
    for name in PACINGS:
        row.append(f"{times.best(name):.3f}\n{times.ratio(name, 'C') if has_kernel else '–'}")
    table.add_row(*row, times.excess("resolve", "gradient"), f"{100 * alike:.1f}" if has_kernel else "–")


def time_sizes(effort: Effort, kernel: Kernel, say: Callable[[str], object]) -> Table:
    columns = [
        "d",
        "T",
        "C\nµs",
        *(f"{name}\nµs, ÷ C" for name in PACINGS),
        "resolve −\ngradient µs",
        "gradient\nlike C %",
    ]
    table = make_table(["link"], columns)
    for full in SIZES:
        size = full._replace(n_tasks=full.n_tasks // effort.part)
        say(f"{size.link}, d = {size.n_features}, T = {size.n_tasks:,} …")
        add_size(table, size, *time_size(size, kernel, effort.n_rounds))
    return table


class Memory(NamedTuple):
    """What one half of a long run came to."""

    history: int  # bytes that the learner keeps of the past, at the end of it
    growth: int  # bytes by which the peak memory of the process rose in it


def peak_memory() -> int:
    """Return the most bytes that this process ever held.

    Not `ru_maxrss`: a child inherits that of its parent.
    """
    return status_bytes(Path("/proc/self/status").read_text(), "VmHWM")


def memory_by_half(link: str, n_tasks: int) -> list[Memory]:
    """Stream many tasks through one learner in blocks; to be called in a process of its own."""
    binary = link == "logistic"
    block = draw_tasks(20, n_tasks // BLOCKS, np.random.default_rng(0), binary=binary)
    run_learner(learner_named("default", 20, len(block), link), block)  # so that the process holds what every run needs
    learner = learner_named("default", 20, n_tasks, link)
    halves = []
    for _ in range(2):
        before = peak_memory()
        for _ in range(BLOCKS // 2):
            run_learner(learner, block)
        halves.append(Memory(learner.summary().history_bytes, peak_memory() - before))
    return halves


def report_memory(console: Console, n_tasks: int) -> None:
    console.print(
        f"Memory of the default learner, d = 20, T = {n_tasks:,} in {BLOCKS} calls of run, in a warm process:"
    )
    for link in ("identity", "logistic"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            halves = pool.submit(memory_by_half, link, n_tasks).result()
        parts = [
            f"{name} half: history {half.history / 1e6:.2f} MB, peak + {half.growth / 1e6:.2f} MB"
            for name, half in zip(("first", "second"), halves, strict=True)
        ]
        console.print(f"  {link:8}  {'; '.join(parts)}")


def main() -> None:
    effort = Effort.from_command_line(__doc__, n_rounds=5)
    console = make_console()
    with tempfile.TemporaryDirectory() as folder, console.status("compiling …") as status:
        table = time_sizes(effort, Kernel(Path(folder)), status.update)
    console.print(f"Deferrer.run, full feedback, µs a step\n{setting(effort)};\nC: {Kernel.compiler()}")
    console.print(table)
    report_memory(console, LONGEST // effort.part)


if __name__ == "__main__":
    main()
