"""State files of version 3, whose budgets all had a horizon, converted to version 4."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.core import CONSTANTS
from deferkit.learn.core.layout import STATE
from deferkit.periods import START_OF_TIME

Arrays = dict[str, NDArray[Any]]

NEW_BY_RESOURCE = (
    *("timing", "allowance", "carry", "period_start", "period_end", "spent_before", "bin_length"),
    *("arrivals", "past_arrivals", "past_periods", "hold_fixed", "hold_means", "limit", "pending_cost"),
)
NOT_GIVEN = ("period_start", "period_end", "hold_fixed", "hold_means", "limit")  # NaN in a budget with a horizon


def convert(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 4: no period, and holds as they were."""
    resources, rows = len(arrays["total"]), len(arrays["route"])
    declared = {each.name: each for each in STATE}
    added: Arrays = {}
    for name in NEW_BY_RESOURCE:
        shape = (resources, *(int(size) for size in declared[name].shape.split()[1:]))
        kind = np.float64 if declared[name].kind == "double" else np.int64
        added[name] = np.full(shape, np.nan) if name in NOT_GIVEN else np.zeros(shape, dtype=kind)
    added |= {"clock": np.array([START_OF_TIME]), "at": np.zeros(rows), "expected": np.zeros((rows, resources))}
    n_open = int((arrays["status"] == CONSTANTS["open"]).sum())
    counters = settings["counters"] | {"n_open": n_open, "n_stopped": 0, "n_backwards": 0}
    return settings | {"counters": counters}, arrays | added
