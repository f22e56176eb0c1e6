"""deferkit run: a world, policies, what each of them came to."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from deferkit.cli.app import INTERRUPTED, app, aside, console
from deferkit.cli.progress import bar
from deferkit.cli.tables import outcome_table, summaries
from deferkit.learn.loop import FEEDBACKS
from deferkit.study.allowance import Allowance, remark
from deferkit.study.engines import ENGINES, make_engine
from deferkit.study.policies import LEARNERS, POLICIES, make_learner
from deferkit.study.runner import missing, run_study, table
from deferkit.study.spec import Spec
from deferkit.study.store import Store
from deferkit.worlds import WORLDS, make_world
from deferkit.worlds.synthetic import LINKS, REGIMES

SHOWN = ("model-only", "arbitrary-human", "best-reject", "paper", "default", "opt")


@app.command()
def run(
    world: Annotated[str, typer.Argument(help="Which tasks: " + ", ".join(WORLDS))],
    regime: Annotated[str, typer.Option(help="How the deciders compare: " + ", ".join(REGIMES))] = "complementary",
    horizon: Annotated[int, typer.Option(help="Number of tasks")] = 50_000,
    budget: Annotated[
        str, typer.Option(help="In units of cost (2000), of tasks (0.1T) or of what asking always costs (10%); or inf")
    ] = "2000",
    policy: Annotated[
        list[str] | None, typer.Option(help="Any number of times. There is: " + ", ".join(POLICIES))
    ] = None,
    feedback: Annotated[str, typer.Option(help="What is observed: " + ", ".join(FEEDBACKS))] = "full",
    trials: Annotated[int, typer.Option(help="Number of streams", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Of the first stream", min=0)] = 0,
    noise: Annotated[float, typer.Option(help="Standard deviation of rewards and costs")] = 0.1,
    features: Annotated[int, typer.Option(help="Length of a context")] = 20,
    most_ones: Annotated[int, typer.Option(help="How many features of a context can be on")] = 8,
    decay: Annotated[float, typer.Option(help="λ: a context with k features on comes in proportion to λ^k")] = 0.3,
    link: Annotated[str, typer.Option(help="Of the rewards: " + ", ".join(LINKS))] = "identity",
    scaled: Annotated[
        bool, typer.Option("--scaled", help="Scale rewards and costs so that means are in [0, 1]")
    ] = False,
    experts: Annotated[int, typer.Option(help="Number of experts")] = 1,
    resources: Annotated[int, typer.Option(help="Number of resources, each with this budget")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw it as well, in RESULTS/figures")] = False,
    results: Annotated[
        Path | None, typer.Option(help="Keep trials here, so that a run goes on where it stopped")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; with one, the times are the truest", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="Where trials run: " + ", ".join(ENGINES))] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster")] = None,
) -> None:
    """Stream tasks through policies and show what each of them came to."""
    parameters = {
        "regime": regime,
        "horizon": horizon,
        "noise": noise,
        "n_features": features,
        "most_ones": most_ones,
        "decay": decay,
        "link": link,
        "scaled": scaled,
        "n_experts": experts,
        "n_resources": resources,
    }
    policies = list(dict.fromkeys(policy or [name for name in SHOWN if resources == 1 or name != "paper"]))
    trace = "path" if plot else ""
    specs = [
        Spec.of(world, parameters, policy=name, budget=budget, feedback=feedback, trace=trace) for name in policies
    ]
    store = Store(None if results is None else results / "trials")
    where = make_engine(engine, workers=workers, address=address)
    stream = make_world(world, parameters).draw(seed)
    total = Allowance.from_text(budget).total(stream)
    for name in policies:
        if name in LEARNERS:  # what it does not like about this world shall be told before anything runs
            make_learner(name, stream, [total] * resources, seed=seed)
    said = remark(total, stream)
    if said:
        aside.print(said, highlight=False)
    wanted = [(spec, seed + i) for i in range(trials) for spec in specs]
    stopped = False
    with bar() as progress:
        job = progress.add_task("trials", total=missing(wanted, store))
        try:
            run_study(
                wanted,
                store=store,
                engine=where,
                progress=lambda n: progress.advance(job, n),
            )
        except KeyboardInterrupt:
            stopped = True
    frame = table(wanted, store)
    # policies are compared on the same streams, so that one which some of them have not seen does not count
    frame = frame.filter(pl.len().over("seed") == len(policies)) if len(frame) else frame
    if frame.is_empty():
        aside.print("Stopped before the first trial was done.")
        raise typer.Exit(INTERRUPTED)
    if stopped:
        aside.print(f"Stopped: {frame['seed'].n_unique()} of {trials} streams were done.", highlight=False)
    rows = summaries(frame, policies)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        mean = float(np.mean(frame["budget"].to_numpy()))
        n = frame["seed"].n_unique()
        title = (
            f"{regime} tasks, T = {horizon:,}, budget {mean:,.0f}{f' ({budget})' if budget.endswith('%') else ''},"
            f" σ = {noise:g}, {feedback} feedback, {n} {'trial' if n == 1 else 'trials'} from seed {seed}"
        )
        console.print(outcome_table(title, rows))
        console.print(
            "mean ± sd over trials, µs a step; gain = (reward − ModelOnly)/(OPT − ModelOnly)", highlight=False
        )
    if plot:
        from deferkit.study.comparison import draw_comparison  # noqa: PLC0415 - a second to import

        path = draw_comparison(frame, results or Path("results"))
        (aside if as_json else console).print(f"figure: {path}", highlight=False, markup=False, soft_wrap=True)
    if stopped:
        raise typer.Exit(INTERRUPTED)
