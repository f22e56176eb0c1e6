"""`deferkit backup` and `deferkit restore`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from deferkit.cli.app import app, console
from deferkit.cli.output import bar

if TYPE_CHECKING:
    from deferkit.serve.backup import Progress


Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there")]


@app.command()
def backup(
    store: Annotated[str, typer.Argument(help="The file of the store (SQLite)")],
    file: Annotated[str, typer.Argument(help="Where to put the copy")],
    force: Force = False,
) -> None:
    """Copy a store while a service may be running on it, and rebuild every policy in the copy from its log.

    The copy is private to its owner, and is there only if all of it is as it was written. On PostgreSQL, use pg_dump.
    """
    from deferkit.serve.backup import backup as copy  # noqa: PLC0415

    with shown_progress() as progress:
        n_policies = copy(store, file, force=force, progress=progress)
    console.print(f"{file}: {policies(n_policies)} copied and checked.", soft_wrap=True, markup=False)


@contextmanager
def shown_progress() -> "Iterator[Progress]":
    """Show what is done in a progress bar."""
    with bar() as shown:
        jobs = {what: shown.add_task(what, total=None) for what in ("pages", "rows")}
        yield lambda what, done, total: shown.update(jobs[what], completed=done, total=total)


def policies(number: int) -> str:
    """Return a number of policies in words.

    >>> policies(1), policies(2)
    ('1 policy', '2 policies')
    """
    return f"{number:,} {'policy' if number == 1 else 'policies'}"


@app.command()
def restore(
    file: Annotated[str, typer.Argument(help="A copy that `deferkit backup` has made")],
    store: Annotated[str, typer.Argument(help="The file of the store (SQLite)")],
    force: Force = False,
) -> None:
    """Make a store from a backup, and rebuild every policy in it from its log before it takes its place.

    A store that is there is replaced only with --force, and only if no service is running on it.
    """
    from deferkit.serve.backup import restore as copy  # noqa: PLC0415

    with shown_progress() as progress:
        n_policies = copy(file, store, force=force, progress=progress)
    console.print(f"{store}: {policies(n_policies)} restored and checked.", soft_wrap=True, markup=False)
