"""Compiled encoder of one row of named features, which `Encoder` calls for every task."""

from cpython.dict cimport PyDict_GetItem
from cpython.float cimport PyFloat_AsDouble, PyFloat_Check
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.math cimport fabs, isnan

import numpy as np

from deferkit.types import LARGEST

cdef double largest = LARGEST


def any_larger(list values not None, list bounds not None):
    """Return whether the absolute value of a number is larger than its bound; up to the end of the shorter list.

    >>> any_larger([0.5, -2.0], [1.0, 2.0]), any_larger([0.5, -2.5], [1.0, 2.0])
    (False, True)
    """
    cdef Py_ssize_t i
    for i in range(min(len(values), len(bounds))):
        if fabs(<double>values[i]) > <double>bounds[i]:
            return True
    return False


cdef class RowEncoder:
    """Encodes rows with fixed scales and levels.

    Args:
        numbers: The names of the number features.
        centers: The number subtracted from each value.
        spreads: The divisor of the difference.
        levels: For each category, by name: the offset of each of its levels from the category's first element.
        max_levels: The most levels of each category; after them come an element for any other level and one for a
            missing value.
        size: The divisor of the whole vector.
        intercept: Whether the first element is constant.
        clips: Whether a scaled number is clipped at ±1; else what is beyond is squeezed to within ±2.
        bounds: The absolute value of each number above which it counts as missing.
    """

    cdef tuple numbers, categories
    cdef list levels
    cdef double[::1] centers, spreads, bounds
    cdef long long[::1] max_levels
    cdef double size
    cdef bint intercept, clips
    cdef Py_ssize_t length

    def __init__(self, tuple numbers, centers, spreads, dict levels, max_levels, double size, bint intercept,
                 bint clips, bounds):
        self.numbers, self.categories, self.levels = numbers, tuple(levels), list(levels.values())
        self.centers, self.spreads = np.array(centers, dtype=np.float64), np.array(spreads, dtype=np.float64)
        self.bounds, self.max_levels = np.array(bounds, dtype=np.float64), np.array(max_levels, dtype=np.int64)
        self.size, self.intercept, self.clips = size, intercept, clips
        self.length = intercept + 2 * len(numbers) + sum(max_levels) + 2 * len(levels)
        for offsets, n_levels in zip(self.levels, max_levels, strict=True):
            if not all(0 <= offset < n_levels for offset in offsets.values()):
                raise ValueError(f"A category has room for {n_levels} levels. Got {len(offsets)} instead.")

    def encode(self, dict row not None, double[::1] x not None):
        """Write the vector of a row to x and return True; return False, with x undefined, if the row needs a check.

        None is needed if all names are known, numbers are floats, ints or None, and levels are strings or None.
        """
        cdef Py_ssize_t i, column = 0, found = 0
        cdef PyObject *given
        cdef PyObject *offset
        cdef double value
        if x.shape[0] != self.length:
            raise ValueError(f"The vector of a row has {self.length} elements. Got {x.shape[0]} instead.")
        x[:] = 0.0
        if self.intercept:
            x[0] = 1.0 / self.size
            column = 1
        for i in range(len(self.numbers)):
            given = PyDict_GetItem(row, self.numbers[i])
            found += given != NULL
            if given == NULL or <object>given is None:
                x[column + 1] = 1.0 / self.size
            elif PyFloat_Check(<object>given) or PyLong_CheckExact(<object>given):
                value = PyFloat_AsDouble(<object>given) if PyFloat_Check(<object>given) else whole(<object>given)
                if not (isnan(value) or fabs(value) <= largest):
                    return False
                if isnan(value) or fabs(value) > self.bounds[i]:
                    x[column + 1] = 1.0 / self.size
                else:
                    value = (value - self.centers[i]) / self.spreads[i]
                    x[column] = (min(1.0, max(-1.0, value)) if self.clips else squeezed(value)) / self.size
            else:
                return False
            column += 2
        for i in range(len(self.categories)):
            given = PyDict_GetItem(row, self.categories[i])
            found += given != NULL
            if given == NULL or <object>given is None:
                x[column + self.max_levels[i] + 1] = 1.0 / self.size
            elif type(<object>given) is str:
                offset = PyDict_GetItem(self.levels[i], <object>given)
                x[column + (self.max_levels[i] if offset == NULL else <Py_ssize_t><object>offset)] = 1.0 / self.size
            else:
                return False
            column += self.max_levels[i] + 2
        return found == len(row)


cdef inline double squeezed(double value) noexcept nogil:
    """The value within ±1, and ±(2 − 1/|value|) beyond: bounded, and in the same order."""
    if fabs(value) <= 1.0:
        return value
    return 2.0 - 1.0 / value if value > 0.0 else -2.0 - 1.0 / value


cdef inline double whole(object value) except? -1.0:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
