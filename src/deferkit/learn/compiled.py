"""How this package compiles: cached on disk, strict IEEE arithmetic, no interpreter lock.

Fast-math is off on purpose. With it the compiler may sum in another order in the bulk loop than in
the one-at-a-time call, and the two would differ in the last bit; a replayed log would then not give
back the same learner. What must be fast is written in lanes (`lanes.py`) instead.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., object])
Record = TypeVar("Record", bound=NamedTuple)


def cache_directory() -> Path | None:
    """Return where machine code is kept: a folder for this very source, or None if none can be made.

    Numba itself looks only at the file of a function, not at the files of those that it calls, and so would go
    on using old machine code after a change in one of them.
    """
    sources = [source.read_bytes() for source in sorted(Path(__file__).parent.glob("*.py"))]
    compiled_ones = [source for source in sources if b"numba" in source or b"learn.compiled" in source]
    digest = hashlib.sha256(b"".join(compiled_ones)).hexdigest()[:16]
    home = os.environ.get("DEFERKIT_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    directory = Path(home).expanduser() / "deferkit" / digest
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK) else None


CACHE = cache_directory()


def _compile(function: Function, **options: bool) -> Function:
    # `_nrt=False`: no reference counts, and a step that allocated would not compile.
    before = config.CACHE_DIR
    config.CACHE_DIR = str(CACHE) if CACHE else before
    try:
        decorate = numba.njit(cache=CACHE is not None, nogil=True, error_model="numpy", _nrt=False, **options)
        return cast("Function", decorate(function))
    finally:
        config.CACHE_DIR = before


def compiled(function: Function) -> Function:
    """Compile a function; the machine code is cached on disk."""
    return _compile(function)


def inlined(function: Function) -> Function:
    """Compile a small function into each of its callers."""
    return _compile(function, forceinline=True)


def field_reader(kind: type[Record], start: int) -> Callable[[NDArray[np.int64]], Record]:
    """Return a compiled function that shows an int array, from `start` on, as a named tuple of ints.

    A field is loaded where it is used. Building the whole tuple first would give the same machine code, but
    each of the small functions would then compile several times as long.
    """

    class FieldsType(types.Type):
        def __init__(self) -> None:
            super().__init__(name=f"fields of {kind.__name__}")

    fields_type = FieldsType()

    @register_model(FieldsType)
    class FieldsModel(models.PrimitiveModel):
        def __init__(self, manager: Any, fields: Any) -> None:
            super().__init__(manager, fields, ir.IntType(64).as_pointer())

    @infer_getattr
    class FieldsTemplate(AttributeTemplate):
        key = FieldsType

        def generic_resolve(self, _fields: Any, name: str) -> Any:
            return types.int64 if name in kind._fields else None

    @lower_getattr_generic(FieldsType)
    def field(context: Any, builder: Any, _fields: Any, pointer: Any, name: str) -> Any:
        place = context.get_constant(types.intp, start + kind._fields.index(name))
        return builder.load(builder.gep(pointer, [place]))

    @intrinsic
    def read(_context: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.make_array(signature.args[0])(context, builder, arguments[0]).data

        return fields_type(array), codegen

    return cast("Callable[[NDArray[np.int64]], Record]", read)
