"""Build of the extension modules; everything else is in pyproject.toml.

The environment variable DEFERKIT_CFLAGS adds compiler flags, DEFERKIT_LDFLAGS linker flags (`make sanitize`).
"""

import os
import runpy
import shlex
import sys
import sysconfig
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

PACKAGE = Path("src/deferkit")
# No fast-math: the compiler may not change the order of a sum. No contraction: every fused multiply-add is written
# out, so that all builds give the same bits. Aligned loops: an inner loop across two cache lines took a quarter longer.
FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-falign-loops=64", "-g0"]
# What the stable ABI lacks would be found when the module is imported, on the user's machine.
FLAGS += ["-Werror=implicit-function-declaration"]
# MSVC takes the portable path of kernels.h, which is C99; comments there and in the .pxd files are not ASCII.
if sys.platform == "win32":
    FLAGS = ["/O2", "/fp:precise", "/utf-8"]
MACROS = [("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")]
# The stable ABI of Python 3.11: one wheel for every later Python. It costs 13 % of decide + observe at d = 20 (2.02
# instead of 1.79 µs, medians of 15 processes each, in turn). A free-threaded Python has none.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
if STABLE:
    MACROS += [("Py_LIMITED_API", "0x030B0000")]


def extension(path: str, *flags: str) -> Extension:
    """Return the extension module whose source is at this path below the package, without its suffix."""
    source = PACKAGE / path
    return Extension(
        ".".join(("deferkit", *Path(path).parts)),
        [f"{source}.pyx"],
        include_dirs=[str(source.parent), numpy.get_include()],
        define_macros=MACROS,
        py_limited_api=STABLE,
        extra_compile_args=[*FLAGS, *flags, *shlex.split(os.environ.get("DEFERKIT_CFLAGS", ""))],
        extra_link_args=shlex.split(os.environ.get("DEFERKIT_LDFLAGS", "")),
    )


def write_structs() -> None:
    """Write the C structs of the learner's state from their declaration."""
    core = PACKAGE / "learn" / "core"
    layout = runpy.run_path(str(core / "layout.py"))
    source, target = layout["struct_source"](), core / "state.pxd"
    if not target.exists() or target.read_text(encoding="utf-8") != source:
        target.write_text(source, encoding="utf-8")


def is_stale() -> bool:
    """Return whether a file that the sources cimport has changed since they were translated to C.

    Cython does not see the files of `from deferkit.learn.core cimport adaptive`, and would keep the old code of them.
    """
    written = [path.stat().st_mtime for path in Path("build/cython").rglob("*.c")]
    read = [path.stat().st_mtime for path in PACKAGE.rglob("*.pxd")]
    return bool(written) and max(read) > min(written)


write_structs()
extensions = [
    extension("learn/core/_core"),
    extension("learn/_encoding"),
    extension("learn/embed/_passes"),
    extension("worlds/_knapsacks"),
    extension("serve/http/_json_scan"),
]
# the platform that is built for, which need not be this one: not universal2, nor arm64 built on x86-64
if sysconfig.get_platform().endswith("-x86_64"):
    extensions.append(extension("learn/core/_core_v3", "-march=x86-64-v3"))

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "freethreading_compatible": False,
}

setup(
    ext_modules=cythonize(
        extensions,
        compiler_directives=DIRECTIVES,
        build_dir="build/cython",
        include_path=["src"],
        force=is_stale() or None,
    ),
    options={"build_ext": {"parallel": os.cpu_count()}, "bdist_wheel": {"py_limited_api": "cp311"} if STABLE else {}},
)
