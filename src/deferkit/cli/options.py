"""Options of `deferkit run` and `deferkit plan` that belong to a world: they are made from the fields of the worlds."""

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from deferkit.errors import InvalidArgument, closest, expected
from deferkit.plugins import is_reference
from deferkit.worlds import WORLDS, all_options, flag_of, kind_of
from deferkit.worlds.base import Option, options_of
from deferkit.worlds.data import VARIABLE
from deferkit.worlds.table import Table

TABLE = "Options of a table"
Every = Annotated[
    str | None,
    typer.Option(help="The budget is that of a period: day, week, month, or a length such as 7d; a table needs --time"),
]
Carry = Annotated[
    str | None, typer.Option(help="Allowances that can be carried over to the next period; inf: nothing lapses. 0")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of a world of a plug-in that has no option of its own. Any number of times",
    ),
]
Data = Annotated[Path | None, typer.Option(help=f"Folder of the data sets; ${VARIABLE} by default")]


def with_world_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each parameter of a world beside its own.

    Args:
        command: Takes its own options, and as `parameters` a mapping of the parameters of the world that were given.
            Its argument `world` says which world that is.

    Returns:
        The command for typer. It raises InvalidArgument for an option that the world does not have.
    """
    own = [each for each in signature(command).parameters.values() if each.name != "parameters"]
    added = [_parameter(name, each) for name, each in all_options().items()]
    assigned = Parameter("assigned", Parameter.KEYWORD_ONLY, default=None, annotation=Set)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {each.name: values.pop(each.name) for each in added}
        pairs = values.pop("assigned") or ()
        named = [values["world"], *(values.get("policy") or values.get("policies") or ())]
        if any(map(is_reference, named)):
            import_from_here()
        command(**values, parameters=given_to(values["world"], given | assigned_to(values["world"], pairs)))

    shown = [*own, *added, assigned]
    run.__signature__ = signature(command).replace(parameters=shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run


def import_from_here() -> None:
    """Let `module:name` be in the working directory, as for other programs; what is installed comes first."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def assigned_to(world: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Return parameters of a world that were given as "name=value".

    Args:
        world: The name of a world.
        pairs: What was given with `--set`.

    Raises:
        InvalidArgument: One is not of this form, has an option of its own, or a value is not of its type; or the world
            has no such parameter.

    >>> assigned_to("synthetic", ["shelves=5"])
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: The world 'synthetic' has no parameter 'shelves' for --set.
    """
    known = {each.parameter: each for each in options_of(kind_of(world))}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InvalidArgument(f"--set takes a name and a value, as in --set shelves=5. Got {pair!r}.")
        if name in all_options():
            raise InvalidArgument(f"--set is for parameters without an option. Give {flag_of(name)} instead.")
        if name not in known:
            raise InvalidArgument(f"The world {world!r} has no parameter {name!r} for --set.{closest(name, known)}")
        found[name] = value_of(name, text, known[name].kind)
    return found


def value_of(name: str, text: str, kind: type) -> Any:
    """Return a value of a parameter.

    >>> value_of("shelves", "5", int), value_of("open", "no", bool)
    (5, False)
    """
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in words:
            raise expected(name, "world", "yes or no", text)
        return words[text.lower()]
    try:
        return kind(text)
    except ValueError as error:
        raise expected(name, "world", f"of the type {kind.__name__}", text) from error


def _parameter(name: str, used: list[tuple[str, Option]]) -> Parameter:
    world, first = used[0]
    panel = TABLE if world == "a table" else f"Options of the world {world}"
    hidden = world != "a table" and is_short_help(sys.argv)
    shown = typer.Option(*_flags(first), help=help_of(used), rich_help_panel=panel, hidden=hidden)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[first.kind | None, shown])


def is_short_help(words: Sequence[str]) -> bool:
    """Whether a command line requests help without the name of a simulated world, whose options are left out then.

    >>> is_short_help(["deferkit", "run", "--help"]), is_short_help(["deferkit", "run", "late", "--help"])
    (True, False)
    """
    return "--help" in words and not set(words) & set(WORLDS)


def help_of(used: list[tuple[str, Option]]) -> str:
    """Return the help of an option: what it means, with its default in each world that has it.

    >>> help_of(all_options()["n_features"])
    'd, the length of a context (synthetic: 20, drift: 20)'
    """
    by_text: dict[str, list[str]] = {}
    for world, each in used:
        default = "" if each.default in ("", None) else f"{each.default:,}" if each.kind is int else str(each.default)
        by_text.setdefault(each.help, []).append(": ".join(filter(None, [world if len(used) > 1 else "", default])))
    return "; ".join(f"{text} ({', '.join(about)})" if any(about) else text for text, about in by_text.items())


def _flags(of: Option) -> tuple[str, ...]:
    return (f"--{of.flag}/--no-{of.flag}",) if of.kind is bool else (f"--{of.flag}",)


def given_to(world: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given.

    Args:
        world: The name of a world, or a path to a table.
        options: Values by parameter; None if it was not given.

    Raises:
        InvalidArgument: The world has no such option, or two of them contradict each other.

    >>> given_to("synthetic", {"regime": "random", "noise": None, "people": None})
    {'regime': 'random'}
    """
    given = {name: value for name, value in options.items() if value is not None}
    known = {each.parameter: each for each in options_of(kind_of(world))}
    for name in given:
        if name not in known:
            has = ", ".join(map(shown_flag, known.values())) or "none of its own"
            raise InvalidArgument(f"The world {world!r} has no option {flag_of(name)}. It has: {has}.")
    if given.get("order") == "shuffled" and "time" in given:
        raise InvalidArgument("--order shuffled and --time are two orders: give one of them.")
    return given


def shown_flag(of: Option) -> str:
    """Return the flag of a parameter of a world: its option, or `--set` if only a plug-in has it.

    >>> shown_flag(Option("shelves", "shelves", int, "", 1))
    '--set shelves=…'
    """
    return f"--{of.flag}" if of.parameter in all_options() else f"--set {of.parameter}=…"


def following(world: str, then: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the world of new tasks that follow past ones, and its options.

    Raises:
        InvalidArgument: One of the two is not a table.

    >>> following("history.csv", "new.csv", {"cost": "minutes"})
    ('new.csv', {'cost': 'minutes', 'after': 'history.csv'})
    """
    for name in (world, then):
        if kind_of(name) is not Table:
            raise InvalidArgument(f"--then is for two tables, as in history.csv --then new.csv. Got {name!r}.")
    return then, {**options, "after": world}


def use_data(folder: Path | None) -> None:
    """Set the folder of data sets for this process and its workers; nothing is changed if it is None.

    Raises:
        InvalidArgument: There is no such folder.
    """
    if folder is not None:
        if not folder.is_dir():
            raise InvalidArgument(f"There is no directory {folder} with data.")
        os.environ[VARIABLE] = str(folder.resolve())
