"""The page of the site on the command line, made of the commands themselves."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from checks.docstring_markdown import cell
from deferkit.cli.app import add_commands

app = add_commands()

VALUES = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command by the words that call it."""

    def below(words: str, group: Any) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from below(f"{words} {name}", command)
            else:
                yield f"{words} {name}", command

    return below("deferkit", typer.main.get_command(app))


def help_text(text: str) -> str:
    r"""Return a help text for a cell of a table, without rich's escapes.

    >>> help_text("A file \\[default: x] | a URL")
    'A file \\[default: x\\] \\| a URL'
    """
    return cell(text.replace("\\[", "["))


def is_option(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def value_of(parameter: Any) -> str:
    """Return what the value of an option is; empty for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", str)
    return f" {VALUES.get(annotation, 'TEXT')}"


def metavar(parameter: Any) -> str:
    """Return an argument as a line of usage has it."""
    name = parameter.name.upper() + (" …" if parameter.nargs != 1 else "")
    return name if parameter.required else f"[{name}]"


def default_of(parameter: Any) -> str:
    """Return the default of an option; empty if there is none, or a flag is off."""
    given = isinstance(parameter.default, str | int | float | Path) and parameter.default is not False
    return f" Unless given `{parameter.default}`." if given and parameter.default != "" else ""


def row_of(parameter: Any) -> str:
    """Return the row of an argument or option."""
    said = help_text(parameter.help or "").rstrip(".")
    said = f"{said}." if said else ""
    if not is_option(parameter):
        return f"| `{metavar(parameter)}` | {said} |"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"| `{names}{value_of(parameter)}` | {said}{default_of(parameter)} |"


def command_lines(words: str, command: Any) -> list[str]:
    """Return the part of the page on a command."""
    parameters = [each for each in command.params if each.name != "help"]
    usage = " ".join([words, "[OPTIONS]", *(metavar(each) for each in parameters if not is_option(each))])
    lines = [f"## {words}", "", "```", usage, "```", ""]
    for paragraph in re.split(r"\n\s*\n", command.help or ""):
        lines += [help_text(paragraph), ""]
    panels: dict[str, list[str]] = {}
    for each in parameters:
        panel = each.rich_help_panel or ("Options" if is_option(each) else "Arguments")
        panels.setdefault(panel, []).append(row_of(each))
    for panel, rows in panels.items():
        lines += [f"**{panel}**", "", "| | |", "|---|---|", *rows, ""]
    return lines


def command_page() -> str:
    """Return the page."""
    lines = [
        "# Command line",
        "",
        "Every command with all of its options, as `--help` prints them. [Commands](commands.md) has them in short.",
        "",
    ]
    for words, command in commands():
        lines += command_lines(words, command)
    return "\n".join(lines).rstrip() + "\n"
