"""Trees that are fitted, and members that forget, after a handful of observations instead of hundreds."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deferkit.learn import settings as members
from deferkit.learn.embed import tree_columns, tree_views

FIRST, DELAY = 8, 4


@contextmanager
def early_fits() -> Iterator[None]:
    """Fit small trees from 8 observations on, with effect 4 later; forget after 4, 2 and 1 samples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_columns, "FIRST_FIT", FIRST)
        patch.setattr(tree_columns, "FIRST_STACK", FIRST)
        patch.setattr(tree_columns, "MIN_DELAY", DELAY)
        patch.setattr(tree_columns, "MIN_STACK_DELAY", DELAY)
        patch.setattr(tree_views, "ROUNDS", 3)
        patch.setattr(tree_views, "MIN_IN_LEAF", 1)
        patch.setattr(members, "WINDOWS", ((40, 4), (20, 2), (10, 1)))
        yield
