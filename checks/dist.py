"""Packages of a clean clone: built, compared, installed in empty environments, tried (`make dist`).

    python checks/dist.py TOOLS [PYTHON …]

TOOLS is the folder of an environment with checks/dist-tools.txt; each PYTHON is an interpreter that the wheel is
installed for, python3.11 and later ones that are on the PATH unless given.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = ROOT / "checks"
VERSIONS = range(11, 20)  # of Python 3
WRITTEN_AT_BUILD = (".dist-info/RECORD",)
LARGEST_WHEEL_MB, LONGEST_FIRST_DECISION_S = 5.0, 2.0


def run(*command: str | Path, cwd: Path | None = None, quiet: bool = True, **environment: str) -> str:
    """Run a command outside of this environment; return what it printed."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=outside | environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def clean_clone(folder: Path) -> Path:
    """Return a clone of the last commit, with nothing in it that is not in the repository."""
    if changed := run("git", "status", "--porcelain", cwd=ROOT):
        print(f"not committed, and so not in the packages:\n{changed}", end="")
    run("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), folder)
    return folder


def build(tools: Path, source: Path, out: Path, what: str) -> Path:
    """Build a wheel or an sdist in isolation: with what `[build-system]` names, in the versions of constraints.txt."""
    begin = time.perf_counter()
    constraints = str(ROOT / "constraints.txt")
    run(tools / "bin/python", "-m", "build", f"--{what}", "--outdir", out, source, PIP_CONSTRAINT=constraints)
    (made,) = out.glob("*.whl" if what == "wheel" else "*.tar.gz")
    print(f"{made.name}: {megabytes(made):.1f} MB, built in {time.perf_counter() - begin:.0f} s from {source.name}")
    return made


def check_content(wheel: Path) -> None:
    """Raise if a file is missing from the wheel, or should not be in it."""
    names = zipfile.ZipFile(wheel).namelist()
    generated = [name for name in names if name.endswith((".c", ".cpp", ".html"))]
    assert generated == ["deferkit/serve/web/index.html"], "generated code"
    assert not [name for name in names if not name.startswith("deferkit")], "files of another package"
    assert "deferkit/py.typed" in names
    for module in (
        "learn/core/_core",
        "learn/_encoding",
        "learn/embed/_passes",
        "worlds/_knapsacks",
        "serve/http/_json_scan",
    ):
        found = [name for name in names if name.startswith(f"deferkit/{module}.")]
        assert [name for name in found if name.endswith((".so", ".pyd"))], f"{module} is not compiled"
        assert f"deferkit/{module}.pyi" in found, f"{module} has no types"
    assert megabytes(wheel) < LARGEST_WHEEL_MB, f"{megabytes(wheel):.1f} MB"


def check_sources(sdist: Path) -> None:
    """Raise if the sdist lacks what it is built from, or has what was built."""
    with tarfile.open(sdist) as packed:
        names = [name.partition("/")[2] for name in packed.getnames()]
    built = (".so", ".c", ".html")
    assert [name for name in names if name.endswith(built)] == ["src/deferkit/serve/web/index.html"], "generated code"
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md", "CITATION.cff", "CHANGELOG.md"):
        assert name in names, f"{name} is not in the sdist"


def digests(wheel: Path) -> dict[str, str]:
    """Return a hash of each file in a wheel."""
    files = zipfile.ZipFile(wheel)
    return {
        name: hashlib.sha256(files.read(name)).hexdigest()
        for name in files.namelist()
        if not name.endswith(WRITTEN_AT_BUILD)
    }


def check_same(first: Path, second: Path) -> None:
    """Raise unless two wheels have the same files, byte for byte."""
    one, other = digests(first), digests(second)
    different = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    assert first.name == second.name
    assert not different, f"the wheel of the sdist differs in {different}"
    print(f"the sdist builds the same wheel: {len(one)} files, byte for byte")


def megabytes(path: Path) -> float:
    """Return the size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def try_wheel(wheel: Path, interpreter: str) -> None:
    """Install a wheel in an empty environment without a compiler, and decide with it far from the sources."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        run(interpreter, "-m", "venv", "--without-pip", home / "env")
        python = home / "env/bin/python"
        install: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        begin = time.perf_counter()
        run(*install, "--only-binary", ":all:", "--disable-pip-version-check", "--no-cache-dir", wheel)
        installed_s = time.perf_counter() - begin
        packages = next(path for path in (home / "env").rglob("site-packages") if path.is_dir())
        sizes = {path.name: megabytes(path) for path in packages.iterdir() if path.is_dir()}
        found = {name.partition("-")[0].partition(".")[0] for name in sizes}
        assert found - {"__pycache__"} == {"deferkit", "numpy"}, sizes  # the command is a module beside the package
        nothing = home / "nothing"
        nothing.mkdir()
        for program in ("decide.py", "missing_extras.py"):
            alone = subprocess.run(
                [python, "-I", "-W", "error", CHECKS / program],
                check=True,
                cwd=nothing,
                env={"PATH": str(nothing)},
                stdout=subprocess.PIPE,
                text=True,
            )
            print(f"  {alone.stdout.strip()}")
        first_s = min(first_decision(python, nothing) for _ in range(3))
        assert first_s < LONGEST_FIRST_DECISION_S, f"{first_s:.2f} s"
        version = run(python, "-c", "import platform; print(platform.python_version())").strip()
        of = ", ".join(f"{name} {size:.1f}" for name, size in sorted(sizes.items()) if size >= 0.1)
        print(f"  Python {version}: installed in {installed_s:.1f} s with numpy downloaded; first decision after")
        print(f"  {first_s:.2f} s, from the start of Python; {sum(sizes.values()):.0f} MB beyond Python ({of})")


def first_decision(python: Path, folder: Path) -> float:
    """Return the seconds from the start of Python until a first decision is there."""
    program = "from deferkit import Deferrer; Deferrer(n_features=3).decide([0.6, 0.0, 0.8])"
    begin = time.perf_counter()
    subprocess.run([python, "-I", "-c", program], check=True, cwd=folder)
    return time.perf_counter() - begin


def interpreters() -> list[str]:
    """Return a Python of each version from 3.11 on: of those on the PATH, and of pyenv, whose shims may not run."""
    names = [f"python3.{minor}" for minor in VERSIONS]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    there = [shutil.which(name) for name in names] + [str(path) for n in names for path in pyenv.glob(f"*/bin/{n}")]
    found: dict[str, str] = {}
    for path in filter(None, there):
        asked = subprocess.run(
            [path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, check=False
        )
        if asked.returncode == 0:
            found.setdefault(asked.stdout.decode(), path)
    return list(found.values())


def main(tools: Path, pythons: list[str]) -> None:
    """Build, compare, check, install, try."""
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        clone = clean_clone(Path(folder) / "clone")
        wheel, sdist = build(tools, clone, out, "wheel"), build(tools, clone, out, "sdist")
        check_content(wheel)
        check_sources(sdist)
        with tarfile.open(sdist) as packed:
            packed.extractall(folder, filter="data")
        unpacked = Path(folder) / sdist.name.removesuffix(".tar.gz")
        check_same(wheel, build(tools, unpacked, Path(folder) / "again", "wheel"))
    run(tools / "bin/twine", "check", "--strict", wheel, sdist)
    run(tools / "bin/cffconvert", "--validate", "-i", ROOT / "CITATION.cff")
    print("twine and cffconvert find nothing wrong with the metadata and CITATION.cff")
    for python in pythons or interpreters():
        print(f"{python}:")
        try_wheel(wheel, python)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
