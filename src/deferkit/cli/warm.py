"""Learners that start from the past, beside the same learners that do not."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from deferkit.study.spec import Spec

COLD = ", cold"  # behind the name of a learner that starts from nothing


def cold_name(policy: str) -> str:
    """Return what a learner is called that starts from nothing though there is a past."""
    return policy + COLD


def plain_name(name: str) -> dict[str, Any]:
    """Return policy and parameters of a specification by the name in the table.

    >>> plain_name("default"), plain_name("default, cold")
    ({'policy': 'default'}, {'policy': 'default', 'policy_parameters': {'warm_start': False}})
    """
    if not name.endswith(COLD):
        return {"policy": name}
    return {"policy": name.removesuffix(COLD), "policy_parameters": {"warm_start": False}}


def name_of(spec: Spec) -> str:
    """Return the name in the table by the specification."""
    return cold_name(spec.policy) if spec.policy_parameters.get("warm_start") is False else spec.policy


def named_apart(frame: pl.DataFrame) -> pl.DataFrame:
    """Return trials in which a learner that starts from nothing has a name of its own."""
    if "policy_warm_start" not in frame.columns:
        return frame
    cold = pl.col("policy_warm_start").eq_missing(other=False)
    return frame.with_columns(policy=pl.when(cold).then(pl.col("policy") + COLD).otherwise("policy"))


def brought_by_past(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return, for each learner, what its past brought against a start from nothing on the same tasks.

    >>> row = {"reward": 90.0, "gain": 60.0}
    >>> brought_by_past([{"policy": "default", **row}, {"policy": "default, cold", "reward": 80.0, "gain": 40.0}])
    ['The past brings default + 10 reward (gain 60.0 instead of 40.0 %).']
    """
    by_name = {row["policy"]: row for row in rows}
    said = []
    for name, row in by_name.items():
        cold = by_name.get(cold_name(name))
        if cold is not None:
            more = row["reward"] - cold["reward"]
            known = row["gain"] is not None and cold["gain"] is not None
            gains = f" (gain {row['gain']:.1f} instead of {cold['gain']:.1f} %)" if known else ""
            sign = "+" if more >= 0 else "−"
            said.append(f"The past brings {name} {sign} {abs(more):,.{0 if abs(more) >= 10 else 2}f} reward{gains}.")
    return said
