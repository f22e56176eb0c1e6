"""State files of version 2, whose learners forgot nothing, converted to version 3."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def convert(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 3: a mixture with one member."""
    deferrer = {**settings["deferrer"], "forget": "never", "representation": "linear"}
    n_observed = arrays["n_observed"]
    targets, rows = len(n_observed), arrays["reward"].shape
    added: Arrays = {
        "member_prior": np.ones(1),
        "forget_every": np.zeros(1, dtype=np.int64),
        "keep": np.ones(1),
        "member_weight": np.ones((targets, 1)),
        "member_samples": n_observed.astype(np.float64),
        "forecast_error": np.zeros(targets),
        "drift_strength": np.zeros(targets),
        # 0: a correction takes the sample as fully remembered, which it is
        "learned_as": np.zeros((rows[0], rows[1] + 1), dtype=np.int64),
    }
    added |= {name: np.zeros(targets, dtype=np.int64) for name in ("drift_told", "n_drifts", "drift_at")}
    counters = settings["counters"]
    heard = {
        "n_model_due": 0,
        "heard_to": 0,
        "n_heard": 0,
        "delay_sum": 0,
    }  # read by mixtures with several members only
    return settings | {"deferrer": deferrer, "counters": counters | heard}, arrays | added
