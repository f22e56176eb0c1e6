from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def any_larger(values: list[float], bounds: list[float]) -> bool: ...

class RowEncoder:
    def __init__(
        self,
        numbers: tuple[str, ...],
        centers: Sequence[float],
        spreads: Sequence[float],
        levels: dict[str, dict[str, int]],
        max_levels: Sequence[int],
        size: float,
        intercept: bool,
        clips: bool,
        bounds: Sequence[float],
    ) -> None: ...
    def encode(self, row: dict[str, object], x: NDArray[np.float64]) -> bool: ...
