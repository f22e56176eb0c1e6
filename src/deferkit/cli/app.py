"""The application: the table of commands, loaded one at a time."""

import os
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from deferkit.errors import MissingExtra
from deferkit.extras import needs
from deferkit.version import __version__

app = typer.Typer(
    help="Online decision deferral under budget constraints: who decides, the model or an expert?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)
aside = Console(stderr=True, highlight=False)  # for what is not the answer: progress, remarks, errors


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit")] = False,
) -> None:
    """Handle what is not a command."""
    if show:
        console.print(f"deferkit {__version__}")
        raise typer.Exit


COMMANDS = {
    "run": ("run", ("study",)),
    "demo": ("demo", ("serve", "study")),
    "list": ("listing", ("study",)),
    "plan": ("plan", ("study",)),
    "serve": ("service", ("serve",)),
    "keys": ("service", ("serve",)),
    "bridge": ("bridge", ("label_studio",)),
    "replay": ("replay", ("serve",)),
    "upgrade": ("upgrade", ("serve",)),
    "backup": ("backup", ("serve",)),
    "restore": ("backup", ("serve",)),
    "export": ("export", ()),
    "reproduce": ("reproduce", ("study",)),
}
"""Commands: the module of each, and what it needs: parts in `deferkit.extras`."""

PANELS = {
    "Try it on a table, or watch it": ("run", "demo", "list"),
    "Plan a budget": ("plan",),
    "Serve decisions": ("serve", "keys", "bridge"),
    "Operate a service": ("replay", "upgrade", "backup", "restore", "export"),
    "Research": ("reproduce",),
}
"""Commands by what people want, in the order of `deferkit --help`."""


def add_unavailable(name: str, error: MissingExtra) -> None:
    """Add a command that raises `error`, whatever its arguments are."""

    def unavailable() -> None:
        raise error

    app.command(
        name,
        help=escape(str(error)),
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )(unavailable)


@cache
def add_command(name: str) -> None:
    """Add a command to the application, once; if a part that it needs is not installed, one that says so.

    Args:
        name: A key of `COMMANDS`.
    """
    module, parts = COMMANDS[name]
    try:
        for part in parts:
            needs(part)
    except MissingExtra as missing:
        add_unavailable(name, missing)
    else:
        import_module(f"deferkit.cli.{module}")


Store = Annotated[
    str | None, typer.Option(help="A file (SQLite) or a postgresql:// URL [default: $DEFERKIT_STORE or deferkit.db]")
]


def store_path(store: str | None) -> str:
    """Return the file or URL of a store; by default that of the environment."""
    from deferkit.serve.service_settings import ServiceSettings  # noqa: PLC0415 - needs the extra

    return ServiceSettings.from_environment(os.environ, store=store).store


def add_commands() -> typer.Typer:
    """Add all commands to the application, and return it."""
    for name in COMMANDS:
        add_command(name)
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    entries: list[Any] = [*app.registered_commands, *app.registered_groups]
    for each in entries:
        each.rich_help_panel = panel_of.get(each.name or getattr(each.callback, "__name__", ""))
    return app
