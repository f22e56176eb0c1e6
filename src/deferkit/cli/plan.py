"""deferkit plan: how much budget is needed, and what is the next unit worth?"""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deferkit.cli import INTERRUPTED, options
from deferkit.cli.app import app, aside, console
from deferkit.cli.output import bar, plain_table
from deferkit.cli.run import heavy
from deferkit.errors import InvalidArgument
from deferkit.learn.core import FEEDBACKS
from deferkit.planning.plan import (
    ORDERS,
    ROUNDS,
    Plan,
    check_plannable,
    next_trials,
    orders_for,
    plan_of,
    plan_trials,
    rounds_of,
    worth_workers,
)
from deferkit.planning.text import (
    arrivals_text,
    curve_cells,
    describe_possible,
    headline,
    hold_text,
    need_cells,
    needed_budget,
    period_text,
    plan_periods,
    remarks,
)
from deferkit.study.achievable import is_achievable_known
from deferkit.study.allowance import asking_always
from deferkit.study.engines import make_engine
from deferkit.study.policy_registry import is_learner, make_learner, without_trees
from deferkit.study.runner import count_missing, run_study, table
from deferkit.study.trial_store import Trial, TrialStore
from deferkit.worlds import WORLDS, make_world
from deferkit.worlds.base import TaskStream


