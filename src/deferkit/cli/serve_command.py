"""`deferkit serve`: the decision service."""

import os
from dataclasses import Field, fields
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from deferkit.cli.app import app, console
from deferkit.serve.service_settings import ServiceSettings, default_text


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
    from deferkit.serve.storage.open_store import shown  # noqa: PLC0415

    settings = ServiceSettings.read(os.environ, **given)

    def listening(url: str, is_open: bool) -> None:
        console.print(f"deferkit serves on {url}, from {shown(settings.store)}", highlight=False, soft_wrap=True)
        if is_open:
            console.print("There are no keys: everyone on this machine may call it.", style="yellow")

    raise typer.Exit(run(settings, listening))


serve.__signature__ = Signature([option_of(each) for each in fields(ServiceSettings)])  # type: ignore[attr-defined]
app.command()(serve)
