"""The kernels against numpy and against their order of sums by hand; and every build gives the same bits."""

import ctypes
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from deferkit.learn.core import CONSTANTS, layout

HERE = Path(__file__).parents[1]
HEADERS = HERE.parent / "src" / "deferkit" / "learn" / "core"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", f"-I{HEADERS}"]
NATIVE = os.environ.get("CC", "gcc")

pytestmark = pytest.mark.skipif(shutil.which(NATIVE) is None, reason="no C compiler")

Floats = NDArray[np.float64]
# every block of 1 to 8 vectors, 9 and 10 divided in two, a block after a full one, and both sides of LARGE
WIDTHS = [*range(4, 80, 4), 100, 128, 208]


def compiled(compiler: str, *given: str, source: str, target: Path) -> Path:
    """Return the program or library that a compiler makes of a source beside this file."""
    subprocess.run([compiler, *FLAGS, *given, str(HERE / source), "-o", str(target), "-lm"], check=True)
    return target


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("kernels") / "kernels.so"
    flags = ["-O3", "-shared", "-fPIC", "-Wno-unused-function"]
    made = ctypes.CDLL(str(compiled(NATIVE, *flags, source="kernel_library.c", target=target)))
    for name in ("call_dot", "call_window_demand"):
        getattr(made, name).restype = ctypes.c_double
    for name in ("lanes_at_a_time", "contexts_in_a_stash", "largest_small_matrix"):
        getattr(made, name).restype = ctypes.c_int64
    return made


def call(library: ctypes.CDLL, kernel: str, *given: Floats | float | int) -> Any:
    """Call a kernel: arrays are changed in place."""
    plain: list[Any] = []
    for each in given:
        if isinstance(each, np.ndarray):
            assert each.flags.c_contiguous
            assert each.dtype == np.float64
            plain.append(ctypes.c_void_p(each.ctypes.data))
        else:
            plain.append(ctypes.c_double(each) if isinstance(each, float) else ctypes.c_int64(each))
    return getattr(library, f"call_{kernel}")(*plain)


