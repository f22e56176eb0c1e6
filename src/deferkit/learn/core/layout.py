"""Every field of a learner's state, declared once for Python and for the compiled core.

`setup.py` writes the C structs (`state.pxd`) from these tables, and `core/__init__.py` checks at import, field by
field, that the extension module was built from the same ones. Only the standard library is imported here, because the
build reads this file before anything is installed.
"""

import math
from typing import NamedTuple

N_LANES = 4  # doubles that the kernels handle at a time; `kernels.h` has the same number
STASH = 16  # contexts that wait to be added to a precision matrix together; `kernels.h` has the same number


class Scalar(NamedTuple):
    """One number: its name and its meaning."""

    name: str
    meaning: str


class Array(NamedTuple):
    """An array: its name, C type, shape in the letters of `shapes`, and meaning."""

    name: str
    kind: str
    shape: str
    meaning: str


SIZES = (
    Scalar("n_features", "d, the length of the vector that an estimate looks at"),
    Scalar("stride", "d, filled up with zeros to whole lanes"),
    Scalar("n_experts", "K"),
    Scalar("n_resources", "R"),
    Scalar("n_targets", "G = 1 + K + K·R: rewards of the deciders, then costs by expert and resource"),
    Scalar("n_members", "N, estimates of each target, which forget at different rates; 1 where nothing is forgotten"),
    Scalar("n_lasting", "how many of them forget nothing: the first ones, one for each view"),
    Scalar("n_views", "V, vectors that a context consists of; 1 without an embedding"),
    Scalar("memory", "decisions that are remembered: the length of the ring"),
    Scalar("overflow", "rows behind the ring for older decisions that still hold budget"),
    Scalar("window", "contexts that the pacing looks back at: whole lanes, so up to three more than asked for"),
    Scalar("n_dual", "numbers that the pacing keeps: the prices first"),
    Scalar("n_pacing", "constants of the pacing"),
)

OPTIONS = (
    Scalar("reward_link", "code of the link, see links.pxd"),
    Scalar("cost_link", "code of the link"),
    Scalar("pacing", "code of the pacing, see pacing.pxd"),
    Scalar("refit", "when an estimate is refitted exactly, see refit.pxd"),
    Scalar("refit_limit", "samples up to which an estimate is refitted"),
    Scalar("printed_costs", "1: optimistic costs exactly as printed in the paper"),
    Scalar("fisher", "1: samples reweight_members μ'; 0: they reweight_members 1, as in the paper's M"),
    Scalar("one_index", "1: price and decision use one index (index.pxd); 0: ends of intervals and prices on means"),
    Scalar("sampled", "1: values are drawn around the estimates (Thompson sampling)"),
    Scalar("frozen", "1: estimates and designs change only when an embedding is retrained"),
    Scalar("key", "of the random stream"),
)

COUNTERS = (
    Scalar("warm_up", "decisions taken at random at the start"),
    Scalar("next_id", "number of the next decision"),
    Scalar("slot", "row of the ring for the next decision: next_id modulo memory"),
    Scalar("price_due", "1: the price has not yet moved for the last decision"),
    Scalar("n_model_seen", "tasks that the model decided whose model reward became known"),
    Scalar("n_model_due", "tasks that the model decided before `heard_to`"),
    Scalar("heard_to", "number of the latest decision of which anything became known, and 1"),
    Scalar("n_forced", "decisions that the caller prescribed"),
    Scalar("n_no_budget", "decisions that went to the model because no budget was left"),
    Scalar("n_expired", "decisions that expired"),
    Scalar("horizon_told", "1: the end of the horizon was announced"),
    Scalar("unsettled", "1: the encoder's scales are not settled yet, so nothing is learned"),
    Scalar("n_seen", "observations that brought something new"),
    Scalar("retrain_at", "how many of those bring the next retraining of an embedding"),
    Scalar("capacity", "samples for exact refits that there is room for, for each refitted estimate"),
    Scalar("repair_due", "1: a design has drifted or a refit is due"),
)

