"""The code that results depend on is in the key of a trial, all of it; the rest of the package is not."""

import shutil
from pathlib import Path

import grimp
import pytest

from deferkit.study.spec import EXCLUDED, PACKAGE, SOURCE_SUFFIXES, measuring_sources, source_digest

SOURCES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.suffix in SOURCE_SUFFIXES)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the source files of the package."""
    folder = tmp_path_factory.mktemp("copy") / "deferkit"
    for path in SOURCES:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / path, folder / path)
    return folder


def is_excluded(path: Path) -> bool:
    return any(path.as_posix().startswith(f"{folder}/") for folder in EXCLUDED)


def test_every_file_but_service_command_line_and_drawing_is_in_the_key(package: Path) -> None:
    assert EXCLUDED == ("cli", "client", "serve", "study/drawing", "testing")
    assert {path.relative_to(package) for path in measuring_sources(package)} == {
        path for path in SOURCES if not is_excluded(path)
    }


def test_a_change_of_a_file_changes_the_key_unless_it_is_excluded(package: Path) -> None:
    before = source_digest(package)
    assert before == source_digest()
    changed = b"\n# changed\n"
    contents = {path: (package / path).read_bytes() for path in SOURCES}
    excluded = [path for path in SOURCES if is_excluded(path)]
    for path in excluded:  # all of them at once
        (package / path).write_bytes(contents[path] + changed)
    assert source_digest(package) == before
    for path in sorted(set(SOURCES).difference(excluded)):
        (package / path).write_bytes(contents[path] + changed)
        assert source_digest(package) != before, path
        (package / path).write_bytes(contents[path])
    assert source_digest(package) == before
    for path in excluded:
        (package / path).write_bytes(contents[path])


@pytest.mark.parametrize("name", ["learn/new.py", "worlds/new.pyx", "study/new.py", "new.py"])
def test_a_new_file_changes_the_key(package: Path, name: str) -> None:
    before = source_digest(package)
    (package / name).write_text("")
    assert source_digest(package) != before
    (package / name).unlink()


def test_no_trial_imports_excluded_code() -> None:
    """All that `study.runner` imports, directly or not, lies in the key: a worker runs nothing else."""
    graph = grimp.build_graph("deferkit")
    needed = graph.find_upstream_modules("deferkit.study.runner") | {"deferkit.study.runner"}
    # The graph does not see extension modules, and takes an import of one for an import of the whole package.
    folders = tuple(f"deferkit.{folder.replace('/', '.')}" for folder in EXCLUDED)
    assert {"deferkit.study.trial", "deferkit.learn.deferrer", "deferkit.worlds.synthetic"} <= needed
    assert [module for module in needed if module.startswith(folders)] == []
