"""This version of deferkit beside the one before it, in interleaved rounds: start-up, memory, size and speed.

The version before is a git revision, which is installed below build/before with its own constraints, or the path of a
checkout with a .venv. Start-up and memory are those of new processes in an environment with deferkit and its
dependencies only; of the version before, with numba's code in a folder that is empty, or filled by an earlier process.
CPU times are those of the named lines alone. The reference is, for start-up and memory, a process that only imports
numpy, and for `run` the loop in C of bulk.py. A limit is for this version, and for the best round.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from bulk import Kernel, Size, draw_size, kernel_round
from installations import Installation, Interpreter, install_before, install_now
from measure import Effort, Round, Times, interleave, make_console, make_parser, make_table, setting, status_bytes
from rich.table import Table
from single import BASE, ENCODED, FAST, N_FEATURES

BEFORE = "3d62ee9"  # the last revision whose core was compiled by numba, at the first call
REFERENCE, OLD, NEW = "reference", "old", "new"
COLUMNS = ("reference", "old", "÷ reference", "new", "÷ reference", "old ÷ new", "limit")

NUMPY = "import numpy"
SET_UP = f"""
from deferkit import Budget, Deferrer
deferrer = Deferrer(n_features={N_FEATURES}, budget=Budget(10, horizon=100, max_cost=1))
"""
FIRST_CALLS = f"""
decision = deferrer.decide([0.1] * {N_FEATURES})
deferrer.observe(decision.id, {{decision.route: 0.5}}, 0.4 if decision.route == "human" else None)
"""
FRESH_PROCESS = """
import time
{set_up}
begin = time.process_time()
{timed}
print(time.process_time() - begin)
print(open("/proc/self/status").read())
"""


class Limit(NamedTuple):
    """What this version must not exceed."""

    at_most: float
    of_reference: bool = False  # a multiple of the reference

    def __str__(self) -> str:
        return f"≤ {self.at_most:g}{' ×' if self.of_reference else ''}"


class Measure(NamedTuple):
    """One row of the table."""

    what: str
    unit: str
    contenders: Mapping[str, Round]  # OLD and NEW, as far as there are figures, and maybe REFERENCE
    limit: Limit | None = None
    repeats: bool = True  # whether more than one round is worth the time

    def time(self, effort: Effort) -> Times:
        """Time all contenders in turn."""
        if self.repeats:
            return interleave(self.contenders, effort.n_rounds)
        return interleave(self.contenders, 1, n_uncounted=0)


class Worker:
    """A process that times one version."""

    SCRIPT = Path(__file__).with_name("version_worker.py")

    def __init__(self, interpreter: Interpreter) -> None:
        self._process = subprocess.Popen(
            [interpreter.python, self.SCRIPT],
            env=interpreter.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input is the end of it

    def round(self, name: str, size: Size) -> Round:
        """Return what times one round there."""

        def once() -> float:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(json.dumps([name, *size]), file=self._process.stdin, flush=True)
            return float(self._process.stdout.readline())

        return once


class Fresh(NamedTuple):
    """What a new process took."""

    cpu_ms: float  # for the timed lines alone
    rss_mb: float  # of memory at its end
    peak_mb: float


def run_fresh(interpreter: Interpreter, timed: str, set_up: str = "") -> Fresh:
    """Run some lines in a new process, the last of them on the clock."""
    command = [str(interpreter.python), "-c", FRESH_PROCESS.format(set_up=set_up, timed=timed)]
    printed = subprocess.run(command, env=interpreter.variables, check=True, capture_output=True, text=True).stdout
    seconds, _, status = printed.partition("\n")
    return Fresh(1e3 * float(seconds), status_bytes(status, "VmRSS") / 1e6, status_bytes(status, "VmHWM") / 1e6)


def cpu_of(interpreter: Interpreter, timed: str, set_up: str = "") -> Round:
    return lambda: run_fresh(interpreter, timed, set_up).cpu_ms


def start_up(old: Interpreter, new: Interpreter) -> Iterator[Measure]:
    """Yield the measures of imports and of the first call."""
    for line in (NUMPY, "import deferkit", "from deferkit import Deferrer"):
        contenders = {REFERENCE: cpu_of(new, NUMPY), OLD: cpu_of(old, line), NEW: cpu_of(new, line)}
        limit = Limit(3, of_reference=True) if "deferkit" in line else None
        yield Measure(line, "CPU ms", contenders, limit)
    first = {OLD: cpu_of(old, FIRST_CALLS, SET_UP), NEW: cpu_of(new, FIRST_CALLS, SET_UP)}
    yield Measure("first decide + observe, cache filled", "CPU ms", first, Limit(5))


def empty_cache(old: Interpreter, new: Interpreter) -> Measure:
    """Return the measure of the first call after an installation."""

    def first(interpreter: Interpreter) -> Round:
        def once() -> float:
            with tempfile.TemporaryDirectory() as cache:
                return run_fresh(interpreter.with_cache(cache), FIRST_CALLS, SET_UP).cpu_ms

        return once

    contenders = {OLD: first(old), NEW: first(new)}
    return Measure("first decide + observe, cache empty", "CPU ms", contenders, Limit(5), repeats=False)


def memory(old: Interpreter, new: Interpreter) -> Iterator[Measure]:
    """Yield the measures of memory after the first decision."""
    rss: dict[str, Round] = {
        REFERENCE: lambda: run_fresh(new, NUMPY).rss_mb,
        OLD: lambda: run_fresh(old, FIRST_CALLS, SET_UP).rss_mb,
        NEW: lambda: run_fresh(new, FIRST_CALLS, SET_UP).rss_mb,
    }
    peak: dict[str, Round] = {
        REFERENCE: lambda: run_fresh(new, NUMPY).peak_mb,
        OLD: lambda: run_fresh(old, FIRST_CALLS, SET_UP).peak_mb,
        NEW: lambda: run_fresh(new, FIRST_CALLS, SET_UP).peak_mb,
    }
    yield Measure("memory after the first decision", "MB", rss, Limit(65))
    yield Measure("its peak", "MB", peak)


def size(old: Installation, new: Installation) -> Measure:
    """Return the measure of the environments on disk."""
    sizes = {OLD: old.megabytes, NEW: new.megabytes}
    known = {name: megabytes for name, megabytes in sizes.items() if megabytes is not None}
    contenders: dict[str, Round] = {name: megabytes.__float__ for name, megabytes in known.items()}
    return Measure("environment beyond Python", "MB", contenders, Limit(120), repeats=False)


def one_at_a_time(old: Worker, new: Worker, effort: Effort) -> Iterator[Measure]:
    """Yield the measures of decide + observe."""
    steps = Size(N_FEATURES, FAST // effort.part)
    for name, what, limit in ((BASE, f"arrays, d = {N_FEATURES}", 2.2), (ENCODED, "encoder, 5 columns", 5.0)):
        contenders = {OLD: old.round(name, steps), NEW: new.round(name, steps)}
        yield Measure(f"decide + observe, {what}", "µs", contenders, Limit(limit))


def bulk(old: Worker, new: Worker, kernel: Kernel, effort: Effort) -> Iterator[Measure]:
    """Yield the measures of `run`."""
    rows = (
        ("gradient", Size(20, 1_000_000), Limit(1.25, of_reference=True)),
        ("resolve", Size(20, 1_000_000), Limit(1.45, of_reference=True)),
        ("resolve", Size(50, 200_000), Limit(1, of_reference=True)),
        ("resolve", Size(200, 20_000), Limit(1, of_reference=True)),
        ("resolve", Size(20, 1_000_000, "logistic"), Limit(1.5)),
    )
    for pacing, full, limit in rows:
        short = full._replace(n_tasks=full.n_tasks // effort.part)
        contenders = {OLD: old.round(pacing, short), NEW: new.round(pacing, short)}
        if full.link == "identity":
            contenders[REFERENCE] = kernel_round(kernel, draw_size(short))
        yield Measure(f"run, {full.link}, d = {full.n_features}, {pacing}", "µs", contenders, limit)


def number(value: float) -> str:
    """Return a number with three digits, or all that it has before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def add_row(table: Table, measure: Measure, times: Times) -> None:
    def best(name: str) -> str:
        return number(times.best(name)) if name in times.rounds else "–"

    def ratio(name: str, base: str) -> str:
        return times.ratio(name, base) if {name, base} <= set(times.rounds) else "–"

    found = times.best(NEW) / (times.best(REFERENCE) if measure.limit and measure.limit.of_reference else 1.0)
    missed = measure.limit is not None and found > measure.limit.at_most
    limit = "–" if measure.limit is None else f"{measure.limit}{' missed' if missed else ''}"
    figures = (best(REFERENCE), best(OLD), ratio(OLD, REFERENCE), best(NEW), ratio(NEW, REFERENCE), ratio(OLD, NEW))
    table.add_row(measure.what, measure.unit, *figures, limit)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--before", default=BEFORE, help="a git revision, or a checkout with a .venv (%(default)s)")
    arguments = parser.parse_args()
    effort = Effort.from_arguments(arguments, n_rounds=10)
    console, table = make_console(), make_table(["", "unit"], COLUMNS)
    with ExitStack() as stack:
        status = stack.enter_context(console.status("installing both versions …"))
        old, new = install_before(arguments.before), install_now()
        kernel = Kernel(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        workers = stack.enter_context(Worker(old.worker)), stack.enter_context(Worker(new.worker))
        measures = [
            *start_up(old.fresh, new.fresh),
            *([] if effort.quick else [empty_cache(old.fresh, new.fresh)]),
            *memory(old.fresh, new.fresh),
            size(old, new),
            *one_at_a_time(*workers, effort),
        ]
        for measure in (*measures, *bulk(*workers, kernel, effort)):
            status.update(f"{measure.what} …")
            add_row(table, measure, measure.time(effort))
    console.print(f"deferkit {old.label} and this version\n{setting(effort)};\nC: {Kernel.compiler()}")
    console.print(table)


if __name__ == "__main__":
    main()
