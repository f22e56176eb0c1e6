"""How this package compiles: cached on disk, strict IEEE arithmetic, no interpreter lock.

Fast-math is off on purpose. With it the compiler may sum in another order in the bulk loop than in
the one-at-a-time call, and the two would differ in the last bit; a replayed log would then not give
back the same learner. The steps are written so that they vectorise without it.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numba.core import config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., object])
Record = TypeVar("Record", bound=NamedTuple)



def cache_directory() -> Path | None:
    """Return where machine code is kept: a folder for this very source, or None if none can be made.

    Numba itself looks only at the file of a function, not at the files of those that it calls, and so would go
    on using old machine code after a change in one of them.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    home = os.environ.get("DEFERKIT_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    directory = Path(home).expanduser() / "deferkit" / digest
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK) else None


CACHE = cache_directory()


def _compile(function: Function, **options: bool) -> Function:
    before = config.CACHE_DIR
    config.CACHE_DIR = str(CACHE) if CACHE else before
    try:
        decorate = numba.njit(cache=CACHE is not None, nogil=True, error_model="numpy", **options)
        return cast(Function, decorate(function))
    finally:
        config.CACHE_DIR = before


def compiled(function: Function) -> Function:
    """Compile a function; the machine code is cached on disk."""
    return _compile(function)


def inlined(function: Function) -> Function:
    """Compile a small function into each of its callers."""
    return _compile(function, forceinline=True)


def tuple_reader(kind: type[Record], start: int) -> Callable[[NDArray[np.int64]], Record]:
    """Return a function that reads the fields of a named tuple of ints from an array, from `start` on.

    What its caller does not use is never loaded.
    """
    fields = len(kind._fields)

    @intrinsic  # type: ignore[untyped-decorator]
    def read(_context: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            flat = context.make_array(signature.args[0])(context, builder, arguments[0])
            at = [builder.gep(flat.data, [context.get_constant(types.intp, start + i)]) for i in range(fields)]
            return context.make_tuple(builder, signature.return_type, [builder.load(each) for each in at])

        return types.NamedUniTuple(array.dtype, fields, kind)(array), codegen

    return cast(Callable[[NDArray[np.int64]], Record], read)


@intrinsic  # type: ignore[untyped-decorator]
def _address(_context: Any, array: Any, start: Any) -> Any:
    """Return the address of an element of a flat array."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flat = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(flat.data, [arguments[1]])

    return types.CPointer(array.dtype)(array, start), codegen


@inlined
def vector(flat: NDArray[np.float64], start: int, n: int) -> NDArray[np.float64]:
    """Return n elements of a flat array as an array.

    A slice would do the same, but it is counted as a reference, and that costs more than a small loop.
    """
    return numba.carray(_address(flat, start), (n,))


@inlined
def matrix(flat: NDArray[np.float64], start: int, n: int, m: int) -> NDArray[np.float64]:
    """Return n·m elements of a flat array as a matrix."""
    return numba.carray(_address(flat, start), (n, m))
