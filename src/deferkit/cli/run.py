"""`deferkit run`: policies compared on a table or a simulated world."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from deferkit.cli import FAILED, INTERRUPTED, options
from deferkit.cli.app import app, aside, console
from deferkit.cli.output import bar, plain_table
from deferkit.learn.core import FEEDBACKS
from deferkit.study.allowance import with_terms
from deferkit.study.comparison import Setup, compare_policies, outcome_cells
from deferkit.study.engines import ENGINES, make_engine
from deferkit.study.policy_registry import POLICIES
from deferkit.study.trial_store import TrialStore, check_results_file, is_results_file, results_frame, write_frame
from deferkit.worlds import WORLDS


@app.command()
@options.with_world_options
def run(
    world: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="A CSV, Parquet or Excel file with a row for each task; or a simulated world: "
            + ", ".join(WORLDS)
            + "; or module:name",
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            help="In units of cost (2000, the default for synthetic tasks), of tasks (0.1T) or of the cost of always"
            " asking (10%, the default for all others); or inf"
        ),
    ] = None,
    every: options.Every = None,
    carry: options.Carry = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="The budget must last until the last task, however many come")
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
    """Run tasks through policies and show the outcome of each.

    The options of a simulated world are shown with its name: deferkit run synthetic --help.
    """
    if then is not None:
        world, parameters = options.following(world, then, parameters)
    options.use_data(data)
    where = make_engine(engine, workers=workers, address=address)
    raw, folder = file_or_folder(results)
    store = TrialStore(None if folder is None else folder / "trials")
    terms = with_terms(budget, every=every, carry=carry, until_end=until_end, hold=hold)
    setup = Setup.of(world, parameters, policy, terms, seed, feedback)
    with bar() as progress:
        job = progress.add_task("trials", total=None)
        try:
            found = compare_policies(
                setup,
                feedback=feedback,
                trials=trials,
                seed=seed,
                store=store,
                engine=where,
                started=lambda n: progress.update(job, total=n),
                progress=lambda n: progress.advance(job, n),
            )
        except KeyboardInterrupt:
            progress.stop()
            aside.print("Stopped before the first trial was done.")
            raise typer.Exit(INTERRUPTED) from None
    if raw is not None:
        write_frame(results_frame(store.all_rows()), raw)
    if found.stopped:
        aside.print(found.stopped, highlight=False)
    if as_json:
        typer.echo(json.dumps(found.rows, indent=2))
    else:
        head, rows = outcome_cells(found.rows)
        shown = plain_table(found.title, head[:1], head[1:])
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
        console.print(found.legend, highlight=False)
    for said in found.remarks:  # they go with the numbers, but not into output for programs
        (aside if as_json else console).print(said, highlight=False, markup=False)
    if plot:
        from deferkit.study.drawing.figures import write_figure  # noqa: PLC0415 - a second to import

        figures = (folder or Path("results")) / "figures"
        write_figure(found.plot(), "run", figures)
        path = figures / "run.png"
        (aside if as_json else console).print(f"figure: {path}", highlight=False, markup=False, soft_wrap=True)
    end(found.failures, stopped=bool(found.stopped))


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
