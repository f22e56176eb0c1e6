"""`deferkit demo`: the real service with simulated tasks and reviewers, to look at for a minute."""

import itertools
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from deferkit.cli import INTERRUPTED
from deferkit.cli.app import app, console
from deferkit.cli.demo import views
from deferkit.cli.demo.service_process import ServiceProcess
from deferkit.cli.demo.simulation import (
    CALL_S,
    DAY_S,
    HUMAN,
    OFFICE_S,
    WORLDS,
    SimulatedUsers,
    Simulation,
    Tasks,
    schedule,
)
from deferkit.cli.demo.tasks import Comments
from deferkit.cli.demo.views import ConsoleView, View, next_steps, watch
from deferkit.client.client import Client
from deferkit.errors import InvalidArgument, ServiceError
from deferkit.types import MODEL

FEEDING = 0.8  # the part of the time in which tasks come; the rest is for what still waits
NOT_THERE = 404


@app.command()
def demo(
    world: Annotated[str | None, typer.Argument(help=f"Which tasks: {', '.join(WORLDS)}")] = None,
    tasks: Annotated[
        int | None,
        typer.Option(help="Number of tasks; 2,000 by default, 20,000 with --console", min=1, max=1_000_000),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="In units of cost (75), of tasks (0.1T) or of what asking always costs (10%); or inf."
            " 10% by default, 20% with --console"
        ),
    ] = None,
    reviewers: Annotated[int, typer.Option(help="Number of simulated people", min=1, max=64)] = 3,
    seed: Annotated[int, typer.Option(help="Of the tasks", min=0)] = 0,
    seconds: Annotated[
        float | None, typer.Option(help="Maximum duration in seconds; 45 by default, no end with --console", min=1)
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="A file (SQLite) or a postgresql:// URL that keeps it; else it is thrown away")
    ] = None,
    key: Annotated[str | None, typer.Option(help="For a store that has keys", envvar="DEFERKIT_KEY")] = None,
    days: Annotated[
        int | None,
        typer.Option(
            help="So many days of office hours in fast motion, a minute each, with a budget a day", min=1, max=30
        ),
    ] = None,
    pages: Annotated[
        bool, typer.Option("--console", help="Comments to moderate in the browser, until Ctrl-C; a seat is yours")
    ] = False,
) -> None:
    """Watch the decision service at work for less than a minute: tasks, reviewers, late outcomes, a budget."""
    if pages:
        if days is not None:
            raise InvalidArgument("With --console tasks come day and night: leave --days out.")
        if world is not None:
            raise InvalidArgument(f"With --console a demo plays with comments. Got the world {world!r}.")
        comments = Comments(tasks=tasks or views.TASKS, budget=budget or views.BUDGET, seed=seed)
        open_console(comments, reviewers=reviewers, seed=seed, seconds=seconds, store=store, key=key)
        return
    play(
        Simulation(world or "synthetic", tasks=tasks or 2000, budget=budget or "10%", seed=seed, days=days),
        reviewers=reviewers,
        seed=seed,
        seconds=seconds or (45.0 if days is None else DAY_S * days),
        store=store,
        key=key,
        days=days,
    )


def open_console(
    comments: Comments, *, reviewers: int, seed: int, seconds: float | None, store: str | None, key: str | None
) -> None:
    """Run the service with simulated comments, and keep its pages open."""
    given = {"schedule": views.schedule, "late_s": views.LATE_S, "spare_seats": views.SEATS}
    given |= {"reviewers": reviewers, "seconds": views.schedule(comments.n_tasks), "seed": seed}
    with serve_users(comments, "comments", store, key, views.free_port(), **given) as (service, url, users):
        views.introduce(url, users.client.policy, reviewers, keyed=key is not None)
        if watch(service, ConsoleView(users), math.inf if seconds is None else seconds):
            console.print("Stopped.")


@contextmanager
def serve_users(
    tasks: Tasks, policy: str, store: str | None, key: str | None, port: int = 0, **given: Any
) -> Iterator[tuple[ServiceProcess, str, SimulatedUsers[Tasks]]]:
    """Run the service with simulated users within the block; yield the service, its URL and the users.

    Args:
        tasks: The tasks of a new policy.
        policy: The name of the policy.
        store: The store of the service; it is thrown away by default.
        key: A key of the store, if it has keys.
        port: The port of the service; 0 takes a free one.
        given: Further arguments of `SimulatedUsers`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deferkit-demo-")))
        service = stack.enter_context(ServiceProcess(store or str(folder / "demo.db"), folder / "service.log", port))
        with console.status("starting the service; on a new machine it compiles first, up to two minutes …"):
            url = service.wait()
        client = stack.enter_context(new_policy(url, key, policy))
        client.create(**tasks.settings())
        users = SimulatedUsers(tasks, client, **given)
        stack.callback(users.stop)
        users.start()
        yield service, url, users


def play(
    simulation: Simulation,
    *,
    reviewers: int,
    seed: int,
    seconds: float,
    store: str | None,
    key: str | None,
    days: int | None = None,
) -> None:
    """Play all tasks, and say what came of it."""
    given: dict[str, Any] = {"reviewers": reviewers, "seed": seed, "seconds": FEEDING * seconds}
    if days is not None:
        given |= {"seconds": OFFICE_S, "schedule": schedule(simulation.n_tasks, days)}
    with serve_users(simulation, "demo", store, key, **given) as (service, url, users):
        client = users.client
        view = View(users, url, reviewers)
        if not console.is_terminal:
            console.print(f"{view.title}\n{view.about}", soft_wrap=True)
        stopped = watch(service, view, seconds)
        users.stop()
        if users.failure is not None and not stopped:
            raise users.failure
        took = time.monotonic() - users.began
        summary = client.summary()
        if stopped:
            console.print(f"Stopped after {users.decided:,} of {simulation.n_tasks:,} tasks.")
        elif not users.fed:
            console.print(f"Time was up after {users.decided:,} of {simulation.n_tasks:,} tasks.")
        console.print(view.result(summary, took))
        asked = users.latest.get(HUMAN) or users.latest.get(MODEL)
        task = simulation.name_of(0) if asked is None else client.task_of(asked)
    console.print()
    for decision in users.latest.values():
        console.print(decision.explain())
    from deferkit.serve.storage.open_store import redact_store  # noqa: PLC0415 - an extra

    console.print("\nwhat to try next", style="bold")
    limited = simulation.budget.total < float("inf") and days is None
    for command, what in next_steps(store and redact_store(store), client.policy, task, limited=limited):
        console.print(f"  {command}", soft_wrap=True)
        console.print(f"    {what}", style="bright_black")
    if stopped:
        raise typer.Exit(INTERRUPTED)


def new_policy(url: str, key: str | None, name: str) -> Client:
    """Return a client for a policy that is not there yet."""
    for number in itertools.count(1):
        client = Client(url, policy=name if number == 1 else f"{name}-{number}", key=key, total_s=CALL_S)
        try:
            client.summary()
        except ServiceError as error:
            if error.status == NOT_THERE:
                return client
            client.close()
            raise
        client.close()
    raise AssertionError