@app.command()
@options.with_world_options
def plan(
    world: Annotated[str, typer.Argument(help="Which tasks: a path to a table, or " + ", ".join(WORLDS))],
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
    policy = policies[0] if policies else "default"
    stream = make_world(world, parameters).draw(seed)
    check_plannable(stream, policy)
    make_learner(policy, stream, [asking_always(stream)], seed=seed)  # what it does not like is told at once
    orders = orders_for(stream.n_tasks) if trials is None else trials
    trials_of_grid = plan_trials(
        world,
        parameters,
        policy=policy,
        seeds=range(seed, seed + orders),
        feedback=feedback,
        free=asking_always(stream) == 0,
        achievable=stream.truth is None and is_achievable_known(stream),
    )
    if workers is None and not worth_workers(stream.n_tasks, orders, policy):
        workers = 1
    store = TrialStore(out / "trials")
    made = solve(trials_of_grid, stream, store, workers, out)
    better = int((stream.rewards[:, 1:] > stream.rewards[:, :1]).any(axis=1).sum())
    said = remarks(made, full_orders=ORDERS if trials is None else None, better=better)
    said += [*without_trees([policy], stream), *stream.remark.splitlines()]
    periods = None if every is None else plan_periods(made, stream, world, parameters, every, seed)
    from deferkit.planning.page import draw_arrivals, write_plan  # noqa: PLC0415 - altair takes a second

    if periods is not None and stream.times is not None:
        said += period_text(periods, unit)
        picture = draw_arrivals(stream.times, out, f"{world}: when tasks come")
        if not as_json:
            for line in [*arrivals_text(stream.times), f"figure: {picture}"]:
                console.print(line, highlight=False, markup=False, soft_wrap=True)

    needed = needed_budget(made) if periods is None else periods.needed
    said += hold_text(stream.costs, needed, unit)
    if needed and periods is None:
        proposal = heavy(world, parameters, f"{needed:.6g}", stream)
        said += [] if proposal is None else [proposal]
    command = shlex.join(["deferkit", *sys.argv[1:]])
    page = write_plan(made, out, world=world, unit=unit, feedback=feedback, remarks=said, command=command)
    if as_json:
        data_of_plan = as_data(made, world, trials_of_grid, unit, feedback, said, page)
        if periods is not None:
            about = {"every": periods.every, "needed": periods.needed, "tasks": periods.tasks.tolist()}
            data_of_plan["periods"] = about | {"allowances": periods.allowances}
        typer.echo(json.dumps(data_of_plan, indent=2))
        return
    show(made, unit, said)
    console.print(f"page: {page}", highlight=False, markup=False, soft_wrap=True)


def solve(wanted: list[Trial], stream: TaskStream, store: TrialStore, workers: int | None, out: Path) -> Plan:
    """Run the trials of a plan, then more of them around the needed budgets until those are known closely."""
    learner = next(spec.policy for spec, _ in wanted if is_learner(spec.policy))
    right = bool(np.isin(stream.rewards, (0.0, 1.0)).all())
    trials = list(wanted)
    run_rounds("trials", wanted, stream.n_tasks, store, workers, out)
    made = plan_of(table(trials, store), learner=learner, n_tasks=stream.n_tasks, right=right)
    for turn in range(ROUNDS):
        more = next_trials(made, trials, halve=turn % 2 == 1)
        if not more:
            break
        run_rounds(f"needed budgets, round {turn + 1}", more, stream.n_tasks, store, workers, out)
        trials += more
        made = plan_of(table(trials, store), learner=learner, n_tasks=stream.n_tasks, right=right)
    return made


def run_rounds(what: str, wanted: list[Trial], n_tasks: int, store: TrialStore, workers: int | None, out: Path) -> None:
    """Run what is missing, a few budgets at a time."""
    engine = make_engine("local", workers=workers)
    with bar() as progress:
        job = progress.add_task(what, total=count_missing(wanted, store))
        try:
            for part in rounds_of(wanted, n_tasks):
                run_study(part, store=store, engine=engine, progress=lambda n: progress.advance(job, n))
        except KeyboardInterrupt:
            progress.stop()
            aside.print(
                f"Stopped. What was done is in {out / 'trials'}; the same command goes on from there.", markup=False
            )
            raise typer.Exit(INTERRUPTED) from None


def show(made: Plan, unit: str, said: list[str]) -> None:
    """Print the answer, the remarks and the two tables."""
    console.print(headline(made, unit), highlight=False, markup=False)
    for each in said:
        console.print(each, highlight=False, markup=False)
    console.print()
    n = len(made.seeds)
    orders = f"{n} {'order' if n == 1 else 'orders'} from seed {min(made.seeds)}"
    head, rows = curve_cells(made, narrow=True)
    about = f"{made.n_tasks:,} tasks, {orders}; OPT … random: % of {'achievable' if made.estimated else 'possible'}"
    shown = plain_table(about, (), head)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    head, rows = need_cells(made)
    shown = plain_table(f"the smallest budget that gets so much of {describe_possible(made)}", head[:2], head[2:])
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    what = f" ({unit})" if unit else ""
    console.print(
        f"budget: units of cost{what}; %: of reviewing everything; asked, reward: of {made.learner.policy};"
        f" λ*, next: reward that the next unit brings, to OPT and to {made.learner.policy}"
        f"{'; own: of the most that it gains itself' if any('own' in row[1] for row in rows) else ''}",
        highlight=False,
        markup=False,
    )


def as_data(
    made: Plan, world: str, wanted: list[Trial], unit: str, feedback: str, said: list[str], page: Path
) -> dict[str, Any]:
    """Return the plan as plain data."""
    return {
        "world": world,
        "world_parameters": dict(wanted[0][0].world_parameters),
        "policy": made.learner.policy,
        "feedback": feedback,
        "unit": unit or None,
        "tasks": made.n_tasks,
        "seeds": list(made.seeds),
        "everything": made.everything,
        "model_only": made.model,
        "possible": made.possible,
        "hindsight": made.hindsight,
        "estimated": made.estimated,
        "representation": made.representation,
        "headline": headline(made, unit),
        "remarks": said,
        "curves": [
            {
                "policy": curve.policy,
                "points": [point._asdict() for point in curve.points],
                "needed": [each._asdict() for each in curve.needed],
                "needed_of_own": [each._asdict() for each in curve.needed_of_own],
            }
            for curve in made.curves
        ],
        "page": str(page),
    }
