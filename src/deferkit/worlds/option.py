"""Options of a world: its own fields say what they mean, for Python, the command line and figures alike."""

from collections.abc import Iterable
from dataclasses import Field, field, fields, is_dataclass
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from deferkit.errors import expected


class Option(NamedTuple):
    """A field of a world that users may set."""

    parameter: str  # the field
    flag: str  # on the command line, without the dashes
    kind: type  # of its values
    help: str
    default: Any


def option(default: Any, help: str, *, choices: Iterable[str] = (), flag: str = "", shown: str = "") -> Any:
    """Return a field of a world that is an option of the command line as well.

    Args:
        default: The value unless given.
        help: What the option means, for `--help`.
        choices: The values that are allowed; any unless given. `check_choices` holds a world to them.
        flag: The name on the command line, without dashes; that of the field unless given.
        shown: How a value stands in the subtitle of a figure, such as "T = {:,}"; left out unless given.
    """
    metadata = {"help": help, "choices": tuple(choices), "flag": flag, "shown": shown}
    return field(default=default, metadata=metadata)


def options_of(world: type) -> list[Option]:
    """Return the options of a world, in the order of its fields; none if it is not a dataclass.

    >>> from deferkit.worlds.moderation import Moderation
    >>> [(each.flag, each.kind, each.default) for each in options_of(Moderation)]
    [('horizon', <class 'int'>, 5000)]
    """
    if not is_dataclass(world):
        return []
    hints = get_type_hints(world)
    return [
        Option(
            parameter=each.name,
            flag=each.metadata["flag"] or each.name.replace("_", "-"),
            kind=next(kind for kind in (*get_args(hints[each.name]), hints[each.name]) if kind is not NoneType),
            help=each.metadata["help"] + _listed(each),
            default=each.default,
        )
        for each in fields(world)
        if "help" in each.metadata
    ]


def _listed(of: "Field[Any]") -> str:
    return ": " + ", ".join(of.metadata["choices"]) if of.metadata["choices"] else ""


def check_choices(world: Any) -> None:
    """Raise if a field has a value that is not among its choices.

    Args:
        world: A world, which is a dataclass.

    Raises:
        InvalidArgument: The message names the field, the choices and the value.
    """
    for each in fields(world):
        known, value = each.metadata.get("choices"), getattr(world, each.name)
        if known and value not in known:
            raise expected(each.name, type(world).__name__, "one of " + ", ".join(map(repr, known)), value)
