"""`deferkit serve`: the decision service."""

import os
from dataclasses import fields
from typing import Annotated

import typer

from deferkit.cli.app import app, console

Store = Annotated[
    str | None, typer.Option(help="A file (SQLite) or a postgresql:// URL [default: $DEFERKIT_STORE or deferkit.db]")
]


@app.command()
def serve(
    store: Store = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0: a free one [default: 8080]")] = None,
    address: Annotated[str | None, typer.Option(help="Where other processes reach this one")] = None,
    queue_limit: Annotated[int | None, typer.Option(help="Calls that may wait [default: 1024]")] = None,
    tenant_share: Annotated[float | None, typer.Option(help="Part of it for one tenant [default: 0.5]")] = None,
    group_limit: Annotated[int | None, typer.Option(help="Tasks that share a commit [default: 256]")] = None,
    rate: Annotated[float | None, typer.Option(help="Calls a second for each tenant [default: no limit]")] = None,
    max_policies: Annotated[int | None, typer.Option(help="Policies of a tenant [default: 100]")] = None,
    max_body: Annotated[int | None, typer.Option(help="Bytes of a request [default: 1,000,000]")] = None,
    body_timeout_s: Annotated[float | None, typer.Option(help="Seconds for it to arrive [default: 10]")] = None,
    owner_lease_s: Annotated[
        float | None, typer.Option(help="Seconds after which a silent process loses its policies [default: 15]")
    ] = None,
    max_clock_jump_s: Annotated[
        float | None, typer.Option(help="Seconds that the clock may have jumped; 0: any [default: 300]")
    ] = None,
    snapshot_every: Annotated[int | None, typer.Option(help="Records between snapshots [default: 20,000]")] = None,
    stop_s: Annotated[float | None, typer.Option(help="Seconds for calls in flight at the end [default: 20]")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning, error [default: info]")] = None,
) -> None:
    """Start the decision service. Every option is also a variable, as DEFERKIT_PORT is for --port."""
    given = dict(locals())
    from deferkit.serve.http.server import serve as run  # noqa: PLC0415
    from deferkit.serve.settings import Settings  # noqa: PLC0415
    from deferkit.serve.storage.open_store import shown  # noqa: PLC0415

    settings = Settings.read(os.environ, **{each.name: given[each.name] for each in fields(Settings)})

    def listening(url: str, is_open: bool) -> None:
        console.print(f"deferkit serves on {url}, from {shown(settings.store)}", highlight=False, soft_wrap=True)
        if is_open:
            console.print("There are no keys: everyone on this machine may call it.", style="yellow")

    raise typer.Exit(run(settings, listening))
