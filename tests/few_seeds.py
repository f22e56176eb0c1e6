"""Experiments with two seeds of each setting, the fewest that have intervals: half the time of a quick run.

DEFERKIT_SOAK=1 leaves them as they are.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deferkit.study.experiments.experiment import Grid
from deferkit.study.trial_store import Trial

ROOT = Path(__file__).parent.parent
SETUP = f"import sys; sys.path.append({str(ROOT)!r}); from tests.few_seeds import few_seeds; few_seeds().__enter__()"
"""Python statements that do the same to another process, for all its life."""


@contextmanager
def few_seeds() -> Iterator[None]:
    """Let the grids of this process have few seeds."""
    combined = Grid._combine

    def few(grid: Grid) -> list[Trial]:
        return combined(
            replace(grid, seeds=sorted({grid.seeds[0], grid.seeds[-1]}))
        )  # of each kind, where there are two

    if not os.environ.get("DEFERKIT_SOAK"):
        Grid._combine = few  # type: ignore[method-assign,assignment]
    yield
    Grid._combine = combined  # type: ignore[method-assign]
