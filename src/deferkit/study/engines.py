"""Engines that run trials, in processes of this machine or on a Ray cluster, behind one unordered map."""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from threading import current_thread, main_thread
from typing import Any, Protocol, TypeVar

from deferkit.errors import InvalidArgument, StudyFailed
from deferkit.extras import needs
from deferkit.types import AT_LEAST_ONE

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# One thread each: the trials are what runs in parallel, and sums of one thread have one order.
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
FORWARDED = ("DEFERKIT_DATA",)  # environment variables that remote workers need
CONNECT_TIMEOUT_S = 5.0  # for the head of a cluster


class TrialEngine(Protocol):
    """Runs a function over units of work, in any order."""

    def map(self, function: Callable[[Unit], Result], units: Sequence[Unit]) -> Iterator[tuple[int, Result]]:
        """Yield the index of each unit and its result, as soon as it is done.

        Args:
            function: What is called with each unit; it may run in another process.
            units: The units of work.

        Raises:
            StudyFailed: A worker died, or the cluster failed.
        """
        ...


class Local:
    """Runs units in processes of this machine; with one worker, in this process.

    Args:
        workers: Number of processes; all cores by default.
    """

    def __init__(self, workers: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0))
        self.workers: int = cores if workers is None else AT_LEAST_ONE.check("workers", "Local", workers)

    def map(self, function: Callable[[Unit], Result], units: Sequence[Unit]) -> Iterator[tuple[int, Result]]:
        """Yield the index of each unit and its result, as soon as it is done.

        >>> sorted(Local(1).map(abs, [-2, 3]))
        [(0, 2), (1, 3)]
        """
        if self.workers == 1 or len(units) == 1:
            yield from ((i, function(unit)) for i, unit in enumerate(units))
            return
        os.environ.update({name: value for name, value in THREADS.items() if name not in os.environ})
        pool = ProcessPoolExecutor(min(self.workers, len(units)), mp_context=get_context("spawn"))
        try:
            with interrupts_ignored():  # workers inherit that: Ctrl-C is for the process that saves
                waiting: dict[Future[Any], int] = {pool.submit(function, unit): i for i, unit in enumerate(units)}
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise StudyFailed("A worker process died. What was finished is saved; run it again to go on.") from error
        finally:
            # running units are dropped, at an interrupt too: their trials are run again
            for process in (pool._processes or {}).values():
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C within the block, and in all processes that are started in it."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Ray:
    """Runs units on a Ray cluster.

    Args:
        address: Of the cluster, as in "ray://host:10001"; by default Ray on this machine.

    Raises:
        MissingExtra: Ray is not installed.
    """

    def __init__(self, address: str | None = None) -> None:
        needs("ray")
        import ray  # noqa: PLC0415 - an extra, and seconds to import

        self._ray = ray
        self.address = address

    def map(self, function: Callable[[Unit], Result], units: Sequence[Unit]) -> Iterator[tuple[int, Result]]:
        """Yield the index of each unit and its result, as soon as it is done."""
        ray = self._ray
        own = not ray.is_initialized()
        if own:
            self._connect()
        try:
            remote = ray.remote(max_retries=1)(function)
            waiting = {remote.remote(unit): i for i, unit in enumerate(units)}
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                yield waiting.pop(done[0]), ray.get(done[0])
        except ray.exceptions.RayError as error:
            raise StudyFailed(f"Ray failed: {error}. What was finished is saved; run it again to go on.") from error
        finally:
            if own:
                ray.shutdown()

    def _connect(self) -> None:
        try:
            check_reachable(self.address)
            self._ray.init(
                address=self.address,
                runtime_env={
                    "env_vars": THREADS | {name: os.environ[name] for name in FORWARDED if name in os.environ}
                },
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if self.address is None else None,
            )
        except (OSError, ValueError) as error:
            raise StudyFailed(f"There is no Ray cluster at {self.address!r}: {error}") from error


def check_reachable(address: str | None) -> None:
    """Raise OSError unless host:port accepts connections; Ray itself would retry for many minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()


ENGINES = ("local", "ray")


def make_engine(name: str, *, workers: int | None = None, address: str | None = None) -> TrialEngine:
    """Return an engine.

    Args:
        name: One of `ENGINES`.
        workers: Number of processes of the engine "local"; all cores by default.
        address: Of the cluster of the engine "ray".

    Raises:
        InvalidArgument: There is no such engine, or an address is given for another engine than "ray".
    """
    if address is not None and name != "ray":
        raise InvalidArgument("An address is for the engine 'ray'.")
    if name not in ENGINES:
        raise InvalidArgument(f"There is no engine {name!r}. There is: {', '.join(ENGINES)}.")
    return Ray(address) if name == "ray" else Local(workers)
