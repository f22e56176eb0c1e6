"""`deferkit serve` and `deferkit keys`."""

import os
import time
from dataclasses import Field, fields
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from deferkit.cli.app import Store, app, aside, console, store_path
from deferkit.errors import InvalidArgument
from deferkit.serve.domain.api_keys import MAX_KEY_AGE_S, SCOPES, TENANT_SCOPES, check_scopes, new_key
from deferkit.serve.service_settings import ServiceSettings, default_text

if TYPE_CHECKING:
    from deferkit.serve.storage.store import Store as KeyStore


def option_of(setting: Field[Any]) -> Parameter:
    """Return the option of a setting: without a default of its own, so that one that is not given is not set."""
    what = setting.metadata["what"]
    default = f" \\[default: {default_text(setting)}]" if setting.default != "" else ""
    option = typer.Option(help=f"{what[0].upper()}{what[1:]}{default}")
    annotation = Annotated[type(setting.default) | None, option]  # type: ignore[misc, valid-type, unused-ignore]
    return Parameter(setting.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def serve(**given: Any) -> None:
    """Start the decision service. Every option is also a variable, as DEFERKIT_PORT is for --port."""
    from deferkit.serve.http.server import serve as run  # noqa: PLC0415
    from deferkit.serve.storage.open_store import redact_store  # noqa: PLC0415

    settings = ServiceSettings.from_environment(os.environ, **given)

    def listening(url: str, is_open: bool) -> None:
        console.print(f"deferkit serves on {url}, from {redact_store(settings.store)}", soft_wrap=True)
        if is_open:
            console.print("There are no keys: everyone on this machine may call it.", style="yellow")

    raise typer.Exit(run(settings, listening))


serve.__signature__ = Signature([option_of(each) for each in fields(ServiceSettings)])  # type: ignore[attr-defined]
app.command()(serve)


keys = typer.Typer(help="Keys of tenants: create, list, revoke.", no_args_is_help=True)
app.add_typer(keys, name="keys")


WIDE = 250  # characters
FIRST = (
    "It is the first key: from now on every call needs one. A policy belongs to a tenant; those that were made without"
    " a key belong to the tenant default."
)


def open_keys(store: str | None, *, make: bool = False) -> "KeyStore":
    """Return the store of the keys. It must exist, unless `make` is set."""
    from deferkit.serve.storage.open_store import store_of_keys, store_to_read  # noqa: PLC0415

    return (store_of_keys if make else store_to_read)(store_path(store))


@keys.command()
def create(
    tenant: Annotated[str, typer.Option(help="Whose key it is; tenants do not see each other")] = "default",
    scopes: Annotated[str, typer.Option(help=f"Scopes of the key, from {', '.join(SCOPES)}")] = ",".join(TENANT_SCOPES),
    name: Annotated[str, typer.Option(help="A name to know it by")] = "",
    expires_s: Annotated[float | None, typer.Option(help="Seconds after which it is refused; never")] = None,
    reviewer: Annotated[str | None, typer.Option(help="The only reviewer that it may claim reviews for")] = None,
    store: Store = None,
) -> None:
    """Make a key and print it. It is shown this once: only its hash is kept."""
    if not tenant.isprintable() or not 1 <= len(tenant) <= 64:
        raise InvalidArgument(f"The tenant is a name of 1 to 64 characters. Got {tenant!r}.")
    if not name.isprintable() or len(name) > 64:
        raise InvalidArgument(f"The name of a key has at most 64 characters. Got {name!r}.")
    if expires_s is not None and not 0 < expires_s <= MAX_KEY_AGE_S:
        raise InvalidArgument(f"A key expires after some seconds, at most {MAX_KEY_AGE_S:,}. Got {expires_s:g}.")
    names = [each.strip() for each in scopes.split(",") if each.strip()]
    if reviewer is not None and (not reviewer.isprintable() or not 1 <= len(reviewer) <= 128):
        raise InvalidArgument(f"The reviewer of a key is a name of 1 to 128 characters. Got {reviewer!r}.")
    check_scopes(names)
    kept = open_keys(store, make=True)
    from deferkit.serve.engine.ownership import start_time  # noqa: PLC0415  takes its time to import

    now = start_time(kept, max_jump_s=ServiceSettings.from_environment(os.environ).max_clock_jump_s).at
    key, row = new_key(tenant, names, name, expires_s=expires_s, reviewer=reviewer, now=now)
    first = not kept.keys()
    kept.add_key(row)
    kept.close()
    console.print(key, markup=False, soft_wrap=True)
    aside.print(f"Key {row.id} of tenant {tenant}, for {row.scopes}. It is not shown again.", markup=False)
    if first:
        aside.print(FIRST, style="yellow", soft_wrap=True)


@keys.command("list")
def list_keys(store: Store = None) -> None:
    """List the keys there are."""
    kept = open_keys(store)
    table = Table(
        Column("key", no_wrap=True, min_width=12),
        "tenant",
        "scopes",
        "name",
        "reviewer",
        "created",
        "expires",
        "last used",
        "revoked",
    )
    for row in kept.keys():  # noqa: SIM118  keys of tenants, not of a dict
        times = (row.created, row.expires, row.last_used, row.revoked)
        texts = (
            *(row.id, row.tenant, row.scopes, row.name, row.reviewer or ""),
            *("" if each is None else when(each) for each in times),
        )
        table.add_row(*map(Text, texts))  # a name may have brackets in it
    kept.close()
    # what another program reads is not wrapped
    (console if console.is_terminal else Console(width=WIDE)).print(table)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The id of the key, as `list` shows it")], store: Store = None
) -> None:
    """Revoke a key; a running service refuses it within a second."""
    kept = open_keys(store)
    done = kept.revoke_key(key, time.time_ns() // 1000)
    kept.close()
    if not done:
        raise InvalidArgument(f"There is no key {key!r} to revoke; `deferkit keys list` shows those there are.")
    console.print(f"Key {key} is revoked.")


def when(micros: int) -> str:
    """Return a time to read."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(micros // 1_000_000))