PARAMETERS = (
    Scalar("ridge", "λ of the ridge"),
    Scalar("scale", "width of an interval in units of the noise"),
    Scalar("noise", "σ; NaN: estimated"),
    Scalar("delta", "δ of the printed β(t); NaN: the width does not grow with t"),
    Scalar("kappa", "κ of the printed β(t)"),
    Scalar("floor", "share of decisions taken at random for later evaluation"),
    Scalar("prior", "size of an unknown parameter, in units of the root mean square reward"),
    Scalar("least_reward", "that there can be"),
    Scalar("largest_reward", "that there can be"),
)

STATE = (
    Array("total", "double", "R", "budget"),
    Array("horizon", "double", "R", "tasks that the budget is to last for"),
    Array("max_cost", "double", "R", "NaN: none was promised"),
    Array("spent", "double", "R", ""),
    Array("reserved", "double", "R", ""),
    Array("overrun", "double", "R", "cost that did not fit the budget"),
    Array("largest_cost", "double", "R", "seen so far"),
    Array("cost_sum", "double", "R", "of all costs seen"),
    Array("cost_n", "double", "R", "number of costs seen"),
    Array("owed", "double", "R", "expected cost of the last decision"),
    Array("dual", "double", "D", "prices, then what the pacing remembers"),
    Array("pacing_constant", "double", "P", "of the pacing"),
    Array("n_routed", "Int", "A", "decisions by decider"),
    Array("member_prior", "double", "N", "weight of a member before anything was seen"),
    Array("forget_every", "Int", "N", "samples of a design after which a member forgets; 0: never"),
    Array("keep", "double", "N", "what a member multiplies its past with when it forgets"),
    Array("member_weight", "double", "G N", "of each member in the estimate of a target; they add up to 1"),
    Array("member_samples", "double", "E", "samples that a member still knows: discounted as it forgets"),
    Array("forecast_error", "double", "G", "Σ of squared errors of the mixture, each before its sample was learned"),
    Array("drift_told", "Int", "G", "1: the drift of a target was reported and is not over"),
    Array("n_drifts", "Int", "G", "drifts that were reported"),
    Array("drift_at", "Int", "G", "number of the decision that would have come next when the last one was reported"),
    Array("drift_strength", "double", "G", "share of the samples of a target that was given up then"),
    Array("view", "Int", "E", "which vector of a context an estimate looks at"),
    Array("shares_design", "Int", "K", "1: costs of this expert use the design of its reward"),
    Array("theta", "double", "E d", "coefficients"),
    Array("moment", "double", "E d", "Σ y·x"),
    Array("squared_error", "double", "G", "Σ of squared, scaled prediction errors"),
    Array("n_observed", "Int", "G", "samples of a target"),
    Array("next_refit", "Int", "G", "how many samples bring the next exact refit"),
    Array("reward_power", "double", "2", "Σ y² of all rewards, and their number"),
    Array("context_power", "double", "2", "Σ ‖x‖² of all decisions, and their number"),
    Array("inverse", "double", "E d d", "of the precision matrix, including the stashed contexts"),
    Array("precision", "double", "E d d", "its lower half, without the stashed contexts"),
    Array("rounding", "double", "E d d", "what the precision has lost to rounding (Kahan)"),
    Array("stash", "double", "E S d", "contexts that wait to be added to the precision"),
    Array("n_stashed", "Int", "E", ""),
    Array("n_absorbed", "Int", "E", "samples of a design"),
    Array("drifted", "Int", "E", "1: the inverse is to be computed anew"),
    Array("context", "double", "M V d", "of each remembered decision"),
    Array("past_width", "double", "M A", "√(xᵀH⁻¹x·(samples + d)) of each reward at the time"),
    Array("learned_as", "Int", "M B", "which sample of its design each reward, and the cost, was; 0: not learned"),
    Array("held", "double", "M R", "reserved for it"),
    Array("reward", "double", "M A", "NaN: not known"),
    Array("cost", "double", "M R", "NaN: not known"),
    Array("route", "Int", "M", "0: the model"),
    Array("status", "Int", "M", "see accounting.pxd"),
)

