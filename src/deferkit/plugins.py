"""Plug-ins: objects of other packages, found by the name of an entry point or as `module:name`.

The registries of policies, worlds, pacings and embeddings have a `PluginGroup` each. Nothing is imported before it is
asked for by name, so that a broken plug-in breaks nothing but itself.
"""

import functools
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deferkit.errors import InvalidArgument, closest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

REFERENCE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
"""`module:name`, as in "mypkg.world:Shop"."""


class InvalidPlugin(InvalidArgument):
    """A plug-in cannot be used: it is missing, is of the wrong kind, or failed when it was imported.

    >>> from deferkit.plugins import load_reference
    >>> load_reference("no_such_package.rules:Mine")
    Traceback (most recent call last):
    deferkit.plugins.InvalidPlugin: There is no module 'no_such_package', which 'no_such_package.rules:Mine' is in.
    """


class PluginState(NamedTuple):
    """An entry point as it is listed.

    Attributes:
        name: The name of the entry point.
        package: The distribution that has it, with its version.
        value: What was loaded; None if that failed.
        problem: Why it cannot be used; "" if it can.
    """

    name: str
    package: str
    value: Any
    problem: str


class PluginGroup:
    """The plug-ins of one kind.

    Args:
        noun: What one of them is, such as "policy".
        group: The group of their entry points, such as "deferkit.policies".
        wanted: What a plug-in of this kind must be, as it follows "must be".
        accepts: Whether an object is one.
    """

    def __init__(self, *, noun: str, group: str, wanted: str, accepts: Callable[[Any], bool]) -> None:
        self.noun = noun
        self.group = group
        self.wanted = wanted
        self.accepts = accepts
        self._loaded: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Return the names of the installed entry points, sorted. Nothing is imported."""
        return sorted({each.name for each in find_installed(self.group)})

    def find(self, name: object, *, may_import: bool = True) -> Any | None:
        """Return the plug-in of this name; None if there is none.

        Args:
            name: Of an entry point, or `module:name`.
            may_import: Whether `module:name` may be imported (default). A name out of a file must not be: then only
                installed entry points are found, and what this process has found or added before.

        Raises:
            InvalidPlugin: The plug-in is missing, is of the wrong kind or failed on import, or two packages have one
                of this name.
        """
        if not isinstance(name, str):
            return None
        if name not in self._loaded:
            if is_reference(name):
                if not may_import:
                    return None
                self._loaded[name] = self._check_value(name, load_reference(name))
            elif found := [each for each in find_installed(self.group) if each.name == name]:
                self._loaded[name] = self._check_value(name, self._load(found))
            else:
                return None
        return self._loaded[name]

    def add(self, name: str, value: Any) -> None:
        """Add an object of this process, so that files saved with it can be loaded.

        Raises:
            InvalidPlugin: Another object has this name.
        """
        before = self._loaded.setdefault(name, value)
        if before is not value and reference_of(before) != reference_of(value):
            raise InvalidPlugin(f"There are two of the {self.noun} {name!r}: {before!r} and {value!r}.")
        self._loaded[name] = value  # a class may be defined again, as in a notebook

    def states(self, reserved: Callable[[str], bool]) -> Iterator[PluginState]:
        """Yield all installed entry points with what is wrong with each; this imports them.

        Args:
            reserved: Whether a name is one of deferkit's own, which is what it then stands for.
        """
        for each in sorted(find_installed(self.group), key=lambda each: each.name):
            value, problem = None, ""
            try:
                value = self._check_value(
                    each.name, self._load([e for e in find_installed(self.group) if e.name == each.name])
                )
                if reserved(each.name):
                    problem = f"{each.name!r} is a {self.noun} of deferkit; use {each.value}"
            except InvalidPlugin as error:
                problem = str(error)
            yield PluginState(each.name, package_of(each), value, problem)

    def _load(self, found: "list[EntryPoint]") -> Any:
        first = found[0]
        if len({each.value for each in found}) > 1:
            packages = " and ".join(sorted(package_of(each) for each in found))
            raise InvalidPlugin(
                f"The {self.noun} {first.name!r} is in {packages}: name one of them as module:name,"
                f" such as {first.value}."
            )
        return load_reference(first.value)

    def _check_value(self, name: str, value: Any) -> Any:
        if not self.accepts(value):
            raise InvalidPlugin(f"{name!r} is no {self.noun}: it must be {self.wanted}. Got {value!r} instead.")
        return value


@functools.cache
def find_installed(group: str) -> "tuple[EntryPoint, ...]":
    """Return the entry points of a group; they are looked for once for each process."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - not before a plug-in is asked for

    return tuple(dict.fromkeys(entry_points(group=group)))


def package_of(entry: "EntryPoint") -> str:
    """Return the distribution of an entry point, with its version."""
    return "?" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def is_reference(name: object) -> bool:
    """Return whether a name has the form `module:name`.

    >>> is_reference("mypkg.world:Shop"), is_reference("synthetic"), is_reference("C:/tasks.csv")
    (True, False, False)
    """
    return isinstance(name, str) and REFERENCE.fullmatch(name) is not None


def reference_of(value: Any) -> str:
    """Return the name of a class or function, as `module:name`.

    >>> reference_of(Path)
    'pathlib:Path'
    """
    return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', '?')}"


def load_reference(reference: str) -> Any:
    """Return the object that `module:name` stands for.

    Args:
        reference: A module, a colon, and a name in it, which may have dots.

    Raises:
        InvalidPlugin: There is no such module or name in it, or the module failed when it was imported. The message is
            one line.

    >>> load_reference("pathlib:Path").__name__
    'Path'
    """
    module_name, _, path = reference.partition(":")
    try:
        value: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise InvalidPlugin(f"There is no module {error.name!r}, which {reference!r} is in.") from error
        raise _failure_of(reference, error) from error
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise _failure_of(reference, error) from error
    owner = f"The module {module_name!r}"
    for part in path.split("."):
        if not hasattr(value, part):
            known = [each for each in dir(value) if not each.startswith("_")]
            raise InvalidPlugin(f"{owner} has no {part!r}.{closest(part, known)}")
        value, owner = getattr(value, part), repr(part)
    return value


def _failure_of(reference: str, error: BaseException) -> InvalidPlugin:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return InvalidPlugin(f"{reference!r} failed when it was imported: {reason}")


def plugin_digest(value: Any) -> str:
    """Return a hash of the source files of the package that an object is from, for the key of results.

    Args:
        value: A class or function.

    Returns:
        "" if its source is not in files.
    """
    top = sys.modules.get(getattr(value, "__module__", "").partition(".")[0])
    file = getattr(top, "__file__", None)
    if file is None:
        return ""
    path = Path(file)
    return _digest_of(path.parent if path.name == "__init__.py" else path)


@functools.cache
def _digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    for each in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        digest.update(each.relative_to(path.parent).as_posix().encode())
        digest.update(each.read_bytes())
    return digest.hexdigest()[:16]
