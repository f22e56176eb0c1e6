"""The pages of the site on the Python interface, made of the docstrings of everything public."""

import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import deferkit
import deferkit.client
import deferkit.connectors
from checks.docstring_markdown import fenced, markdown

WIDTH = 88  # of a signature on one line


class ApiPage(NamedTuple):
    """A page: its file, its title, and what stands at its head."""

    file: str
    title: str
    about: str


TABLES = ApiPage("api-tables.md", "Tables: compare and plan", "What `deferkit run` and `deferkit plan` do, in Python.")
PAGES = {
    "deferkit.study.comparison": TABLES,
    "deferkit.planning.answer": TABLES,
    "deferkit.learn.deferrer": ApiPage("api-deferrer.md", "Deferrer", "The learner: one class."),
    "deferkit.learn": ApiPage(
        "api-settings.md", "Features, exploration, pacing", "What a `Deferrer` can be made with beside its budget."
    ),
    "deferkit.types": ApiPage("api-values.md", "Budgets, decisions and results", "What goes in and what comes out."),
    "deferkit.events": ApiPage("api-events.md", "Events", "What `propose` returns and `apply` takes."),
    "deferkit.client": ApiPage(
        "api-client.md", "Client", "A policy of a decision service, with the calls of a `Deferrer`."
    ),
    "deferkit.connectors": ApiPage(
        "api-connectors.md", "Connectors", "deferkit inside other libraries; each needs an extra of its own."
    ),
    "deferkit.testing": ApiPage("api-testing.md", "Checks for plug-ins", "For policies and worlds of your own."),
    "deferkit.errors": ApiPage("api-errors.md", "Errors and warnings", "Everything that is raised or warned of."),
}
"""By the package or module in which a name is defined; of several that fit, the longest."""


def page_of(path: str, thing: Any) -> ApiPage:
    """Return the page that a class or function belongs to: by its module, or by where users import it from."""
    home = thing.__module__ if path.count(".") == 1 else path.replace("deferkit.sklearn.", "deferkit.connectors.")
    fitting = [name for name in PAGES if f"{home}.".startswith(f"{name}.")]
    return PAGES[max(fitting, key=len)]


def public_names() -> dict[str, Any]:
    """Return everything public by the name that users import it with."""
    found = {
        f"deferkit.{name}": getattr(deferkit, name)
        for name in (*deferkit.__all__, *deferkit._STUDY_NAMES)
        if name != "__version__"
    }
    more = [deferkit.client, *connector_modules()]
    if importlib.util.find_spec("deferkit.testing"):
        more.append(importlib.import_module("deferkit.testing"))
    for module in more:
        for name in getattr(module, "__all__", None) or own_names(module):
            if f"deferkit.{name}" not in found:
                found[f"{module.__name__}.{name}"] = getattr(module, name)
    return {name: thing for name, thing in found.items() if inspect.isclass(thing) or inspect.isfunction(thing)}


def connector_modules() -> Iterator[ModuleType]:
    """Yield the modules of the connectors."""
    for name in ["deferkit.sklearn", *(f"deferkit.connectors.{each.name}" for each in modules_of_connectors())]:
        yield importlib.import_module(name)


def modules_of_connectors() -> list[pkgutil.ModuleInfo]:
    return [each for each in pkgutil.iter_modules(deferkit.connectors.__path__) if not each.name.startswith("_")]


def own_names(module: ModuleType) -> list[str]:
    """Return the public classes and functions that a module defines."""
    return [
        name
        for name, each in vars(module).items()
        if not name.startswith("_") and getattr(each, "__module__", "") == module.__name__
    ]


def signature_of(name: str, thing: Any) -> str:
    """Return a call as it is written, a parameter a line if it is long.

    >>> def f(a: int, *, b: str = "x") -> bool: ...
    >>> signature_of("f", f)
    "f(a: int, *, b: str = 'x') -> bool"
    """
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"{name}(…)"
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    result = signature.return_annotation
    shown = signature.replace(parameters=parameters, return_annotation=signature.empty)
    end = "" if result is signature.empty or inspect.isclass(thing) else f" -> {inspect.formatannotation(result)}"
    text = without_modules(f"{name}{shown}{end}")
    if len(text) <= WIDTH:
        return text
    lines = [f"    {without_modules(each)}," for each in with_markers(parameters)]
    return "\n".join([f"{name}(", *lines, f"){without_modules(end)}"])


def with_markers(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Yield parameters as text, with the star before those that are given by name alone."""
    starred = False
    for each in parameters:
        starred |= each.kind is each.VAR_POSITIONAL
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield str(each)


def without_modules(text: str) -> str:
    """Return annotations as they stand in the source.

    >>> without_modules("a: collections.abc.Mapping[str, deferkit.types.Budget] | 'Event'")
    'a: Mapping[str, Budget] | Event'
    """
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)
    return re.sub(r"'([A-Z][\w\[\], |.]*)'", r"\1", text)


def members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines, in their order."""
    for name, each in vars(kind).items():
        if not name.startswith("_") and isinstance(each, property | staticmethod | classmethod | FunctionType):
            yield name, each


def described(path: str, thing: Any) -> list[str]:
    """Return the part of a page on a class or function."""
    name = path.rpartition(".")[2]
    lines = [f"## {name}", "", fenced("python", [f"from {path.rpartition('.')[0]} import {name}"]), ""]
    is_error = inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing)
    if not is_error:
        lines += [fenced("python", signature_of(name, thing).splitlines()), ""]
    lines += [markdown(inspect.getdoc(thing) or ""), ""]
    if inspect.isclass(thing):
        for member, each in members_of(thing):
            lines += member_lines(name, member, each)
    return lines


def member_lines(owner: str, name: str, member: Any) -> list[str]:
    """Return the part of a page on a method or property."""
    is_property = isinstance(member, property)
    function = member.fget if is_property else getattr(member, "__func__", member)
    document = inspect.getdoc(function)
    if not document:
        return []
    lines = [f"### {owner}.{name}", ""]
    if not is_property:
        lines += [fenced("python", signature_of(name, function).splitlines()), ""]
    return [*lines, markdown(document), ""]


def python_pages() -> dict[str, str]:
    """Return the pages by file."""
    names = public_names()
    found = {}
    for page in PAGES.values():
        lines = [f"# {page.title}", "", page.about, ""]
        on_it = {path: thing for path, thing in names.items() if page_of(path, thing) == page}
        for path, thing in on_it.items():
            lines += described(path, thing)
        if on_it:
            found[page.file] = "\n".join(lines).rstrip() + "\n"
    return found
