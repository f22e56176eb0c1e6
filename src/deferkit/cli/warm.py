"""The command line."""

import math
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from deferkit.errors import DeferkitError, InvalidArgument
from deferkit.learn.compiled import CACHE
from deferkit.learn.deferrer import Deferrer
from deferkit.study.gains import GOALS, gains
from deferkit.study.trial import LEARNERS, POLICIES, Outcome, trial
from deferkit.types import Budget
from deferkit.version import __version__
from deferkit.worlds.synthetic import Synthetic

app = typer.Typer(
    help="Online decision deferral under budget constraints: who decides, the model or an expert?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
WORLDS = ("synthetic",)


def bar(what: str) -> Progress:
    """Return a progress bar with the rate of work in its estimate of the time left."""
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def parse_budget(text: str, world: Synthetic) -> float:
    """Return a budget in units of cost: '2000', or '0.1T' for a tenth of the number of tasks.

    >>> parse_budget("0.1T", Synthetic(horizon=5_000))
    500.0
    """
    try:
        number = float(text.removesuffix("T"))
        total = number * world.horizon if text.endswith("T") else number
    except ValueError:
        total = math.nan
    if not 0 <= total < math.inf:
        raise InvalidArgument(f"The budget must be a number of at least 0, or like 0.1T. Got {text!r} instead.")
    return total


@app.command()
def run(
    world: Annotated[str, typer.Argument(help="Which tasks: " + ", ".join(WORLDS))],
    regime: Annotated[str, typer.Option(help="How the two deciders compare: complementary, dominant, random")] = (
        "complementary"
    ),
    horizon: Annotated[int, typer.Option(help="Number of tasks")] = 50_000,
    budget: Annotated[str, typer.Option(help="In units of cost, or like 0.1T for a tenth of the tasks")] = "2000",
    noise: Annotated[float, typer.Option(help="Standard deviation of rewards and costs")] = 0.1,
    feedback: Annotated[str, typer.Option(help="What is observed: full, bandit, reviewed")] = "full",
    policy: Annotated[list[str] | None, typer.Option(help="Which policy; any number of times")] = None,
    trials: Annotated[int, typer.Option(help="Number of streams", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Of the first stream", min=0)] = 0,
) -> None:
    """Stream tasks through policies and print what each of them came to."""
    if world not in WORLDS:
        raise InvalidArgument(f"There is no world {world!r}. There is: {', '.join(WORLDS)}.")
    policies = policy or [name for name in POLICIES if name not in ("gradient", "adaptive")]
    unknown = [name for name in policies if name not in POLICIES]
    if unknown:
        raise InvalidArgument(f"There is no policy {unknown[0]!r}. There is: {', '.join(POLICIES)}.")
    tasks = Synthetic(regime=regime, horizon=horizon, noise=noise)
    total = parse_budget(budget, tasks)
    learners = sum(name in LEARNERS for name in policies)
    results = []
    with bar("tasks") as progress:
        job = progress.add_task("tasks", total=trials * learners * horizon)
        for number in range(trials):
            results.append(
                trial(
                    tasks,
                    total,
                    policies,
                    seed=seed + number,
                    feedback=feedback,
                    progress=lambda n: progress.advance(job, n),
                )
            )
    title = (
        f"{regime} tasks, T = {horizon:,}, budget {total:,.0f}, σ = {noise:g}, {feedback} feedback,"
        f" {trials} {'trial' if trials == 1 else 'trials'} from seed {seed}"
    )
    console.print(outcome_table(title, policies, results))
    console.print("mean ± sd over trials, µs a step; gain = (reward − ModelOnly)/(OPT − ModelOnly)", highlight=False)


def outcome_table(title: str, policies: Sequence[str], results: Sequence[Sequence[Outcome]]) -> Table:
    """Return the table of policies."""
    table = plain_table(title, ("policy",), ("reward", "% of OPT", "gain %", "spent", "spent %", "asked %", "µs"))
    for i, policy in enumerate(policies):
        rows = [result[i] for result in results]
        columns = {name: np.array([getattr(row, name) for row in rows]) for name in Outcome._fields[1:]}
        speed = float(np.median(columns["us_per_step"]))
        table.add_row(
            policy,
            cell(columns["reward"], 0),
            cell(columns["pct_opt"], 2),
            cell(columns["gain"], 1, spread=True),
            cell(columns["spent"], 0),
            cell(columns["spent_pct"], 1),
            cell(columns["defer_rate"], 1),
            "–" if math.isnan(speed) else f"{speed:.2f}",
        )
    return table


def plain_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return an empty table that fits a narrow terminal: columns of text, then columns of numbers."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def cell(values: NDArray[np.float64], digits: int, *, spread: bool = False) -> str:
    """Return the mean over trials as text, and their standard deviation.

    >>> cell(np.array([1.0, 3.0]), 1, spread=True)
    '2.0 ± 1.0'
    """
    if np.isnan(values).any():
        return "–"
    mean = f"{values.mean():,.{digits}f}"
    return f"{mean} ± {values.std():,.{digits}f}" if spread and len(values) > 1 else mean


@app.command("gains")
def gains_command(
    policy: Annotated[str, typer.Option(help="Which learner: " + ", ".join(LEARNERS))] = "default",
    seeds: Annotated[int, typer.Option(help="Number of streams for each setting", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="The first one", min=0)] = 0,
) -> None:
    """Print the gain of a learner over budgets, regimes, noise and horizons, beside what the default is to reach."""
    if policy not in LEARNERS:
        raise InvalidArgument(f"There is no learner {policy!r}. There is: {', '.join(LEARNERS)}.")
    table = plain_table(
        f"{policy}: gain %, mean over {seeds} seeds from {seed}",
        ("regime", "feedback"),
        ("σ", "T", "budget", "gain %", "sd", "goal", "spent %"),
    )
    missed = 0
    with bar("streams") as progress:
        job = progress.add_task("streams", total=seeds * len(GOALS))
        for row in gains(policy, seeds, seed, lambda n: progress.advance(job, n)):
            fine = row.gain >= row.goal
            missed += not fine
            table.add_row(
                row.regime,
                row.feedback,
                f"{row.noise:g}",
                f"{row.horizon:,}",
                f"{row.budget:,}",
                f"{row.gain:.2f}",
                f"{row.gain_sd:.2f}",
                f"{row.goal:g}" if fine else f"{row.goal:g} missed",
                f"{row.spent_pct:.1f}",
            )
    console.print(table)
    console.print("all goals reached" if not missed else f"{missed} goals missed")


@app.command()
def warm() -> None:
    """Compile everything, so that later processes start from the cache."""
    begin = time.perf_counter()
    with console.status("compiling, up to two minutes on a new machine …"):
        for link in ("identity", "logistic"):
            deferrer = Deferrer(n_features=2, budget=Budget(5, horizon=100, max_cost=1), link=link)
            x = [0.6, 0.8]
            deferrer.score([x])
            decision = deferrer.decide(x, force="human")
            deferrer.observe(decision.id, {"human": 1.0}, 0.5)
            deferrer.correct(decision.id, {"human": 0.0})
            deferrer.decide(x)
            deferrer.expire(deferrer.decide(x, force="human").id)
            many = np.tile(np.array(x), (40, 1))
            deferrer.warm_start(many, {"model": np.ones(40), "human": np.zeros(40)}, cost=np.full(40, 0.1))
            deferrer.run(many, {"model": np.ones(40), "human": np.zeros(40)}, np.full(40, 0.1))
    where = f"machine code in {CACHE}" if CACHE else "no cache directory can be written: each process compiles anew"
    console.print(f"compiled in {time.perf_counter() - begin:.1f} s, {where}")


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit")] = False,
) -> None:
    """Handle what is not a command."""
    if show:
        console.print(f"deferkit {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a mistake of the user's gives one line, not a traceback."""
    try:
        app()
    except DeferkitError as error:
        Console(stderr=True).print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
