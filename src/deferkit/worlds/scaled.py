"""Numbers of a data set to contexts: centred, scaled, with an intercept, in the unit ball."""

import math

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import expected
from deferkit.learn.encode import CLIP

Floats = NDArray[np.float64]


def unit_ball(matrix: Floats) -> Floats:
    """Return an intercept and (value − mean) / (3 std), cut at ±1, all divided by √(number of columns).

    So an `Encoder` would scale them that had seen the whole data set first. A column that does not vary becomes 0: it
    can be filled in later, by as much as ±1/√(number of columns).

    >>> unit_ball(np.array([[1.0, 7.0], [3.0, 7.0]])).round(3)
    array([[ 0.577, -0.192,  0.   ],
           [ 0.577,  0.192,  0.   ]])
    """
    numbers = np.asarray(matrix, dtype=np.float64)
    if numbers.ndim != 2 or not numbers.size or not np.isfinite(numbers).all():
        raise expected("matrix", "unit ball", "finite numbers with rows and columns", matrix)
    # The mean of equal numbers can be off by a rounding error, and dividing that by a spread as small gives anything.
    varies = numbers.max(axis=0) > numbers.min(axis=0)
    spread = np.where(varies, CLIP * numbers.std(axis=0), 1.0)
    centred = np.where(varies, numbers - numbers.mean(axis=0), 0.0)
    scaled = np.clip(centred / spread, -1.0, 1.0)
    return np.column_stack([np.ones(len(numbers)), scaled]) / math.sqrt(1 + numbers.shape[1])
