"""The digest of the source code that results depend on: a part of the key of every trial."""

import functools
import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
EXCLUDED = ("cli", "client", "serve", "study/drawing", "testing")
"""The command line, the service with its client, drawing, and checks of plug-ins: no trial imports them.

Everything else is in the key.
"""
SUFFIXES = {".py", ".pyx", ".pxd", ".h"}
LIBRARIES = ("numpy", "scipy", "polars", "lightgbm")


def measuring_sources(package: Path = PACKAGE) -> list[Path]:
    """Return the source files that can change results, sorted by path.

    Args:
        package: The folder of the package.

    Returns:
        Every source file of the package outside of `EXCLUDED`, so that a new module is covered without being listed.

    >>> names = [path.name for path in measuring_sources()]
    >>> "deferrer.py" in names, "charts.py" in names
    (True, False)
    """
    excluded = [package / folder for folder in EXCLUDED]
    sources = (path for path in package.rglob("*") if path.suffix in SUFFIXES)
    return sorted(path for path in sources if not any(folder in path.parents for folder in excluded))


def source_digest(package: Path = PACKAGE) -> str:
    """Return a hash of the source files of a package that can change results, and of the versions of libraries.

    Args:
        package: The folder of the package.
    """
    digest = hashlib.sha256(" ".join(map(library_version, LIBRARIES)).encode())
    for path in measuring_sources(package):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def code_digest() -> str:
    """Return the digest of the code that is running; it is read once for each process."""
    return source_digest()


def library_version(name: str) -> str:
    """Return the version of a library, or "" if it is not installed.

    >>> library_version("no-such-library")
    ''
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
