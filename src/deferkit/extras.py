"""Optional dependencies: which modules a part of deferkit imports, and which extra installs them."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from deferkit.errors import MissingExtra


class Part(NamedTuple):
    """A part of deferkit that needs more than numpy."""

    what: str  # how an error message calls it
    extra: str  # of pyproject.toml
    modules: tuple[str, ...]  # as they are imported


PARTS = {
    "cli": Part("The command line", "cli", ("typer", "rich")),
    "study": Part(
        "A study or a simulated world", "study", ("polars", "altair", "vl_convert", "scipy", "threadpoolctl")
    ),
    "serve": Part("The service", "serve", ("litestar", "msgspec", "uvicorn", "httptools", "apsw", "prometheus_client")),
    "postgres": Part("A PostgreSQL store", "serve", ("psycopg",)),
    "trees": Part("A TreeEmbedding", "trees", ("lightgbm", "scipy", "threadpoolctl")),
    "networks": Part("An embedding by networks", "networks", ("scipy", "threadpoolctl")),
    "torch": Part("A torch module of your own", "neural", ("torch", "scipy", "threadpoolctl")),
    "xlsx": Part("An Excel file (.xlsx)", "xlsx", ("python_calamine",)),
    "ray": Part("The engine 'ray'", "ray", ("ray",)),
}


def missing(part: str) -> list[str]:
    """Return the modules of a part that are not installed; nothing is imported.

    Args:
        part: A key of `PARTS`.
    """
    return [module for module in PARTS[part].modules if find_spec(module) is None]


def needs(part: str, *, what: str = "") -> None:
    """Raise, and name the extra to install, if a module of a part is not installed.

    Args:
        part: A key of `PARTS`.
        what: The subject of the message, instead of the part's own.

    Raises:
        MissingExtra: The message is one line, such as "The command line needs typer and rich: pip install
            'deferkit[cli]'."
    """
    if absent := missing(part):
        raise MissingExtra(
            f"{what or PARTS[part].what} needs {listed(absent)}: pip install 'deferkit[{PARTS[part].extra}]'."
        )


def listed(names: Sequence[str]) -> str:
    """Return names as they stand in a sentence.

    >>> listed(["polars"]), listed(["polars", "altair", "scipy"])
    ('polars', 'polars, altair and scipy')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
