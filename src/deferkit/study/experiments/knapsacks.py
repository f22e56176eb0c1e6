"""Policies that are compared on knapsacks, and their settings."""

from typing import Any

import polars as pl

from deferkit.study.experiments.people import add_names, remark

KIND = "Linear"
WORLD = "knapsack"
NEURAL: dict[str, Any] = {"embedding": {"learning_rate": 5e-4, "every": 10, "batch": 500}}
"""The paper's: retrained every 10 tasks on mini-batches of 500."""
RULES = ("best-reject", "arbitrary-human", "human-only", "model-only", "opt")


def by_name(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with who it was (`who`) and the budget (`limit`) as figures call them."""
    return add_names(frame, KIND)


def people_remark(_: pl.DataFrame) -> str:
    """Return the remark on the simulated people."""
    return remark(WORLD, {})
