"""The application with all commands."""

from deferkit.cli.app import app
from deferkit.cli.command_table import COMMANDS, add_command

__all__ = ["app"]

for name in COMMANDS:
    add_command(name)
