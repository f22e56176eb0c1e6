"""What is needed for what: an install without extras decides, and a missing extra is named in one line."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

import deferkit
from deferkit.extras import REQUIREMENTS
from tests.command_line import SCRIPT

CORE = ("numpy",)
CLI = ("typer", "rich")
STUDY = ("polars", "altair", "vl_convert", "scipy", "threadpoolctl")
MORE = (*STUDY, "lightgbm", "torch", "ray", "litestar", "msgspec", "uvicorn", "apsw", "psycopg")

# Packages look as if they were not installed: what hides them finds nothing, as the import system itself would.
HIDE = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition(".")[0]
        shown = top in {only!r} or top in sys.stdlib_module_names if {only!r} else top not in {without!r}
        return super().find_spec(name, path, target) if shown else None

sys.meta_path[:] = [Finder if each is PathFinder else each for each in sys.meta_path]
"""


def python(
    code: str, *words: str, only: tuple[str, ...] = (), without: tuple[str, ...] = (), cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code where only these packages, or all packages but these, are installed."""
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(only=only and ("deferkit", *only), without=without) + code, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200"},
    )


DECIDE = """
from deferkit import Budget, Deferrer, Encoder
deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1))
decision = deferrer.decide([0.6, 0.8], force="human")
deferrer.observe(decision.id, {"model": 0.5, "human": 0.9}, cost=0.4)
again = Deferrer.from_bytes(deferrer.to_bytes(), "memory")
again.run([[1.0, 0.0]], {"model": [0.5], "human": [1.0]}, [0.1])
named = Deferrer(encoder=Encoder(numbers=["amount"], categories={"country": ["de", "fr"]}))
named.observe(named.decide({"amount": 3.0, "country": "de"}).id, {"model": 1.0})
print(decision.route, deferrer.summary().spent, deferrer == again)
"""


def test_deciding_and_observing_need_numpy_only() -> None:
    done = python(DECIDE, only=CORE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "human 0.4 False\n"


LOADED = "print(*sorted(sys.modules.keys() & set(sys.argv[1:])))"


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import deferkit", (*CORE, *CLI, *MORE)),
        ("import deferkit.client", (*CORE, *CLI, *MORE)),
        ("from deferkit import Budget, Client, ServiceError", (*CORE, *CLI, *MORE)),
        ("from deferkit import *", (*CLI, *MORE)),
    ],
)
def test_an_import_loads_no_library_that_it_does_not_need(code: str, unwanted: tuple[str, ...]) -> None:
    done = python(f"{code}\n{LOADED}", *unwanted)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


CALL = """
from deferkit import Budget, Client, ServiceUnavailable
client = Client("http://127.0.0.1:9", policy="claims", total_s=0.01)
for call in (
    lambda: client.create(features=2, budget=Budget(10, horizon=100, max_cost=1)),
    lambda: client.decide([0.6, 0.8], task="claim-17"),
    lambda: client.summary(),
):
    try:
        call()
    except ServiceUnavailable as error:
        print(type(error).__name__)
