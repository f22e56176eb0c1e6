"""Checks of saved counters and arrays. Compiled steps check no bounds, so that invalid ones must not reach them.

A checksum detects damage, but not forged files. Each function raises ValueError, which the reader of state files
converts to `UnreadableState`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.core import CONSTANTS, layout
from deferkit.periods import LATEST

Arrays = Mapping[str, NDArray[Any]]
Ints = NDArray[np.int64]

OPEN: int = CONSTANTS["open"]
MAX_COUNT = 1 << 53  # the limit of whole numbers in arguments as well
NEVER = 1 << 62  # the count of a retraining or refit that is not scheduled
LARGEST = {  # of counters
    "price_due": 1,
    "horizon_told": 1,
    "spending_told": 1,
    "unsettled": 1,
    "link_state": CONSTANTS["link_switched"],
    "n_in_ranks": CONSTANTS["ranked_contexts"],
}
INT_RANGES = {  # least and largest value; the range of `route` depends on the sizes
    "n_routed": (0, MAX_COUNT),
    "shares_design": (0, 1),
    "n_observed": (0, MAX_COUNT),
    "next_refit": (1, NEVER),
    "n_stashed": (0, layout.STASH - 1),
    "n_absorbed": (0, MAX_COUNT),
    "drifted": (0, 1),
    "drift_told": (0, 1),
    "n_drifts": (0, MAX_COUNT),
    "drift_at": (0, MAX_COUNT),
    "learned_as": (0, MAX_COUNT),
    "change_at": (0, MAX_COUNT),
    "drift_since": (0, MAX_COUNT),
    "drift_resumes": (0, MAX_COUNT),
    "rank_count": (0, CONSTANTS["ranked_contexts"]),
    "status": (0, CONSTANTS["expired"]),
    "announced": (0, 1),
}
FINITE = (
    *("spent", "reserved", "overrun", "uncovered", "largest_cost", "cost_sum", "cost_n", "held", "dual"),
    *("member_samples", "forecast_error", "at", "clock", "expected", "pending_cost", "allowance", "spent_before"),
    *("bin_length", "arrivals", "past_arrivals", "past_periods"),
    *("evidence", "change_score", "change_sums", "drift_sums", "rank_table"),
)
NOT_NEGATIVE = (
    *("total", "spent", "reserved", "overrun", "held", "member_samples", "forecast_error", "expected", "pending_cost"),
    *("allowance", "bin_length", "arrivals", "past_arrivals", "past_periods", "uncovered"),
    *("cost_n", "largest_cost", "squared_error", "reward_power", "context_power", "past_width"),
)
NEVER_CHANGE = (
    *("view", "max_cost", "member_prior", "forget_every", "keep"),
    *("timing", "carry", "hold_fixed", "hold_means", "limit"),
)
MOST = {  # absolute values, beyond what a learner reaches: estimates of contexts up to 1e50 stay finite with them
    **dict.fromkeys(("moment", "precision", "rounding", "squared_error", "reward_power", "context_power"), 1e120),
    **dict.fromkeys(("context", "stash", "past_width", "reward", "cost"), 1e75),
    "theta": 1e90,
    "inverse": 1e40,
}
MAX_ROUNDING, MIN_EIGENVALUE = 1e-9, -1e-8  # of a precision matrix, relative to its diagonal
WEIGHT_ROUNDING = 1e-9  # tolerance of the sum of the weights of a target, which is 1


def check_counters(counters: Mapping[str, object], names: Sequence[str]) -> None:
    """Raise unless every counter is a whole number within its range."""
    for name in names:
        largest = LARGEST.get(name, NEVER if name == "retrain_at" else MAX_COUNT)
        value = counters[name]
        if type(value) is not int or not 0 <= value <= largest:
            raise ValueError(f"the counter {name!r} is {value!r}")


def check_shapes(found: Arrays, wanted: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str] | None = None) -> None:
    """Raise unless every array has its shape and kind: "f" for floats, which is the default, or "i"."""
    for name, shape in wanted.items():
        kind = "f" if kinds is None else kinds[name]
        if found[name].shape != shape or found[name].dtype.kind != kind:
            raise ValueError(f"the array {name!r} is {found[name].dtype} {list(found[name].shape)}, not {list(shape)}")


def check_finite(found: Arrays, names: Sequence[str], *, missing: bool = False) -> None:
    """Raise if a number is infinite, or NaN unless `missing` values are allowed."""
    for name in names:
        if not (np.isfinite(found[name]) | (missing & np.isnan(found[name]))).all():
            raise ValueError(f"the array {name!r} is not finite")


def count_of(array: NDArray[Any]) -> int:
    """Return a count that is saved as an array of one number; raise if it is none."""
    if array.shape != (1,) or not 0 <= array[0] <= MAX_COUNT or array[0] % 1:
        raise ValueError(f"a count is {array.tolist()}")
    return int(array[0])


def join_parts(parts: Mapping[str, Arrays]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all parts, with the name of the part before their own.

    >>> join_parts({"past": {"x": np.zeros(1)}})
    {'past x': array([0.])}
    """
    return {f"{part} {name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def part_of(saved: Arrays, part: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of one part from `join_parts`, by their own names."""
    return {name[len(part) + 1 :]: array for name, array in saved.items() if name.startswith(f"{part} ")}


def check_sizes(saved: Arrays, sizes: Mapping[str, int]) -> None:
    """Raise unless the arrays of a learner have these sizes, with any number of overflow rows."""
    overflow = len(saved["route"]) - sizes["memory"]
    if overflow < 0:
        raise ValueError(f"there are {len(saved['route'])} decisions, not {sizes['memory']}")
    shapes = layout.shapes({**sizes, "stride": sizes["n_features"], "overflow": overflow})  # saved without padding
    kinds = {array.name: "f" if array.kind == "double" else "i" for array in layout.STATE}
    check_shapes(saved, {name: shapes[name] for name in kinds}, kinds)


def check_values(saved: Arrays, fresh: Arrays) -> None:
    """Raise unless arrays of the right sizes are reachable from those of a new learner with the same settings."""
    ranges = INT_RANGES | {"route": (0, len(fresh["n_routed"]) - 1)}
    for name, (least, largest) in ranges.items():
        if saved[name].size and not least <= saved[name].min() <= saved[name].max() <= largest:
            raise ValueError(f"the array {name!r} is not within {least} and {largest}")
    for name in NEVER_CHANGE:
        if not np.array_equal(saved[name], fresh[name], equal_nan=saved[name].dtype.kind == "f"):
            raise ValueError(f"the array {name!r} contradicts the settings")
    if not np.allclose(saved["pacing_constant"], fresh["pacing_constant"], rtol=1e-9, atol=0.0):
        raise ValueError("the array 'pacing_constant' contradicts the settings")
    check_finite(saved, FINITE)
    for name in NOT_NEGATIVE:
        if not (saved[name] >= 0.0).all():
            raise ValueError(f"the array {name!r} is not at least 0")
    check_estimates(saved, fresh)
    weights = saved["member_weight"]
    if not (weights >= 0.0).all() or not (np.abs(weights.sum(axis=1) - 1.0) <= WEIGHT_ROUNDING).all():
        raise ValueError("the weights of the members do not add up to 1")
    if (saved["shares_design"] > fresh["shares_design"]).any():
        raise ValueError("costs share the design of a reward whose samples have other weights")
    if (np.isinf(saved["total"]) != np.isinf(fresh["total"])).any():
        raise ValueError("a finite budget has become infinite, or an infinite one finite")
    check_periods(saved, fresh)
    if (saved["uncovered"] > saved["overrun"]).any():
        raise ValueError("more of an overrun is to be covered than there is")
    if (saved["route"][saved["status"] == OPEN] == 0).any():
        raise ValueError("a decision of the model holds budget")


def check_estimates(saved: Arrays, fresh: Arrays) -> None:
    """Raise unless the numbers of estimates are finite, and precisions positive definite except for rounding."""
    unit = max(1.0, *(float(fresh[name].max(initial=0.0)) for name in ("inverse", "precision")))  # a ridge of any size
    for name, most in MOST.items():
        values = np.nan_to_num(saved[name]) if name in ("reward", "cost") else saved[name]
        if not (np.abs(values) <= most * unit).all():
            raise ValueError(f"the array {name!r} has numbers that no learner reaches")
    for precision, rounding in zip(saved["precision"], saved["rounding"], strict=True):
        diagonal = precision.diagonal()
        roots = np.sqrt(np.maximum(diagonal, 0.0))
        if (diagonal <= 0.0).any() or (np.abs(rounding) > MAX_ROUNDING * np.outer(roots, roots)).any():
            raise ValueError("a precision matrix has no positive diagonal, or a rounding error larger than itself")
        np.linalg.cholesky(precision / np.outer(roots, roots) - MIN_EIGENVALUE * len(roots) * np.eye(len(roots)))


def check_periods(saved: Arrays, fresh: Arrays) -> None:
    """Raise unless horizons are whole numbers, and every period that has begun ends after its start."""
    horizon = saved["horizon"]
    if (np.isinf(horizon) != np.isinf(fresh["horizon"])).any() or not (horizon >= 1.0).all():
        raise ValueError("a horizon is out of range, or contradicts the settings")
    timed, start, end = saved["timing"] != CONSTANTS["horizon"], saved["period_start"], saved["period_end"]
    if np.isinf(start).any() or np.isinf(end).any() or not np.isnan(end[~timed]).all():
        raise ValueError("a period is infinite, or that of a budget with a horizon")
    begun = ~np.isnan(start[:, 0])
    if not (start[begun, 0] < end[begun]).all() or not (saved["bin_length"][begun] > 0.0).all():
        raise ValueError("a period ends before it starts")
    for later, earlier in ((0, 1), (1, 2)):
        if (start[:, earlier] >= start[:, later]).any() or (
            np.isnan(start[:, later]) & ~np.isnan(start[:, earlier])
        ).any():
            raise ValueError("a period starts before the one before it")
    # a number of bins that is too large for an integer would be read as a negative index
    if not (np.nan_to_num(np.abs(start)) <= LATEST).all() or not (np.nan_to_num(np.abs(end)) <= LATEST).all():
        raise ValueError("a period is beyond the calendar")
    if not (saved["at"] <= LATEST).all() or not (saved["clock"] <= LATEST).all():
        raise ValueError("a decision is beyond the calendar")


def check_times(at: NDArray[Any], clock: float, memory: int, next_id: int) -> None:
    """Raise unless the times of remembered decisions never decrease: samples of past periods are searched in them."""
    times = at[np.arange(max(0, next_id - memory), next_id) % memory]
    if (np.diff(times) < 0.0).any() or (times > max(clock, 0.0)).any():  # 0 where tasks have no time
        raise ValueError("the times of decisions are not in order")


def check_overflow(overflow: NDArray[Any], status: Ints, memory: int, next_id: int) -> None:
    """Raise unless the overflow rows are those of older decisions that hold budget, each in a row of its own."""
    if overflow.dtype.kind != "i" or overflow.ndim != 2 or overflow.shape[1] != 2:
        raise ValueError("the older decisions are not pairs of a decision and its row")
    decisions, rows = overflow.T
    for name, numbers, least, end in (("decision", decisions, 0, next_id), ("row", rows, memory, len(status))):
        if len(np.unique(numbers)) < len(numbers) or ((numbers < least) | (numbers >= end)).any():
            raise ValueError(f"a {name} of the older decisions is out of range, or there twice")
    if not np.array_equal(np.flatnonzero(status[memory:] == OPEN) + memory, np.sort(rows)):
        raise ValueError("the older decisions are not those that hold budget")


def check_samples(samples: NDArray[Any], n_observed: Ints, next_refit: Ints, n_features: int, limit: int) -> None:
    """Raise unless all samples that coming refits will read are stored."""
    if (next_refit <= n_observed).any() or ((next_refit > limit) & (next_refit < MAX_COUNT)).any():
        raise ValueError("a refit is overdue, or comes after the last sample that is stored")
    needed = 0 if n_observed.min() >= limit else min(int(n_observed.max()), limit)
    if samples.size == 0 and needed == 0:
        return
    if samples.dtype.kind != "f" or samples.ndim != 3 or samples.shape[::2] != (len(n_observed), n_features + 1):
        raise ValueError(f"the samples for refits have the shape {list(samples.shape)}")
    if samples.shape[1] < needed:
        raise ValueError(f"there are {samples.shape[1]} samples for refits, not {needed}")
