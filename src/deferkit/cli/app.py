"""The application that the commands join, and where they print."""

from typing import Annotated

import typer
from rich.console import Console

from deferkit.version import __version__

app = typer.Typer(
    help="Online decision deferral under budget constraints: who decides, the model or an expert?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
aside = Console(stderr=True)  # for what is not the answer: progress, remarks, errors


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit")] = False,
) -> None:
    """Handle what is not a command."""
    if show:
        console.print(f"deferkit {__version__}")
        raise typer.Exit
