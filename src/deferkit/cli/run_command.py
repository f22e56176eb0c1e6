"""deferkit run: compare policies in a world."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from deferkit.cli import FAILED, INTERRUPTED, options
from deferkit.cli.app import app, aside, console
from deferkit.cli.comparison import Comparison
from deferkit.cli.outcome_table import legend, outcome_table, remarks_on_default, summaries
from deferkit.cli.progress import bar
from deferkit.cli.warm import brought_by_past, name_of, named_apart, plain_name
from deferkit.errors import StudyFailed
from deferkit.learn.core import FEEDBACKS
from deferkit.study.engines import ENGINES, make_engine
from deferkit.study.policy_registry import POLICIES
from deferkit.study.results_file import check_results_file, is_results_file, results_frame, write_frame
from deferkit.study.runner import missing, run_study, table
from deferkit.study.spec import Spec
from deferkit.study.trial_store import Trial, TrialStore
from deferkit.worlds import WORLDS


@app.command()
@options.with_world_options
def run(
    world: Annotated[
        str, typer.Argument(help=f"Which tasks: {', '.join(WORLDS)}, a CSV, Parquet or Excel file, or module:name")
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            help="In units of cost (2000, for synthetic tasks unless given), of tasks (0.1T) or of what asking always"
            " costs (10%, for all others); or inf"
        ),
    ] = None,
    every: options.Every = None,
    carry: options.Carry = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="The budget is to last until the last task, however many come")
    ] = False,
    hold: Annotated[
        str | None,
        typer.Option(help="What is held for a review that can be stopped: auto, or an amount; else its largest cost"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Any number of times. There is: " + ", ".join(POLICIES) + "; or module:name"),
    ] = None,
    feedback: Annotated[str, typer.Option(help="What is observed: " + ", ".join(FEEDBACKS))] = "full",
    trials: Annotated[int, typer.Option(help="Number of streams", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Of the first stream", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw it as well, in RESULTS/figures")] = False,
    then: Annotated[
        str | None,
        typer.Option(
            help="A table of new tasks: WORLD is then one of past tasks, which learners start from",
            rich_help_panel=options.TABLE,
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="A file (.parquet, .csv): write raw results there, a row for each trial. A folder: keep trials in it,"
            " so that a run goes on where it stopped"
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; with one, the times are the truest", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="Where trials run: " + ", ".join(ENGINES))] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster")] = None,
    data: options.Data = None,
    *,
    parameters: Mapping[str, Any],
) -> None:
    """Run tasks through policies and show the outcome of each."""
    if then is not None:
        world, parameters = options.following(world, then, parameters)
    options.use_data(data)
    where = make_engine(engine, workers=workers, address=address)
    raw, folder = file_or_folder(results)
    store = TrialStore(None if folder is None else folder / "trials")
    budget = options.with_terms(budget, every=every, carry=carry, until_end=until_end, hold=hold)
    asked = Comparison.of(world, parameters, policy, budget, seed, feedback)
    trace = "path" if plot else ""
    specs = {
        name: Spec.of(world, parameters, budget=asked.budget, feedback=feedback, trace=trace, **plain_name(name))
        for name in asked.measured
    }
    wanted = [(spec, seed + i) for i in range(trials) for spec in specs.values()]
    stopped = False
    failed: list[tuple[Trial, str]] = []
    with bar() as progress:
        job = progress.add_task("trials", total=missing(wanted, store))
        try:
            run_study(wanted, store=store, engine=where, progress=lambda n: progress.advance(job, n), failed=failed)
        except KeyboardInterrupt:
            stopped = True
    failures = asked.failures | failures_of(failed, trials)
    names = {spec.key: name for name, spec in specs.items()}
    measured = [name for name in asked.measured if name not in failures]
    policies = [name for name in asked.shown if name in measured]
    if not policies:
        name, why = next(iter(failures.items()))
        raise StudyFailed(f"All policies failed. First: {name}: {why}")
    frame = named_apart(table([trial for trial in wanted if names[trial[0].key] in measured], store))
    # policies are compared on the same streams, so that one which some of them have not seen does not count
    frame = frame.filter(pl.len().over("seed") == len(measured)) if len(frame) else frame
    if frame.is_empty():
        aside.print("Stopped before the first trial was done.")
        raise typer.Exit(INTERRUPTED)
    if raw is not None:
        write_frame(results_frame(store.rows(trial for trial in wanted if trial in store)), raw)
    done = frame["seed"].n_unique()
    if stopped:
        aside.print(f"Stopped: {done} of {trials} streams were done.", highlight=False)
    rows = summaries(frame, policies)
    title = asked.title(mean_budget=float(frame["budget"].to_numpy().mean()), feedback=feedback, trials=done, seed=seed)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        console.print(outcome_table(title, rows))
        console.print(legend(rows, truth_known=asked.stream.truth is not None), highlight=False)
    for said in [
        *asked.remarks,
        *brought_by_past(rows),
        *remarks_on_default(frame, policies),
    ]:  # what has to be said goes with the numbers, but not into what a program reads
        (aside if as_json else console).print(said, highlight=False, markup=False)
    if plot:
        path = drawn(frame.filter(pl.col("policy").is_in(policies)), folder or Path("results"), title, asked)
        (aside if as_json else console).print(f"figure: {path}", highlight=False, markup=False, soft_wrap=True)
    end(failures, stopped=stopped)


def file_or_folder(results: Path | None) -> tuple[Path | None, Path | None]:
    """Return the file for raw results, or the folder that trials are kept in."""
    if results is None or not is_results_file(results):
        return None, results
    check_results_file(results)
    return results, None


def end(failures: Mapping[str, str], *, stopped: bool) -> None:
    """Print what failed, and leave with the exit code that says so."""
    for name, why in failures.items():
        aside.print(f"error: {name}: {why}", highlight=False, markup=False, soft_wrap=True)
    if stopped:
        raise typer.Exit(INTERRUPTED)
    if failures:
        raise typer.Exit(FAILED)


def drawn(frame: pl.DataFrame, folder: Path, title: str, asked: Comparison) -> Path:
    """Draw a comparison, and return where the figure is."""
    from deferkit.study.drawing.run_figure import draw_comparison  # noqa: PLC0415 - a second to import

    return draw_comparison(frame, folder, title, asked.stream.remark)


def failures_of(failed: Sequence[tuple[Trial, str]], trials: int) -> dict[str, str]:
    """Return why policies failed, in one line each: one that failed in a single stream cannot be compared."""
    by_policy: dict[str, list[str]] = {}
    for (spec, _), why in failed:
        by_policy.setdefault(name_of(spec), []).append(why.partition("\n")[0])
    return {name: f"failed in {len(all_)} of {trials} streams ({all_[0]})" for name, all_ in by_policy.items()}
