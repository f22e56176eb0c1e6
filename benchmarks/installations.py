"""Two versions of deferkit on one machine, each in a virtual environment of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")  # of any environment
ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # an environment sees no other


class Interpreter(NamedTuple):
    """A Python, and the variables that it is started with."""

    python: Path
    variables: Mapping[str, str]

    @classmethod
    def of_environment(cls, environment: Path, cache: Path) -> "Interpreter":
        """Return that of a virtual environment; numba's code is kept in this folder."""
        return cls(environment / "bin" / "python", ALONE | {"DEFERKIT_CACHE_DIR": str(cache)})

    def with_cache(self, cache: str) -> "Interpreter":
        """Return one that keeps numba's code in another folder."""
        return self._replace(variables={**self.variables, "DEFERKIT_CACHE_DIR": cache})


class Installation(NamedTuple):
    """A version of deferkit."""

    label: str
    fresh: Interpreter  # of an environment as users install it
    worker: Interpreter  # of one that also has what the benchmarks import
    megabytes: float | None  # of the environment beyond Python; None if it has more than deferkit needs


def run(*command: str | Path) -> str:
    """Run a command from the root of the repository and return what it prints; raise with its errors if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=ALONE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr.strip()}")
    return done.stdout.strip()


def make_environment(folder: Path, package: Path, constraints: Path) -> None:
    """Make a virtual environment with a package and what it needs, and nothing else."""
    run(sys.executable, "-m", "venv", "--clear", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "-c", constraints, package)


def disk_usage(paths: Iterable[Path]) -> int:
    """Return the bytes that files take on the disk."""
    return sum(512 * path.lstat().st_blocks for path in paths)


def size_of(environment: Path) -> float:
    """Return the megabytes of an environment beyond Python and its installer."""
    (packages,) = environment.glob("lib/python*/site-packages")
    ours = [entry for entry in packages.iterdir() if not entry.name.startswith(NOT_OURS)]
    return disk_usage(path for entry in ours for path in (entry, *entry.rglob("*"))) / 1e6


def install_before(before: str) -> Installation:
    """Return the version of a revision, installed below build/before, or of a checkout that has a .venv."""
    if (Path(before) / ".venv").is_dir():
        own = Interpreter.of_environment(Path(before).resolve() / ".venv", BUILD / "before" / "cache")
        return Installation(Path(before).name, own, own, None)
    commit = run("git", "rev-parse", "--short", "--verify", f"{before}^{{commit}}")
    folder = BUILD / "before" / commit
    source, environment, done = folder / "source", folder / "venv", folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        # forced, as git still knows of one that was deleted together with the build folder
        run("git", "worktree", "add", "--force", "--detach", source, commit)
        make_environment(environment, source, source / "constraints.txt")
        done.touch()
    own = Interpreter.of_environment(environment, folder / "cache")
    return Installation(commit, own, own, size_of(environment))


def install_now() -> Installation:
    """Return the version of this checkout: a wheel of it in an empty environment, and the Python that runs this."""
    folder = BUILD / "now"
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    make_environment(folder / "venv", wheel, ROOT / "constraints.txt")
    fresh = Interpreter.of_environment(folder / "venv", folder / "cache")
    return Installation("now", fresh, Interpreter(Path(sys.executable), os.environ), size_of(folder / "venv"))
