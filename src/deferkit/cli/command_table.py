"""The table of commands. The module of a command adds it to the application when it is imported."""

from functools import cache
from importlib import import_module

from rich.markup import escape

from deferkit.cli.app import app
from deferkit.errors import MissingExtra
from deferkit.extras import needs

COMMANDS = {
    "backup": ("backup_command", ("serve",)),
    "bridge": ("bridge_command", ("label_studio",)),
    "demo": ("demo", ("serve", "study")),
    "export": ("export_command", ()),
    "keys": ("keys_command", ("serve",)),
    "list": ("list_command", ("study",)),
    "plan": ("plan_command", ("study",)),
    "replay": ("replay_command", ("serve",)),
    "reproduce": ("reproduce_command", ("study",)),
    "restore": ("restore_command", ("serve",)),
    "run": ("run_command", ("study",)),
    "serve": ("serve_command", ("serve",)),
    "upgrade": ("upgrade_command", ("serve",)),
}
"""Commands: the module of each, and what it needs: parts in `deferkit.extras`."""


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
