"""deferkit plan: how much budget is needed, and what is the next unit worth?"""

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from deferkit.cli import INTERRUPTED, options
from deferkit.cli.app import app, aside, console
from deferkit.cli.output import bar, plain_table
from deferkit.errors import InvalidArgument
from deferkit.learn.core import FEEDBACKS
from deferkit.planning.answer import make_plan
from deferkit.planning.plan import ORDERS
from deferkit.planning.text import arrivals_text
from deferkit.study.trial_store import TrialStore
from deferkit.worlds import WORLDS


@app.command()
@options.with_world_options
def plan(
    world: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="A CSV, Parquet or Excel file with a row for each task; or a simulated world: " + ", ".join(WORLDS),
        ),
    ],
    policies: Annotated[list[str] | None, typer.Option("--policy", help="The learner to plan for; default")] = None,
    every: options.Every = None,
    unit: Annotated[str, typer.Option(help="What cost is counted in, such as minutes; for texts and axes")] = "",
    trials: Annotated[
        int | None,
        typer.Option(
            help=f"Orders of the tasks; {ORDERS} by default, of more than 700,000 tasks fewer, but 2 at least",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first order", min=0)] = 0,
    feedback: Annotated[str, typer.Option(help="What is observed: " + ", ".join(FEEDBACKS))] = "full",
    out: Annotated[Path, typer.Option(help="Where page, figure and trials go")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes; by default all cores if there is much to do, else one", min=1)
    ] = None,
    data: options.Data = None,
    *,
    parameters: Mapping[str, Any],
) -> None:
    """Show the needed budget, and the marginal reward of budget.

    Every policy runs with 17 budgets from nothing to what asking about every task costs, over reshuffled orders. All
    rows of a table are used, whatever their number; of more than 700,000 the orders get fewer, so that the learner
    decides 60 million tasks at most as long as there are two orders. Trials are kept in OUT/trials: a plan
    that was stopped goes on, and the same plan again is quick.
    """
    options.use_data(data)
    if policies is not None and len(policies) > 1:
        raise InvalidArgument(f"A plan is for one learner. Got {len(policies)}: {', '.join(policies)}.")
    rounds = RoundBars()
    with rounds.bars:
        try:
            made = make_plan(
                world,
                parameters,
                policy=policies[0] if policies else "default",
                every=every,
                unit=unit,
                trials=trials,
                seed=seed,
                feedback=feedback,
                store=TrialStore(out / "trials"),
                workers=workers,
                rounds=rounds,
            )
        except KeyboardInterrupt:
            rounds.bars.stop()
            aside.print(
                f"Stopped. What was done is in {out / 'trials'}; the same command goes on from there.", markup=False
            )
            raise typer.Exit(INTERRUPTED) from None
    from deferkit.planning.page import draw_arrivals, write_plan  # noqa: PLC0415 - altair takes a second

    if made.periods is not None and made.times is not None:
        picture = draw_arrivals(made.times, out, f"{world}: when tasks come")
        if not as_json:
            for line in [*arrivals_text(made.times), f"figure: {picture}"]:
                console.print(line, highlight=False, markup=False, soft_wrap=True)
    page = write_plan(
        made.curves,
        out / "plan.html",
        figures=out / "figures",
        world=world,
        unit=unit,
        feedback=feedback,
        remarks=made.remarks,
        command=shlex.join(["deferkit", *sys.argv[1:]]),
    )
    if as_json:
        typer.echo(json.dumps(made.as_data() | {"page": str(page)}, indent=2))
        return
    for said in [made.headline, *made.remarks, ""]:
        console.print(said, highlight=False, markup=False)
    for title, (head, rows), texts in made.tables:
        shown = plain_table(title, head[:texts], head[texts:])
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    console.print(made.legend, highlight=False, markup=False)
    console.print(f"page: {page}", highlight=False, markup=False, soft_wrap=True)


class RoundBars:
    """A bar for each round of trials, which goes when it is done."""

    def __init__(self) -> None:
        self.bars = bar()

    def __call__(self, what: str, total: int) -> Callable[[int], None]:
        """Show a round in place of the one before."""
        for before in self.bars.task_ids:
            self.bars.remove_task(before)
        job = self.bars.add_task(what, total=total)
        return lambda n: self.bars.advance(job, n)
