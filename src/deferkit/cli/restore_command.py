"""`deferkit restore`: a backup in the place of a store."""

from typing import Annotated

import typer

from deferkit.cli.app import app, console
from deferkit.cli.backup_command import Force, policies, shown_progress


@app.command()
def restore(
    file: Annotated[str, typer.Argument(help="A copy that `deferkit backup` has made")],
    store: Annotated[str, typer.Argument(help="The file of the store (SQLite)")],
    force: Force = False,
) -> None:
    """Make a store from a backup, and rebuild every policy in it from its log before it takes its place.

    A store that is there is replaced only with --force, and only if no service is running on it.
    """
    from deferkit.serve.audit.backup import restore as copy  # noqa: PLC0415

    with shown_progress() as progress:
        n_policies = copy(file, store, force=force, progress=progress)
    console.print(
        f"{store}: {policies(n_policies)} restored and checked.", highlight=False, soft_wrap=True, markup=False
    )