def numbers(rng: np.random.Generator, *shape: int) -> Floats:
    """Return numbers whose sizes differ so much that the order of a sum shows in its last bits."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)


def fma(a: float, b: float, c: float) -> float:
    """Return a·b + c, rounded once; a fraction is divided out correctly rounded."""
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def chain(x: Floats, y: Floats, start: float = 0.0) -> float:
    """Return start + Σ xᵢyᵢ as a chain of fused multiply-adds, first to last."""
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        start = fma(a, b, start)
    return start


def lane_sum(lanes: list[float]) -> float:
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])


def dot_by_hand(x: Floats, y: Floats) -> float:
    return lane_sum([chain(x[lane::4], y[lane::4]) for lane in range(4)])


def test_the_header_and_the_layout_agree(library: ctypes.CDLL) -> None:
    assert library.lanes_at_a_time() == layout.N_LANES == CONSTANTS["lanes"]
    assert library.contexts_in_a_stash() == layout.STASH == CONSTANTS["stash"]
    large = library.largest_small_matrix()
    assert min(WIDTHS) < large < max(WIDTHS)
    assert {large, large + 4} <= set(WIDTHS)


@pytest.mark.parametrize("w", WIDTHS)
def test_vectors(library: ctypes.CDLL, w: int) -> None:
    rng = np.random.default_rng(w)
    x, y, scale = numbers(rng, w), numbers(rng, 3, w), float(numbers(rng, 1)[0])
    size = np.abs(x) @ np.abs(y).T  # what rounding is relative to

    assert abs(call(library, "dot", x, y[0], w) - x @ y[0]) <= 1e-14 * size[0]
    assert call(library, "dot", x, y[0], w) == dot_by_hand(x, y[0])
    three = np.full(3, np.nan)
    call(library, "dot_three", x, y, three, w)
    assert three.tolist() == [call(library, "dot", x, row.copy(), w) for row in y]

    out = y[1].copy()
    call(library, "add_scaled", out, scale, x, w)
    np.testing.assert_allclose(out, y[1] + scale * x, atol=1e-15 * float(np.abs(y[1]).max() + abs(scale * x).max()))
    assert out.tolist() == [fma(scale, a, b) for a, b in zip(x.tolist(), y[1].tolist(), strict=True)]
    call(library, "copy_scaled", out, scale, x, w)
    assert out.tolist() == (scale * x).tolist()


@pytest.mark.parametrize("w", WIDTHS)
def test_a_symmetric_matrix_times_a_vector(library: ctypes.CDLL, w: int) -> None:
    rng = np.random.default_rng(w)
    half, x = numbers(rng, w, w), numbers(rng, w)
    m, out = half + half.T, np.full(w, np.nan)
    call(library, "multiply", m, x, out, w)
    assert np.all(np.abs(out - m @ x) <= 1e-13 * (np.abs(m) @ np.abs(x)))
    # whether in blocks of columns or row by row, a sum goes over the rows from first to last
    shown = range(w) if w <= 24 else rng.choice(w, 24, replace=False)
    for j in shown:
        assert out[j] == chain(m[:, j], x), (w, j)


@pytest.mark.parametrize("w", WIDTHS)
def test_outer_products(library: ctypes.CDLL, w: int) -> None:
    rng = np.random.default_rng(w)
    half, x = numbers(rng, w, w), numbers(rng, w)
    m = half + half.T
    size = np.abs(m) + np.abs(np.outer(x, x))
    for kernel, sign in (("add_outer", 1.0), ("subtract_outer", -1.0)):
        out = m.copy()
        call(library, kernel, out, x, w)
        assert np.all(np.abs(out - (m + sign * np.outer(x, x))) <= 4e-16 * size)
        assert np.array_equal(out, out.T)
        i, j = rng.integers(0, w, (2, 50))
        by_hand = [fma(sign * float(x[a]), float(x[b]), float(m[a, b])) for a, b in zip(i, j, strict=True)]
        assert out[i, j].tolist() == by_hand


@pytest.mark.parametrize("w", WIDTHS)
def test_a_stash_is_added_to_the_lower_half(library: ctypes.CDLL, w: int) -> None:
    rng = np.random.default_rng(w)
    half, stash, work = rng.standard_normal((w, w)), rng.standard_normal((layout.STASH, w)), np.zeros(2 * w)
    m = half + half.T
    out, rounding = m.copy(), np.zeros((w, w))
    call(library, "add_stash", out, rounding, stash, work, w)
    lower = np.tril_indices(w)
    np.testing.assert_allclose(out[lower], (m + stash.T @ stash)[lower], rtol=1e-13, atol=1e-13)
    for i, j in zip(*rng.integers(0, w, (2, 20)), strict=True):
        if j <= i:
            more = chain(stash[:, i], stash[:, j])
            assert out[i, j] == m[i, j] + more
            # what is kept is exactly what the sum has too much, as long as the matrix is larger than what is added
            if abs(m[i, j]) > abs(more):
                assert Fraction(rounding[i, j]) == Fraction(out[i, j]) - Fraction(m[i, j]) - Fraction(more)
    # lanes that are whole above the diagonal are not touched
    above = np.add.outer(-(np.arange(w) // 4), np.arange(w) // 4) > 0
    assert np.array_equal(out[above], m[above])
    assert not rounding[above].any()


def test_small_contexts_are_not_lost_beside_a_large_one(library: ctypes.CDLL) -> None:
    # 16·(1e-9)² a stash is less than half of the last bit of 1: a plain sum would stay 1
    w, times = 4, 10_000
    m, rounding, work = np.eye(w), np.zeros((w, w)), np.zeros(2 * w)
    stash = np.full((layout.STASH, w), 1e-9)
    for _ in range(times):
        call(library, "add_stash", m, rounding, stash, work, w)
    added = times * layout.STASH * 1e-18
    assert 1.0 + layout.STASH * 1e-18 == 1.0
    assert (m - rounding)[0, 0] - 1.0 == pytest.approx(added, abs=2e-16)
    exact = 1 + times * layout.STASH * Fraction(1e-9) ** 2
    assert abs(Fraction(m[0, 0]) - Fraction(rounding[0, 0]) - exact) < Fraction(1, 10**19)


def demand_by_hand(gain: Floats, cost: Floats, price: Floats, resource: int) -> Floats:
    """Return what each context uses: of the first expert whose gain less the price of its costs is largest."""
    value = gain - np.einsum("krn,r->kn", cost, price)
    best = value.argmax(axis=0)
    at = np.arange(gain.shape[1])
    used: Floats = np.where(value[best, at] > 0, cost[best, resource, at], 0.0)
    return used


@given(
    st.integers(1, 5), st.integers(1, 4), st.integers(1, 12), st.integers(0, 50), st.integers(0, 2**32 - 1), st.data()
)
def test_the_demand_of_a_window(
    library: ctypes.CDLL, experts: int, resources: int, lanes: int, n: int, seed: int, data: st.DataObject
) -> None:
    window = 4 * lanes
    n = min(n, window)
    rng = np.random.default_rng(seed)
    # whole numbers: every order of a sum is exact, and there are ties and values of exactly 0
    gain, cost = (
        rng.integers(-3, 9, (experts, window)).astype(float),
        rng.integers(0, 4, (experts, resources, window)).astype(float),
    )
    price = rng.integers(0, 4, resources).astype(float)
    gain[:, n:] = 0.0  # as the caller fills up the last lanes
    resource = data.draw(st.integers(0, resources - 1))
    found = call(library, "window_demand", gain, cost, price, experts, resources, resource, window, n)
    assert found == demand_by_hand(gain[:, :n], cost[:, :, :n], price, resource).sum()


@pytest.mark.parametrize(("experts", "resources"), [(1, 1), (1, 3), (4, 1), (3, 2)])
def test_the_demand_of_a_window_of_fractions(library: ctypes.CDLL, experts: int, resources: int) -> None:
    rng = np.random.default_rng(experts + 10 * resources)
    gain, cost = rng.standard_normal((experts, 96)), rng.random((experts, resources, 96))
    price = rng.random(resources)
    for resource in range(resources):
        found = call(library, "window_demand", gain, cost, price, experts, resources, resource, 96, 96)
        used = demand_by_hand(gain, cost, price, resource)
        assert found == pytest.approx(used.sum(), rel=1e-14)
        by_lane = [float(np.add.accumulate(used[lane::4])[-1]) for lane in range(4)]
        assert found == lane_sum(by_lane)


# ------------------------------------------------------------------ the same bits from every build


def digests(compiler: str, *flags: str, folder: Path, run: tuple[str, ...] = (), **env: str) -> str:
    """Return what the program of digests prints when it is built and run so."""
    target = compiled(compiler, *flags, source="kernel_digests.c", target=folder / "digests")
    done = subprocess.run(
        [*run, str(target)], capture_output=True, text=True, check=True, timeout=300, env={**os.environ, **env}
    )
    return done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    return digests(NATIVE, "-O3", folder=tmp_path_factory.mktemp("expected"))


def test_every_kernel_has_a_digest(expected: str) -> None:
    kernels = {line.split()[0].removesuffix("_rounding") for line in expected.splitlines()}
    declared = (HEADERS / "kernels.pxd").read_text().split('cdef extern from "kernels.h" nogil:')[1]
    assert kernels == {line.split("(")[0].split()[-1] for line in declared.splitlines() if "(" in line}


def has_x86_64_v3() -> bool:
    core = cast(Any, sys.modules["deferkit.learn.core._core"])
    return bool(core.has_x86_64_v3())


BUILDS = {
    "not optimised": ("-O0",),
    "x86-64-v3": ("-O3", "-march=x86-64-v3"),
    "x86-64-v3, not optimised": ("-O0", "-march=x86-64-v3"),
    "without vector extensions": ("-O3", "-DDEFERKIT_PORTABLE"),
    "without vector extensions, x86-64-v3": ("-O3", "-DDEFERKIT_PORTABLE", "-march=x86-64-v3"),
    "without vector extensions, not optimised": ("-O0", "-DDEFERKIT_PORTABLE"),
}


COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
RUNNABLE = [build for build in BUILDS if "x86-64-v3" not in build or has_x86_64_v3()]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("build", RUNNABLE)
def test_a_build_gives_the_same_bits(compiler: str, build: str, expected: str, tmp_path: Path) -> None:
    assert digests(compiler, *BUILDS[build], folder=tmp_path) == expected


def test_a_processor_without_fma_gives_the_same_bits(expected: str, tmp_path: Path) -> None:
    # glibc then rounds once in software; another C library ignores the setting
    assert digests(NATIVE, "-O3", folder=tmp_path, GLIBC_TUNABLES="glibc.cpu.hwcaps=-FMA,-FMA4") == expected


ARM64 = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64-static"


@pytest.mark.skipif(
    not (shutil.which(ARM64) and shutil.which(EMULATOR)), reason="make test-arm64 installs what it needs"
)
@pytest.mark.parametrize("flags", [("-O3",), ("-O0",), ("-O3", "-DDEFERKIT_PORTABLE")], ids=" ".join)
def test_arm64_gives_the_same_bits(flags: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    assert digests(ARM64, *flags, "-static", folder=tmp_path, run=(EMULATOR,)) == expected


STREAM = """
import hashlib
from deferkit.learn import core
from tests.conftest import make, rewards_of
print(core.Core.__module__)
for name in ("resolve", "three experts", "two resources", "logistic", "both logistic"):
    deferrer, tasks = make(name)
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    print(name, hashlib.sha256(deferrer.to_bytes()).hexdigest())
"""


def stream_digests(**env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", STREAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=HERE.parent,
        env={**os.environ, **env},
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(not has_x86_64_v3(), reason="another processor")
def test_both_cores_end_a_stream_in_the_same_state() -> None:
    fast, baseline = stream_digests(DEFERKIT_BASELINE=""), stream_digests(DEFERKIT_BASELINE="1")
    assert fast[0] == "deferkit.learn.core._core_v3"
    assert baseline[0] == "deferkit.learn.core._core"
    assert fast[1:] == baseline[1:]
    assert len(set(fast)) == 6


def test_a_build_from_another_layout_is_not_imported() -> None:
    """Whichever build is taken: one of the two may be a leftover."""
    change = "import importlib, sys; from deferkit.learn import core; sys.modules[core.Core.__module__].FIELDS = ('x',)"
    for baseline in ("", "1"):
        done = subprocess.run(
            [sys.executable, "-c", f"{change}; importlib.reload(core)"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "DEFERKIT_BASELINE": baseline},
        )
        assert "was built from another layout.py" in done.stderr
