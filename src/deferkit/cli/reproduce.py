"""deferkit reproduce: run experiments and write the report."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from deferkit.cli import INTERRUPTED
from deferkit.cli.app import app, aside, console
from deferkit.cli.output import bar, plain_table
from deferkit.extras import join_names
from deferkit.study.engines import ENGINES, make_engine
from deferkit.study.experiments import DEFAULT, ON_REQUEST, select_experiments
from deferkit.worlds.data import VARIABLE

if TYPE_CHECKING:
    from deferkit.study.reproduction import RankingTable

MARKS = {
    "holds": "[green]holds[/green]",
    "holds in part": "[yellow]in part[/yellow]",
    "does not hold": "[red]fails[/red]",
}
HELP = f"Which experiments: {', '.join(DEFAULT)} and, only by name, {join_names(list(ON_REQUEST))}"


@app.command()
def reproduce(
    name: Annotated[list[str] | None, typer.Argument(help=HELP)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same with few trials, in under a minute")] = False,
    out: Annotated[Path, typer.Option(help="Where report, figures and trials go")] = Path("results"),
    data: Annotated[
        Path | None, typer.Option(help=f"The folder of data sets that others published, instead of ${VARIABLE}")
    ] = None,
    engine: Annotated[str, typer.Option(help="Where trials run: " + ", ".join(ENGINES))] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default", min=1)] = None,
) -> None:
    """Run the experiments, draw a figure for each, judge every claim, and write the report.

    Trials are kept: a run that was stopped goes on, and what has not changed is not run again.
    """
    experiments = select_experiments(name)
    from deferkit.study.reproduction import reproduce as run_all  # noqa: PLC0415 - figures take a second to import

    if data is not None:
        os.environ[VARIABLE] = str(data.resolve())  # workers inherit it
    begin = time.perf_counter()
    command = " ".join(["deferkit reproduce", *(name or ()), *(["--quick"] if quick else [])])
    with bar() as progress:
        job = progress.add_task("trials", total=None)

        def show_start(to_run: int, all_of_them: int) -> None:
            kept = f", {all_of_them - to_run:,} of them are there already" if to_run < all_of_them else ""
            aside.print(f"{len(experiments)} experiments, {all_of_them:,} trials{kept}")
            progress.update(job, total=to_run)

        try:
            done = run_all(
                experiments,
                quick=quick,
                out=out,
                engine=make_engine(engine, workers=workers, address=address),
                started=show_start,
                progress=lambda n: progress.advance(job, n),
                drawing=lambda what: progress.update(job, description=f"drawing {what}"),
                command=command,
            )
        except KeyboardInterrupt:
            progress.stop()
            aside.print(
                f"Stopped. What was done is in {out / 'trials'}; the same command goes on from there.", markup=False
            )
            raise typer.Exit(INTERRUPTED) from None
    for ranking in done.rankings:
        console.print(ranking_table(ranking))
    claims = Table.grid(padding=(0, 2, 0, 0))
    for finding in done.findings:
        claims.add_row(MARKS[finding.verdict], finding.claim)
        if name:  # somebody asked for these experiments: show the figures too, not only in the report
            claims.add_row("", Text(finding.measured, style="dim"))
    console.print(claims)
    console.print()
    console.print(
        f"took {time.perf_counter() - begin:.0f} s; report: {done.report}",
        markup=False,
        soft_wrap=True,
    )


def ranking_table(ranking: "RankingTable") -> Table:
    """Return the ranking of an experiment with headings that fit a narrow terminal."""
    short = ranking.declared.abbreviations
    headings = [" ".join(short.get(word, word) for word in name.split()) for name in ranking.rows.columns[1:]]
    meant = ", ".join(f"{letter} {word}" for word, letter in short.items())
    title = f"{ranking.declared.short_caption}, {ranking.trials} trials" + (f": {meant}" if meant else "")
    table = plain_table(title, ("policy",), headings)
    for row in ranking.rows.iter_rows():
        table.add_row(*row)
    return table
