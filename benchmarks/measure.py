"""What the benchmarks share: the stream of tasks, the learner, interleaved timing, the machine and the table."""

import argparse
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from deferkit import Budget, Deferrer, Encoder, Exploration, __version__

BUDGET_SHARE = 0.16  # of the number of tasks
MAX_COST = 3.0
RIDGE = 0.1
NOISE = 0.1  # σ of rewards and costs
STEEPNESS = 4.0  # of the logistic curve that binary rewards are drawn from
PIPE_WIDTH = 130  # columns where the output is not a terminal

Floats = NDArray[np.float64]
Round = Callable[[], float]
"""Does everything once, and returns what was measured: mostly the microseconds that a step took."""


class Tasks(NamedTuple):
    """A stream of tasks with all outcomes."""

    contexts: Floats  # [n, d], each of length 1
    rewards: Floats  # [n, 2] the model's, the expert's
    costs: Floats  # [n] of the expert

    @property
    def n_features(self) -> int:
        """The number of features d."""
        return int(self.contexts.shape[1])

    def __len__(self) -> int:
        return len(self.contexts)


def draw_tasks(n_features: int, n_tasks: int, rng: np.random.Generator, *, binary: bool = False) -> Tasks:
    """Return tasks with dense contexts, whose rewards and costs are linear in them, or binary rewards.

    The parameters are uniform. The expert gets the larger ones of the two deciders, so that the budget is short
    and the price is above 0: a budget that nobody wants to spend would be easy to pace.
    """
    contexts = rng.random((n_tasks, n_features))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    deciders = sorted(rng.random((2, n_features)), key=np.sum)
    rewards = contexts @ np.stack(deciders, axis=1)
    if binary:
        chance = 1.0 / (1.0 + np.exp(-STEEPNESS * (rewards - rewards.mean())))
        rewards = (rng.random(rewards.shape) < chance).astype(np.float64)
    else:
        rewards += NOISE * rng.standard_normal(rewards.shape)
    costs = contexts @ rng.random(n_features) / math.sqrt(n_features) + NOISE * rng.standard_normal(n_tasks)
    return Tasks(contexts, rewards, np.maximum(0.0, costs))


def make_learner(
    features: int | Encoder,
    horizon: int,
    *,
    pacing: str = "resolve",
    exploration: Exploration | None = None,
    link: str = "identity",
) -> Deferrer:
    """Return a learner that has seen nothing, for a stream of this many tasks; the default one unless told.

    It forgets nothing and is linear, as what it is compared with; `mixture.py` says what the rest costs.

    Its contexts are vectors of this length, or rows for this encoder.
    """
    return Deferrer(
        n_features=features if isinstance(features, int) else None,
        encoder=None if isinstance(features, int) else features,
        budget=Budget(BUDGET_SHARE * horizon, horizon=horizon, max_cost=MAX_COST),
        pacing=pacing,
        exploration=exploration,
        link=link,
        forget="never",
        representation="linear",
        ridge=RIDGE,
        reward_range=(-math.inf, math.inf),
    )


def clock(work: Callable[[], object], n_steps: int) -> float:
    """Return the microseconds of CPU time that each of the steps took: other programs do not count."""
    begin = time.process_time()
    work()
    return (time.process_time() - begin) / n_steps * 1e6


class Times(NamedTuple):
    """What each round measured, by contender."""

    rounds: Mapping[str, Sequence[float]]

    def best(self, name: str) -> float:
        """Return the fastest round of a contender."""
        return min(self.rounds[name])

    def ratio(self, name: str, base: str) -> str:
        """Return how many times as long as the base it took: by the bests, and the median over the rounds."""
        each = [a / b for a, b in zip(self.rounds[name], self.rounds[base], strict=True)]
        return f"{self.best(name) / self.best(base):.2f} ({median(each):.2f})"

    def excess(self, name: str, base: str) -> str:
        """Return how many microseconds more than the base it took: by the bests, and the median over the rounds."""
        each = [a - b for a, b in zip(self.rounds[name], self.rounds[base], strict=True)]
        return f"{self.best(name) - self.best(base):.3f} ({median(each):.3f})"


def interleave(contenders: Mapping[str, Round], n_rounds: int, *, n_uncounted: int = 1) -> Times:
    """Time contenders in turn, round after round, so that what disturbs one disturbs all; the first goes uncounted."""
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(n_uncounted + n_rounds):
        for name, contender in contenders.items():
            took = contender()
            if number >= n_uncounted:
                rounds[name].append(took)
    return Times(rounds)


class Effort(NamedTuple):
    """How much is measured."""

    n_rounds: int
    part: int = 1  # one task in so many

    @property
    def quick(self) -> bool:
        """Whether this is only to see that it works."""
        return self.part > 1

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace, *, n_rounds: int) -> "Effort":
        """Return an effort of this many rounds with all tasks, or with --quick a small one."""
        return cls(n_rounds=3, part=10) if arguments.quick else cls(n_rounds)

    @classmethod
    def from_command_line(cls, description: str | None, *, n_rounds: int) -> "Effort":
        """Return the effort that the command line asks for."""
        return cls.from_arguments(make_parser(description).parse_args(), n_rounds=n_rounds)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the command line with the option --quick."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks, 3 rounds: to see that it works")
    return parser


def status_bytes(status: str, field: str) -> int:
    """Return a field of /proc/…/status in bytes: VmRSS is the memory held now, VmHWM the most that ever was."""
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])


def make_console() -> Console:
    """Return where to print; wide enough for the table if that is a file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def cpu_model() -> str:
    """Return what the processor calls itself."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def setting(effort: Effort) -> str:
    """Return the machine, the versions and how often everything was repeated."""
    versions = f"numpy {version('numpy')}"
    return (
        f"{cpu_model()}; Python {platform.python_version()}, deferkit {__version__}, {versions}; one thread;\n"
        f"best of {effort.n_rounds} interleaved rounds, in brackets the median over the rounds"
    )


def make_table(left: Sequence[str], right: Sequence[str]) -> Table:
    """Return an empty table: columns of words, then columns of numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table
