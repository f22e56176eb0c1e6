"""The numeric state of a learner: one float buffer, one int buffer, and where things lie in them.

Everything that a compiled step reads or writes lies in two flat arrays. Handing fifty arrays to compiled code one
by one would take many times as long as the step itself, and offsets into a flat array compile in seconds where
views take minutes. `At` is the only place that says what there is. Python and
the compiled steps read it alike. What lies behind `At.scratch` carries nothing from one call to the next.
"""

import functools
import math
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.compiled import field_reader
from deferkit.learn.lanes import N_LANES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The head of the int buffer: sizes and switches, fixed for the life of a learner but for the overflow …
N_FEATURES = 0
N_EXPERTS = 1
N_RESOURCES = 2
MEMORY = 3  # decisions that are remembered: the length of the ring
OVERFLOW = 4  # places behind the ring for older decisions that still hold budget
WINDOW = 5  # contexts that the re-solved price looks at
REWARD_LINK = 6
COST_LINK = 7
PACING = 8
EVERY = 9  # decisions between two re-solved prices
REFIT = 10
REFIT_LIMIT = 11  # samples up to which an estimate is refitted
PRINTED_COSTS = 12  # 1: optimistic costs exactly as printed in the paper
FISHER = 13  # 1: samples weigh μ'; 0: they weigh 1, as in the paper's M
WARM_UP = 14  # decisions taken at random at the start
# … then counters …
NEXT_ID = 15
OWED = 16  # 1: the price has not yet moved for the last decision
KEY = 17  # of the random stream
N_FORCED = 18
N_BUDGET = 19  # decisions that went to the model because no budget was left
N_EXPIRED = 20
HORIZON_TOLD = 21  # 1: the end of the horizon was announced
ENCODING = 22  # 1: the encoder's scales are not settled yet, so nothing is learned
CAPACITY = 23  # samples that the store for exact refits has room for, for each estimate
MEND = 24  # 1: an inverse has drifted or a refit is due; `mend` comes before the next step
SLOT = 25  # where the next decision goes in the ring: its number modulo the memory
STRIDE = 26  # the number of features, filled up with zeros to whole lanes
SAMPLED = 27  # 1: values are drawn around the estimates (Thompson sampling) instead of taken at the optimistic end
N_VIEWS = 28  # vectors that a context is made of; without an embedding one, which all estimates look at
N_SEEN = 29  # observations that brought something new
RETRAIN_AT = 30  # how many of those bring the next retraining of an embedding
FROZEN = 31  # 1: estimates and designs change at a retraining only
# … then the offsets of `At`.
HEAD = 32

# The head of the float buffer.
RIDGE = 0
SCALE = 1  # width in units of the noise
NOISE = 2  # NaN: estimated
DELTA = 3  # NaN: the width does not grow with t
KAPPA = 4
FLOOR = 5  # share of decisions taken at random for later evaluation
STEP = 6  # of the adaptive price
PRIOR = 7  # size of a parameter that nothing is known of, in units of the root mean square reward
DISCOUNT = 8  # weight of the past at each new sample; 1 until forgetting is built
N_SETTING = 16

ALIGNMENT = 8  # doubles, that is one cache line: a store across two of them takes twice as long
STASH = 16  # contexts that wait to be added to a precision together


