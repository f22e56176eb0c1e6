"""Try a wheel as a user would: in an empty environment, without a compiler, far from the sources (`make wheel`)."""

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

PROGRAM = Path(__file__).with_name("decide.py").resolve()


def check_content(wheel: Path) -> None:
    """Raise if a file is missing from the wheel, or should not be in it."""
    names = zipfile.ZipFile(wheel).namelist()
    generated = [name for name in names if name.endswith((".c", ".cpp", ".html"))]
    assert generated == ["deferkit/serve/web/index.html"], "generated code"
    assert not [name for name in names if not name.startswith("deferkit")], "files of another package"
    assert "deferkit/py.typed" in names
    for module in ("learn/core/_core", "learn/_encoding", "learn/embed/_passes", "worlds/_knapsacks"):
        found = [name for name in names if name.startswith(f"deferkit/{module}.")]
        assert [name for name in found if name.endswith((".so", ".pyd"))], f"{module} is not compiled"
        assert f"deferkit/{module}.pyi" in found, f"{module} has no types"


def megabytes(path: Path) -> float:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def main(wheel: Path) -> None:
    check_content(wheel)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "env", with_pip=False, symlinks=True)
        python = next(path for path in (home / "env/bin/python", home / "env/Scripts/python.exe") if path.exists())
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--only-binary", ":all:"]
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([*install, "--disable-pip-version-check", str(wheel.resolve())], check=True, env=outside)
        packages = next(path for path in (home / "env").rglob("site-packages") if path.is_dir())
        sizes = {path.name: megabytes(path) for path in packages.iterdir() if path.is_dir()}
        found = {name.partition("-")[0].partition(".")[0] for name in sizes}
        assert found - {"__pycache__"} == {"deferkit", "numpy"}, sizes  # the command is a module beside the package
        nothing = home / "nothing"
        nothing.mkdir()
        subprocess.run(
            [str(python), "-I", "-W", "error", str(PROGRAM)], check=True, cwd=nothing, env={"PATH": str(nothing)}
        )
        print(f"{wheel.name}: {megabytes(wheel):.1f} MB; environment beyond Python: {sum(sizes.values()):.0f} MB")
        print("\n".join(f"  {name}: {size:.1f} MB" for name, size in sorted(sizes.items())))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
