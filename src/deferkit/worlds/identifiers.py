"""Columns that name a task instead of describing it: nothing is to be learned from them."""

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

FEWEST = 20  # rows; in fewer ones any column may have values that all differ
DISTINCT = 0.95  # share of values that differ, from which on texts are names
DENSE = 1.1  # a range of at most so many whole numbers for each row is counted through
NAMED = re.compile(r"(^|[^a-zA-Z])(?i:id|uuid|guid)$|[a-z](Id|ID|UUID)$")  # customer_id, customerId


def are_names(texts: pl.Series) -> bool:
    """Whether nearly all texts of a column differ.

    >>> are_names(pl.Series([f"task {i}" for i in range(30)])), are_names(pl.Series(["a", "b"] * 15))
    (True, False)
    """
    some = texts.drop_nulls()
    return len(some) >= FEWEST and some.n_unique() >= DISTINCT * len(some)


def are_numbers_of_rows(name: str, column: NDArray[np.float64]) -> bool:
    """Whether a column of numbers counts rows, or is named as an id and has values that nearly all differ.

    >>> are_numbers_of_rows("x_n", np.arange(100.0, 130.0)), are_numbers_of_rows("x_size", np.arange(30.0) ** 2)
    (True, False)
    >>> are_numbers_of_rows("x_customer_id", np.arange(30.0) ** 2)
    True
    """
    some = column[~np.isnan(column)]
    if len(some) < FEWEST or (some % 1 != 0).any():
        return False
    distinct = len(np.unique(some))
    if distinct == len(column) and np.ptp(some) + 1 <= DENSE * len(column):
        return True
    return bool(NAMED.search(name)) and distinct >= DISTINCT * len(some)