class At(NamedTuple):
    """Offsets. K experts, A = K + 1 deciders, R resources, G = A + K·R estimates, M decisions remembered, V views.

    The note at each field is its buffer and shape. Estimates are the rewards of the deciders, then the costs
    [K, R]. Each has a *design* of its own (a precision and its inverse), though it may not use it: see `follows`.
    """

    sees: Annotated[int, "int G"]  # where in a context the vector lies that an estimate looks at
    follows: Annotated[int, "int K"]  # 1: costs of this expert share the design of its rewards
    n_stashed: Annotated[int, "int G"]
    drifted: Annotated[int, "int G"]  # 1: the inverse of this design is to be refactored
    n_absorbed: Annotated[int, "int G"]  # samples in a design
    n_observed: Annotated[int, "int G"]  # samples in an estimate
    next_refit: Annotated[int, "int G"]  # how many samples bring the next exact refit
    n_routed: Annotated[int, "int A"]
    route: Annotated[int, "int M"]
    status: Annotated[int, "int M"]

    total: Annotated[int, "float R"]
    horizon: Annotated[int, "float R"]
    max_cost: Annotated[int, "float R"]  # NaN: none was promised
    spent: Annotated[int, "float R"]
    reserved: Annotated[int, "float R"]
    overrun: Annotated[int, "float R"]
    largest: Annotated[int, "float R"]  # cost seen so far
    cost_sum: Annotated[int, "float R"]
    cost_n: Annotated[int, "float R"]
    owed: Annotated[int, "float R"]  # what the last decision is expected to cost
    log_up: Annotated[int, "float R"]  # log(1 + ε) of the exponentiated gradient
    log_down: Annotated[int, "float R"]  # log(1 − ε)
    price: Annotated[int, "float R"]
    log_weight: Annotated[int, "float R"]
    squares: Annotated[int, "float R"]
    next_solve: Annotated[int, "float 1"]
    inverse: Annotated[int, "float G d d"]
    precision: Annotated[int, "float G d d"]  # its lower half, without the stashed contexts
    rounding: Annotated[int, "float G d d"]  # what the precision has lost to rounding
    stash: Annotated[int, "float G S d"]
    theta: Annotated[int, "float G d"]
    moment: Annotated[int, "float G d"]  # Σ y·x
    power: Annotated[int, "float 2"]  # Σ y² of all rewards, and their number
    misfit: Annotated[int, "float G"]  # Σ of squared, scaled prediction errors
    context: Annotated[int, "float M V d"]
    held: Annotated[int, "float M R"]  # what is reserved for it
    reward: Annotated[int, "float M A"]  # NaN: not known
    cost: Annotated[int, "float M R"]  # NaN: not known

    scratch: Annotated[int, "float 0"]
    x: Annotated[int, "float V d"]
    x_other: Annotated[int, "float d"]
    product: Annotated[int, "float G d"]  # inverse · x
    spread: Annotated[int, "float G"]  # xᵀ · inverse · x
    predictor: Annotated[int, "float G"]  # xᵀθ
    predictor_other: Annotated[int, "float G"]  # of a context in the window
    estimate: Annotated[int, "float G"]  # μ(xᵀθ)
    width: Annotated[int, "float G"]  # half-width, on the scale of the predictor
    optimistic: Annotated[int, "float G"]
    hold: Annotated[int, "float K R"]  # what would be reserved for each expert
    known: Annotated[int, "float K R"]  # costs known beforehand; NaN: not known
    new_reward: Annotated[int, "float A"]
    new_cost: Annotated[int, "float R"]
    peek: Annotated[int, "float D"]  # the price and its memory, as they would be
    factor: Annotated[int, "float d d"]
    work: Annotated[int, "float 2 d"]
    gain: Annotated[int, "float K W"]
    use: Annotated[int, "float K R W"]


NAMES = At._fields
N_PLACES = len(NAMES)
FIRST_INT = HEAD + N_PLACES
NOTES = {name: hint.__metadata__[0] for name, hint in get_type_hints(At, include_extras=True).items()}


places = field_reader(At, HEAD)
"""Return the offsets, which stand in the int buffer behind its head."""


SIZES = [STRIDE, N_EXPERTS, N_RESOURCES, N_VIEWS, MEMORY, OVERFLOW, WINDOW]


def shapes(head: Ints) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the buffer and the shape of everything in `At`, for the sizes in this head."""
    return shapes_for(*head[SIZES].tolist())


@functools.lru_cache(maxsize=256)
def shapes_for(
    stride: int, k: int, r: int, views: int, memory: int, overflow: int, window: int
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the buffer and the shape of everything in `At`, for these sizes."""
    letters = {"d": stride, "K": k, "R": r, "A": k + 1, "G": 1 + k + k * r, "S": STASH, "V": views}
    letters |= {"M": memory + overflow, "W": window, "D": 3 * r + 1}
    result = {}
    for name, note in NOTES.items():
        buffer, *dims = note.split()
        result[name] = (buffer, tuple(letters[s] if s in letters else int(s) for s in dims))
    return result


def whole_lanes(n: int) -> int:
    """Return n, rounded up to whole lanes.

    >>> whole_lanes(20), whole_lanes(21)
    (20, 24)
    """
    return -(-n // N_LANES) * N_LANES


def aligned(n: int) -> Floats:
    """Return n zeros that start at a cache line."""
    raw = np.zeros(n + ALIGNMENT)
    start = -(raw.ctypes.data // 8) % ALIGNMENT
    return raw[start : start + n]


def allocate(head: Ints) -> tuple[Floats, Ints]:
    """Return zeroed buffers for the sizes in this head, with head and offsets written."""
    end = {"float": N_SETTING, "int": FIRST_INT}
    offsets = []
    for name, (buffer, shape) in shapes(head).items():
        if len(shape) > 1 or name in ("x", "x_other"):
            end[buffer] = -(-end[buffer] // ALIGNMENT) * ALIGNMENT
        offsets.append(end[buffer])
        end[buffer] += math.prod(shape)
    floats = aligned(end["float"])
    ints = np.zeros(end["int"], dtype=np.int64)
    ints[:HEAD] = head[:HEAD]
    ints[HEAD:FIRST_INT] = offsets
    return floats, ints


def view(floats: Floats, ints: Ints, name: str) -> NDArray[Any]:
    """Return what is called this in `At`, without filling, as an array that shares memory with its buffer."""
    buffer, shape = shapes(ints)[name]
    start = int(ints[HEAD + NAMES.index(name)])
    flat = floats if buffer == "float" else ints
    whole = flat[start : start + math.prod(shape)].reshape(shape)
    features = slice(0, int(ints[N_FEATURES]))
    return whole[tuple(features if s == "d" else slice(None) for s in NOTES[name].split()[1:])]


def state_length(ints: Ints) -> int:
    """Return how much of the float buffer is state; what follows is scratch."""
    return int(ints[HEAD + NAMES.index("scratch")])
