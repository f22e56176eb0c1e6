"""Optional dependencies: the modules that a feature of deferkit imports, and the extra that installs them."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from deferkit.errors import MissingExtra


class Requirement(NamedTuple):
    """The modules that a feature of deferkit needs beside numpy."""

    subject: str  # of the error message
    extra: str  # of pyproject.toml
    modules: tuple[str, ...]  # as they are imported


REQUIREMENTS = {
    "cli": Requirement("The command line", "cli", ("typer", "rich")),
    "study": Requirement(
        "A study or a simulated world", "study", ("polars", "altair", "vl_convert", "scipy", "threadpoolctl")
    ),
    "classifiers": Requirement("The world 'classifiers'", "study", ("sklearn",)),
    "serve": Requirement(
        "The service", "serve", ("litestar", "msgspec", "uvicorn", "httptools", "apsw", "prometheus_client")
    ),
    "postgres": Requirement("A PostgreSQL store", "serve", ("psycopg",)),
    "trees": Requirement("A TreeEmbedding", "trees", ("lightgbm", "scipy", "threadpoolctl")),
    "networks": Requirement("An embedding by networks", "networks", ("scipy", "threadpoolctl")),
    "torch": Requirement("A torch module of your own", "neural", ("torch", "scipy", "threadpoolctl")),
    "xlsx": Requirement("An Excel file (.xlsx)", "xlsx", ("python_calamine",)),
    "label_studio": Requirement("The bridge to Label Studio", "label-studio", ("httpx",)),
    "otel": Requirement(
        "OpenTelemetry (--otel)", "otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    ),
    "langgraph": Requirement("A deferring LangGraph node", "langgraph", ("langgraph",)),
    "litellm": Requirement("A DeferringRouter", "litellm", ("litellm",)),
    "sklearn": Requirement("A DeferringClassifier", "sklearn", ("sklearn",)),
    "ray": Requirement("The engine 'ray'", "ray", ("ray",)),
}


def find_missing(feature: str) -> list[str]:
    """Return the modules of a feature that are not installed. Nothing is imported.

    Args:
        feature: A key of `REQUIREMENTS`.

    >>> find_missing("serve") == [name for name in REQUIREMENTS["serve"].modules if find_spec(name) is None]
    True
    """
    return [module for module in REQUIREMENTS[feature].modules if not is_installed(module)]


def is_installed(module: str) -> bool:
    """Return whether a module can be imported.

    Args:
        module: Its name; of a package within another, the outer one must be a namespace without code.

    >>> is_installed("json.decoder"), is_installed("jason.decoder")
    (True, False)
    """
    outer = module.rpartition(".")[0]
    return (not outer or is_installed(outer)) and find_spec(module) is not None


def needs(feature: str, *, what: str = "") -> None:
    """Raise an error that names the extra to install, if a module of a feature is not installed.

    Args:
        feature: A key of `REQUIREMENTS`.
        what: The subject of the message; that of the requirement by default.

    Raises:
        MissingExtra: The message is one line, such as "The command line needs typer and rich: pip install
            'deferkit[cli]'."
    """
    if absent := find_missing(feature):
        required = REQUIREMENTS[feature]
        raise MissingExtra(
            f"{what or required.subject} needs {join_names(absent)}: pip install 'deferkit[{required.extra}]'."
        )


def join_names(names: Sequence[str]) -> str:
    """Return names as an English list.

    Args:
        names: At least one name.

    >>> join_names(["polars"]), join_names(["polars", "altair", "scipy"])
    ('polars', 'polars, altair and scipy')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
