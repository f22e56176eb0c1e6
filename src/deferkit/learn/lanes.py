"""Four numbers at a time, spelled out: the vector instructions that the inner loops are written in.

Left to itself the compiler vectorises a loop as it finds best in that place, and sums in whatever order comes
with it, so that the same step could give another last bit in the bulk loop than in the one-at-a-time call.
With the lanes spelled out, and every multiply-add rounded once (IEEE fma), the result is fixed by the source.

Each function here exists in compiled code only.
"""

from typing import Any, TypeAlias

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

N_LANES = 4
VECTOR = ir.VectorType(ir.DoubleType(), N_LANES)

Lanes: TypeAlias = Any  # of four doubles; there is no such value outside of compiled code


class LanesType(types.Type):
    """The type of four doubles in a vector register."""

    def __init__(self) -> None:
        super().__init__(name="lanes")


lanes = LanesType()


@register_model(LanesType)
class LanesModel(models.PrimitiveModel):
    """Lanes are kept as an LLVM vector."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, place: Any) -> Any:
    flat = context.make_array(array_type)(context, builder, array)
    return builder.bitcast(builder.gep(flat.data, [place]), VECTOR.as_pointer())


def _fma(builder: Any, kind: Any, name: str, x: Any, y: Any, z: Any) -> Any:
    signature = ir.FunctionType(kind, [kind, kind, kind])
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, [x, y, z])


@intrinsic
def load(_context: Any, flat: Any, place: Any) -> Any:
    """Return four numbers of a flat array, from this place on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *arguments), align=8)

    return lanes(flat, place), codegen


@intrinsic
def store(_context: Any, flat: Any, place: Any, value: Any) -> Any:
    """Write four numbers to a flat array, from this place on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(flat, place, value), codegen


@intrinsic
def spread_out(_context: Any, number: Any) -> Any:
    """Return one number in all lanes."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), arguments[0], ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), N_LANES), [0] * N_LANES)
        return builder.shuffle_vector(first, ir.Constant(VECTOR, ir.Undefined), mask)

    return lanes(types.float64), codegen


@intrinsic
def multiply_add(_context: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x·y + z in each lane, rounded once."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return _fma(builder, VECTOR, "llvm.fma.v4f64", *arguments)

    return lanes(x, y, z), codegen


@intrinsic
def add(_context: Any, x: Any, y: Any) -> Any:
    """Return x + y in each lane."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return lanes(x, y), codegen


@intrinsic
def subtract(_context: Any, x: Any, y: Any) -> Any:
    """Return x − y in each lane."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return lanes(x, y), codegen


@intrinsic
def where_greater(_context: Any, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    """Return `then` in the lanes where x > y, else `otherwise`."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        greater = builder.fcmp_ordered(">", arguments[0], arguments[1])
        return builder.select(greater, arguments[2], arguments[3])

    return lanes(x, y, then, otherwise), codegen


@intrinsic
def total(_context: Any, value: Any) -> Any:
    """Return the sum over the lanes: (first + third) + (second + fourth)."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        nothing = ir.Constant(VECTOR, ir.Undefined)
        pair = ir.VectorType(ir.IntType(32), 2)
        low = builder.shuffle_vector(arguments[0], nothing, ir.Constant(pair, [0, 1]))
        high = builder.shuffle_vector(arguments[0], nothing, ir.Constant(pair, [2, 3]))
        sums = builder.fadd(low, high)
        return builder.fadd(*(builder.extract_element(sums, ir.IntType(32)(i)) for i in range(2)))

    return types.float64(value), codegen