"""


def test_a_client_needs_the_standard_library_only() -> None:
    done = python(CALL, only=("deferkit",))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ServiceUnavailable"] * 3


@pytest.mark.parametrize("words", [["--version"], ["--help"], [], ["run", "synthetic"], ["serve"]])
def test_the_command_line_without_its_extra(words: list[str]) -> None:
    done = python(SCRIPT, *words, only=CORE)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "error: The command line needs typer and rich: pip install 'deferkit[cli]'.\n"


def test_the_command_line_with_its_extra_alone() -> None:
    helped = python(SCRIPT, "--help", without=MORE)
    assert helped.returncode == 0, helped.stderr
    assert "pip install 'deferkit[study]'" in helped.stdout
    assert "pip install 'deferkit[serve]'" in helped.stdout
    done = python(SCRIPT, "run", "synthetic", without=MORE)
    assert done.returncode == 2
    modules = "polars, altair, vl_convert, scipy and threadpoolctl"
    assert done.stderr == f"error: A study or a simulated world needs {modules}: pip install 'deferkit[study]'.\n"


STUDIES = "A study or a simulated world needs polars and altair: pip install 'deferkit[study]'."
SERVICE = "The service needs litestar and apsw: pip install 'deferkit[serve]'."


@pytest.mark.parametrize(
    ("without", "words", "message"),
    [
        (("polars", "altair"), "run synthetic --trials 1", STUDIES),
        (("polars", "altair"), "run --help", STUDIES),
        (("polars", "altair"), "plan tasks.csv --unit minutes", STUDIES),
        (("polars", "altair"), "reproduce --quick", STUDIES),
        (("polars", "altair"), "demo", STUDIES),
        (("litestar", "apsw"), "serve --port 0", SERVICE),
        (("litestar", "apsw"), "keys create", SERVICE),
        (("litestar", "apsw"), "replay claims", SERVICE),
        (("litestar", "apsw"), "demo", SERVICE),
        (
            ("lightgbm",),
            "run synthetic --policy tree --horizon 10",
            "The policy 'tree' needs lightgbm: pip install 'deferkit[trees]'.",
        ),
        (
            ("ray",),
            "run synthetic --engine ray --horizon 10",
            "The engine 'ray' needs ray: pip install 'deferkit[ray]'.",
        ),
        (
            ("httpx",),
            "bridge label-studio --url http://127.0.0.1:1 --project 1",
            "The bridge to Label Studio needs httpx: pip install 'deferkit[label-studio]'.",
        ),
        (
            ("opentelemetry",),
            "serve --port 0 --otel",
            "OpenTelemetry (--otel) needs opentelemetry.sdk and opentelemetry.exporter.otlp.proto.http:"
            " pip install 'deferkit[otel]'.",
        ),
        (
            ("psycopg",),
            "replay claims --store postgresql://127.0.0.1:1/work",
            "A PostgreSQL store needs psycopg: pip install 'deferkit[serve]'.",
        ),
    ],
)
def test_a_command_names_the_extra_that_it_needs(without: tuple[str, ...], words: str, message: str) -> None:
    done = python(SCRIPT, *words.split(), without=without)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"error: {message}\n"


def test_the_service_runs_without_what_studies_need(tmp_path: Path) -> None:
    without = (*STUDY, "lightgbm", "torch", "ray")
    made = python(SCRIPT, "keys", "create", "--store", "keys.db", without=without, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("dk_")
    # everything is imported before the settings are read
    refused = python(SCRIPT, "serve", "--store", "keys.db", "--port", "99999", without=without, cwd=tmp_path)
    assert refused.returncode == 2
    assert "port" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_studies_run_without_what_the_service_needs() -> None:
    without = ("litestar", "msgspec", "uvicorn", "apsw", "psycopg", "lightgbm", "torch", "ray")
    words = ("run", "synthetic", "--horizon", "50", "--trials", "1", "--policy", "default", "--policy", "opt")
    done = python(SCRIPT, *words, without=without)
    assert done.returncode == 0, done.stderr
    helped = python(SCRIPT, "--help", without=without)
    assert helped.returncode == 0
    assert "pip install 'deferkit[serve]'" in helped.stdout
    assert "deferkit[study]" not in helped.stdout


EMBED = """
from deferkit import DeferkitError, Deferrer, GradientEmbedding, NeuralEmbedding, TreeEmbedding
for embedding in (TreeEmbedding(), NeuralEmbedding(), GradientEmbedding(), NeuralEmbedding(module=lambda n: None)):
    try:
        Deferrer(n_features=2, embedding=embedding)
        print("made")
    except DeferkitError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("without", "messages"),
    [
        (
            ("lightgbm", "torch"),
            [
                "A TreeEmbedding needs lightgbm: pip install 'deferkit[trees]'.",
                "made",
                "made",
                "A torch module of your own needs torch: pip install 'deferkit[neural]'.",
            ],
        ),
        (
            ("scipy", "threadpoolctl"),
            [
                "A TreeEmbedding needs scipy and threadpoolctl: pip install 'deferkit[trees]'.",
                *["An embedding by networks needs scipy and threadpoolctl: pip install 'deferkit[networks]'."] * 2,
                "A torch module of your own needs scipy and threadpoolctl: pip install 'deferkit[neural]'.",
            ],
        ),
    ],
)
def test_an_embedding_names_the_extra_that_it_needs(without: tuple[str, ...], messages: list[str]) -> None:
    done = python(EMBED, without=without)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == messages


@pytest.mark.parametrize(
    ("module", "extra"),
    [("study.runner", "study"), ("worlds", "study"), ("worlds.table", "study"), ("serve.engine", "serve")],
)
def test_an_import_names_the_extra_that_it_needs(module: str, extra: str) -> None:
    done = python(f"import deferkit.{module}", only=CORE)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("deferkit.errors.MissingExtra: ")
    assert last.endswith(f": pip install 'deferkit[{extra}]'.")


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(deferkit.__all__) <= set(dir(deferkit))
    assert [name for name in deferkit.__all__ if getattr(deferkit, name) is None] == []
    with pytest.raises(AttributeError, match="module 'deferkit' has no attribute 'Deferer'"):
        getattr(deferkit, "Deferer")  # noqa: B009 - mypy knows that it is not there
    public = [name for name in vars(deferkit) if not name.startswith("_")]
    modules = [name for name in public if isinstance(getattr(deferkit, name), ModuleType)]
    assert set(public) - set(modules) - {*deferkit.__all__, *deferkit._STUDY_NAMES} == {
        "TYPE_CHECKING",
        "import_module",
    }


def requirements(extra: str) -> set[str]:
    """Return the names of all packages that an extra brings, those of other extras in it as well."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    for each in project["optional-dependencies"][extra]:
        name, _, within = re.fullmatch(r"([\w.-]+)(\[([\w,-]+)\])?.*", each).groups()  # type: ignore[union-attr]
        found |= set().union(*map(requirements, within.split(","))) if name == "deferkit" else {name}
    return found


@pytest.mark.parametrize("part", REQUIREMENTS)
def test_an_extra_brings_every_module_of_its_part(part: str) -> None:
    packages = packages_distributions()
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in requirements(REQUIREMENTS[part].extra)}
    for module in REQUIREMENTS[part].modules:
        assert names & {re.sub(r"[-_.]+", "-", name).lower() for name in packages[module.partition(".")[0]]}, module


def test_all_brings_every_extra_that_a_part_names() -> None:
    assert set().union(*(requirements(part.extra) for part in REQUIREMENTS.values())) == requirements("all")
