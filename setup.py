"""Build of the extension modules; everything else is in pyproject.toml.

The environment variable DEFERKIT_CFLAGS adds compiler flags, DEFERKIT_LDFLAGS linker flags (`make sanitize`).
"""

import os
import platform
import shlex
import sys
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

PACKAGE = Path("src/deferkit")
# No fast-math: the compiler may not change the order of a sum. No contraction: every fused multiply-add is written
# out, so that all builds give the same bits.
FLAGS = [] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-g0"]


def extension(path: str, *flags: str) -> Extension:
    """Return the extension module whose source is at this path below the package, without its suffix."""
    source = PACKAGE / path
    return Extension(
        ".".join(("deferkit", *Path(path).parts)),
        [f"{source}.pyx"],
        include_dirs=[str(source.parent), numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=[*FLAGS, *flags, *shlex.split(os.environ.get("DEFERKIT_CFLAGS", ""))],
        extra_link_args=shlex.split(os.environ.get("DEFERKIT_LDFLAGS", "")),
    )


extensions: list[Extension] = []

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "freethreading_compatible": False,
}

setup(ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES, build_dir="build/cython"))
