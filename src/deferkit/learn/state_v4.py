"""State files of version 4, which had no ranks, no test for drift and no automatic link, converted to version 5."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


FIT = "representation fit ledger "  # prefix of the arrays that a fit of trees under way learns with


def convert(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 5: the defaults of November 2026."""
    added: Arrays = {}
    for prefix in ("", FIT):
        if prefix + "n_observed" in arrays:
            added |= {prefix + name: array for name, array in _added(len(arrays[prefix + "n_observed"])).items()}
    counters = settings["counters"] | {"link_state": 0, "n_in_ranks": 0, "spending_told": 0, "n_unavailable": 0}
    return settings | {"counters": counters}, arrays | added


def _added(targets: int) -> Arrays:
    return {
        "evidence": np.zeros(targets),
        "change_score": np.zeros(targets),
        "change_at": np.zeros(targets, dtype=np.int64),
        "change_sums": np.zeros((targets, 6)),
        "drift_since": np.zeros(targets, dtype=np.int64),
        "drift_resumes": np.zeros(targets, dtype=np.int64),
        "drift_sums": np.zeros((targets, 6)),
        "rank_table": np.zeros((0, 100)),
        "rank_count": np.zeros(0, dtype=np.int64),
    }


ADDED = tuple(_added(1))
