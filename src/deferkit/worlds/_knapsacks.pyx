"""Loops over knapsacks in whole numbers: dynamic programming, a greedy choice, a person's exchanges.

Arrays are C-contiguous and have the dtypes of `_knapsacks.pyi`; anything else raises ValueError. Shapes are not
checked. Weights are at least 1, capacities at least 0.
"""

import numpy as np

from libc.stdint cimport int64_t


def optimum(const int64_t[:, ::1] weights, const int64_t[:, ::1] values, const int64_t[::1] capacities):
    """Return the largest value that fits into each knapsack.

    Dynamic programming: table[c] is the best value of weight at most c, of the items so far.
    """
    cdef Py_ssize_t n = weights.shape[0], items = weights.shape[1]
    cdef Py_ssize_t i, item
    cdef int64_t capacity, weight, value, c, largest = 0
    for i in range(n):
        largest = max(largest, capacities[i])
    best = np.zeros(n, dtype=np.int64)
    cdef int64_t[::1] best_of = best
    cdef int64_t[::1] table = np.zeros(largest + 1, dtype=np.int64)
    with nogil:
        for i in range(n):
            capacity = capacities[i]
            for c in range(capacity + 1):
                table[c] = 0
            for item in range(items):
                weight = weights[i, item]
                value = values[i, item]
                for c in range(capacity, weight - 1, -1):  # downwards, so that an item is taken once at most
                    table[c] = max(table[c], table[c - weight] + value)
            best_of[i] = table[capacity]
    return best


def greedy(
    const int64_t[:, ::1] weights, const int64_t[:, ::1] values, const int64_t[::1] capacities, int64_t most
):
    """Return the value of at most `most` items of each knapsack: the best value/weight of those that still fit.

    Of equal ratios the first item is taken.
    """
    cdef Py_ssize_t n = weights.shape[0], items = weights.shape[1]
    cdef Py_ssize_t i, item, best
    cdef int64_t room, turn
    found = np.zeros(n, dtype=np.int64)
    cdef int64_t[::1] found_in = found
    cdef unsigned char[::1] taken = np.zeros(items, dtype=np.uint8)
    with nogil:
        for i in range(n):
            room = capacities[i]
            for item in range(items):
                taken[item] = 0
            for turn in range(most):
                best = -1
                for item in range(items):
                    if taken[item] or weights[i, item] > room:
                        continue
                    # v/w > v'/w' in whole numbers, so that equal ratios are equal
                    if best < 0 or values[i, item] * weights[i, best] > values[i, best] * weights[i, item]:
                        best = item
                if best < 0:
                    break
                taken[best] = 1
                room -= weights[i, best]
                found_in[i] += values[i, best]
    return found


def pack(
    const int64_t[:, ::1] weights,
    const int64_t[:, ::1] values,
    const int64_t[::1] capacities,
    const int64_t[:, ::1] order,
    const int64_t[:, :, ::1] tries,
    const int64_t[::1] steps,
):
    """Return the value of what each person packs within their number of steps.

    The first steps look at the items in `order` [n, items] and put in what fits. Each later one is a pair of `tries`
    [n, most, 2]: take the one item out, if it is in, and put the other in, if it is not. The exchange is made if it
    fits and raises the value. There are at most items + most `steps`.
    """
    cdef Py_ssize_t n = weights.shape[0], items = weights.shape[1]
    cdef Py_ssize_t i, item
    cdef int64_t step, out, into, room, value, more_room, less_value
    chosen = np.zeros(n, dtype=np.int64)
    cdef int64_t[::1] chosen_by = chosen
    cdef unsigned char[::1] packed = np.zeros(items, dtype=np.uint8)
    with nogil:
        for i in range(n):
            for item in range(items):
                packed[item] = 0
            room = capacities[i]
            value = 0
            for step in range(steps[i]):
                out = -1
                if step < items:
                    into = order[i, step]
                else:
                    into = tries[i, step - items, 1]
                    if packed[tries[i, step - items, 0]]:
                        out = tries[i, step - items, 0]
                if packed[into]:
                    continue
                more_room = weights[i, out] if out >= 0 else 0
                less_value = values[i, out] if out >= 0 else 0
                if weights[i, into] <= room + more_room and values[i, into] > less_value:
                    if out >= 0:
                        packed[out] = 0
                    packed[into] = 1
                    room += more_room - weights[i, into]
                    value += values[i, into] - less_value
            chosen_by[i] = value
    return chosen