SCRATCH = (
    Array("x", "double", "V d", "the context at hand"),
    Array("product", "double", "E d", "inverse · x"),
    Array("spread", "double", "E", "xᵀ · inverse · x"),
    Array("predictor", "double", "E", "xᵀθ"),
    Array("mixed_predictor", "double", "G", "xᵀθ, averaged over the members"),
    Array("mixed_theta", "double", "G d", "θ, averaged over the members"),
    Array("estimate", "double", "G", "μ of the mixed predictor"),
    Array("width", "double", "G", "half-width, on the scale of the predictor"),
    Array("optimistic", "double", "G", "end of the interval, or the value drawn from it"),
    Array("member_loss", "double", "N", "squared error of each member for the sample at hand"),
    Array("known_cost", "double", "K R", "costs known beforehand; NaN: not known"),
    Array("hold", "double", "K R", "what would be reserved for each expert"),
    Array("next_dual", "double", "D", "the dual as it will be when this decision is committed"),
    Array("proposed_cost", "double", "R", "expected cost of the proposed route"),
    Array("proposed_hold", "double", "R", "what the proposed route reserves"),
    Array("decision_cost", "double", "R", "cost of one expert, as a decision tells it"),
    Array("decision_cost_width", "double", "R", "the width of that cost"),
    Array("new_reward", "double", "A", "what is being observed; NaN: nothing"),
    Array("new_cost", "double", "R", "what is being observed; NaN: nothing"),
    Array("window_predictor", "double", "G", "xᵀθ of a context in the window"),
    Array("window_factor", "double", "A", "what past widths are multiplied by"),
    Array("window_gain", "double", "K W", "expected reward above the model's, of each context in the window"),
    Array("window_cost", "double", "K R W", "expected cost of each context in the window"),
    Array("weighted_x", "double", "d", "a context times the root of its weight"),
    Array("factor", "double", "d d", "Cholesky factor"),
    Array("work", "double", "2 d", ""),
)

STRUCTS = {"Sizes": SIZES, "Options": OPTIONS, "Counters": COUNTERS, "Parameters": PARAMETERS}
ARRAYS = STATE + SCRATCH


def whole_lanes(n: int) -> int:
    """Return n, rounded up to whole lanes.

    >>> whole_lanes(20), whole_lanes(21)
    (20, 24)
    """
    return -(-n // N_LANES) * N_LANES


def shapes(size: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array for these sizes; the last axis of vectors and matrices is filled up."""
    k, r = size["n_experts"], size["n_resources"]
    letters = {"d": size["stride"], "K": k, "R": r, "A": k + 1, "G": size["n_targets"], "S": STASH}
    letters |= {"N": size["n_members"], "E": size["n_members"] * size["n_targets"], "B": k + 2}
    letters |= {"V": size["n_views"], "M": size["memory"] + size["overflow"], "W": size["window"]}
    letters |= {"D": size["n_dual"], "P": size["n_pacing"]}
    return {a.name: tuple(letters[s] if s in letters else int(s) for s in a.shape.split()) for a in ARRAYS}


def fields() -> list[str]:
    """Return every field with its type, in the order of the structs: what the build and the import compare.

    >>> fields()[0], fields()[-1]
    ('Sizes.n_features', 'State.work double 2 d')
    """
    scalars = [f"{struct}.{scalar.name}" for struct, table in STRUCTS.items() for scalar in table]
    return scalars + [f"State.{a.name} {a.kind} {a.shape}" for a in ARRAYS]


def struct_source() -> str:
    """Return the text of `state.pxd`."""
    lines = ["# Written by setup.py from layout.py.", "from libc.stdint cimport int64_t", "", "ctypedef int64_t Int"]
    for struct, table in STRUCTS.items():
        kind = "double" if struct == "Parameters" else "Int"
        lines += ["", f"cdef struct {struct}:"]
        lines += [f"    {kind} {scalar.name}  # {scalar.meaning}" for scalar in table]
    lines += ["", "cdef struct Arrays:"]
    lines += [f"    {a.kind} *{a.name}  # [{a.shape}] {a.meaning}".rstrip() for a in ARRAYS]
    lines += ["", "cdef struct State:"]
    lines += [f"    {struct} *{struct.lower()}" for struct in STRUCTS]
    lines += ["    Arrays arrays", "    double *samples  # of estimates that are refitted exactly, see refit.pxd", ""]
    names = ", ".join(repr(field) for field in fields())
    return "\n".join([*lines, f"cdef inline tuple built_fields():\n    return ({names},)", ""])


def size_of(shape: tuple[int, ...]) -> int:
    """Return how many numbers an array of this shape has."""
    return math.prod(shape)
