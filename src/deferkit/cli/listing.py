"""deferkit list: policies, worlds, pacings and embeddings, with those of plug-ins."""

import inspect
import json
from typing import Annotated, Any, NamedTuple

import typer

from deferkit.cli import FAILED
from deferkit.cli.app import app, aside, console
from deferkit.cli.output import plain_table
from deferkit.learn.embed import EMBEDDING_PLUGINS, EMBEDDINGS
from deferkit.learn.pacing import PACING_PLUGINS, PACINGS
from deferkit.plugins import PluginGroup
from deferkit.study.policy_registry import POLICIES, POLICY_PLUGINS
from deferkit.worlds import WORLD_PLUGINS, WORLDS


class Listed(NamedTuple):
    """A line of the list."""

    kind: str
    name: str
    source: str  # "deferkit", or the package of a plug-in
    description: str
    problem: str  # why a plug-in cannot be used, or ""


def first_line(value: Any) -> str:
    """Return the description of a class: its `description`, or the first line of its docstring.

    >>> first_line(PACINGS["adaptive"])
    'an adaptive step of the price after every decision'
    """
    described = getattr(value, "description", None)
    return described if isinstance(described, str) else (inspect.getdoc(value) or "").partition("\n")[0]


BUILT_IN: list[tuple[PluginGroup, dict[str, str]]] = [
    (POLICY_PLUGINS, POLICIES),
    (WORLD_PLUGINS, {name: first_line(kind) for name, kind in WORLDS.items()}),
    (PACING_PLUGINS, {name: first_line(strategy) for name, strategy in PACINGS.items()}),
    (EMBEDDING_PLUGINS, {kind.kind: first_line(kind) for kind in EMBEDDINGS}),
]


def all_listed() -> list[Listed]:
    """Return all that there is; plug-ins are imported, and what is wrong with one stands beside it."""
    lines = []
    for group, known in BUILT_IN:
        lines += [Listed(group.noun, name, "deferkit", text, "") for name, text in known.items()]
        for state in group.states(known.__contains__):
            text = "" if state.value is None else first_line(state.value)
            lines.append(Listed(group.noun, state.name, state.package, text, state.problem))
    return lines


@app.command("list")
def list_all(
    plugins: Annotated[bool, typer.Option("--plugins", help="Only what is from other packages")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
) -> None:
    """List policies, worlds, pacings and embeddings: those of deferkit and of installed plug-ins."""
    lines = [line for line in all_listed() if not plugins or line.source != "deferkit"]
    if as_json:
        typer.echo(json.dumps([line._asdict() for line in lines], indent=2))
    elif lines:
        shown = plain_table("", ("kind", "name", "from"), ())
        shown.add_column("what it is", overflow="fold")  # the names stay whole, however narrow the terminal is
        for line in lines:
            shown.add_row(line.kind, line.name, line.source, line.description if not line.problem else "cannot be used")
        console.print(shown)
    else:
        console.print("No plug-in is installed. docs/plugins.md says how to write one.")
    problems = [line for line in lines if line.problem]
    for line in problems:
        aside.print(f"{line.source}: {line.problem}", markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(FAILED)
