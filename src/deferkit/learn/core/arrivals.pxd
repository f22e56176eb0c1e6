"""Arrivals: when tasks come within a period, and how many are still to come in this one.

A period has 168 bins, the hours of a week. With n_b tasks in bin b of the k-th period before and D = Σ .7^k,

    p_b = (Σ .7^k·n_b + .5·mean) / (D + .5),     level = (25 + seen) / (25 + Σ p before now),
    tasks left = max(1, level · Σ p after now).

In a first period, and up to a fixed end, tasks go on to come at the rate of the latest 168 bins.
"""

from libc.math cimport NAN, floor, isnan
from libc.string cimport memset

from deferkit.learn.core.state cimport Int, State

cdef enum:
    HORIZON, UNTIL, RENEWS  # what a budget is paced over: a number of tasks, up to a time, a period
    BINS = 168
    PERIODS = 3  # whose start is known: this one and the two before

cdef extern from *:
    """
    #define PERIOD_DISCOUNT 0.7
    #define SMOOTHING 0.5     /* weight of an even pace, in periods */
    #define LEVEL_PRIOR 25.0  /* tasks by which a period is taken for an average one */
    #define LONGEST_BIN 3600.0 /* seconds of a bin, up to a fixed end */
    """
    const double PERIOD_DISCOUNT
    const double SMOOTHING
    const double LEVEL_PRIOR
    const double LONGEST_BIN

cdef struct Outlook:
    double tasks  # still to come in this period, the current one included
    double period  # in a whole period

cdef inline double current_time(State *s) noexcept nogil:
    """The time of the current task: an earlier one than before counts as the latest."""
    return max(s.arrays.task_time[0], s.arrays.clock[0])

cdef inline double start_of(State *s, Int resource, Int periods_before) noexcept nogil:
    return s.arrays.period_start[resource * PERIODS + periods_before]

cdef inline double elapsed_share(State *s, Int resource, double at) noexcept nogil:
    """The share of this period that is over, from 0 to 1."""
    cdef double start = start_of(s, resource, 0)
    return min(max((at - start) / (s.arrays.period_end[resource] - start), 0.0), 1.0)

cdef inline double elapsed(State *s, Int resource) noexcept nogil:
    """The share of the time or the tasks of a budget that is over when the current task comes."""
    if s.arrays.timing[resource] == HORIZON:
        return s.counters.next_id / s.arrays.horizon[resource]
    return 0.0 if isnan(start_of(s, resource, 0)) else elapsed_share(s, resource, current_time(s))

cdef inline Int bin_number(State *s, Int resource, double at) noexcept nogil:
    """The number of the bin of a time, counted from the start of this period; it may be beyond the last one."""
    return <Int>max(floor((at - start_of(s, resource, 0)) / s.arrays.bin_length[resource]), 0.0)

cdef inline double arrived(State *s, Int resource) noexcept nogil:
    cdef Int b
    cdef double total = 0.0
    for b in range(BINS):
        total += s.arrays.arrivals[resource * BINS + b]
    return total

cdef inline Outlook at_rate(State *s, Int resource, double at, double seen, double elapsed) noexcept nogil:
    cdef double start = start_of(s, resource, 0), end = s.arrays.period_end[resource]
    cdef double rate = (seen + 1.0) / max(elapsed, s.arrays.bin_length[resource])
    return Outlook(rate * (end - at), rate * (end - start))

cdef inline Outlook until_end(State *s, Int resource, double at) noexcept nogil:
    """At the rate of the latest bins, the one that is not over included. Bins lie in a ring."""
    cdef Int bin_now = bin_number(s, resource, at), latest = bin_number(s, resource, s.arrays.clock[0])
    cdef Int first = max(bin_now - BINS + 1, <Int>0), b
    cdef double seen = 1.0
    for b in range(first, latest + 1):
        seen += s.arrays.arrivals[resource * BINS + b % BINS]
    return at_rate(s, resource, at, seen,
                   at - (start_of(s, resource, 0) + first * s.arrays.bin_length[resource]))

cdef inline Outlook as_before(State *s, Int resource, double at) noexcept nogil:
    """As in the periods before, at the level of this one."""
    cdef const double *past = s.arrays.past_arrivals + resource * BINS
    cdef double mean = 0.0, before = 0.0, after = 0.0, expected, level, over
    cdef double position = elapsed_share(s, resource, at) * BINS
    cdef Int b
    for b in range(BINS):
        mean += past[b]
    mean /= BINS * s.arrays.past_periods[resource]
    for b in range(BINS):
        expected = (past[b] + SMOOTHING * mean) / (s.arrays.past_periods[resource] + SMOOTHING)
        over = min(max(position - b, 0.0), 1.0)  # the share of the bin
        before += expected * over
        after += expected * (1.0 - over)
    level = (LEVEL_PRIOR + arrived(s, resource) + 1.0) / (LEVEL_PRIOR + before)
    return Outlook(level * after, level * (before + after))

cdef inline Outlook outlook(State *s, Int resource, double at) noexcept nogil:
    """How many tasks come until the budget is renewed or ends."""
    cdef Outlook found
    if s.arrays.timing[resource] == HORIZON:
        found = Outlook(s.arrays.horizon[resource] - s.counters.next_id, s.arrays.horizon[resource])
    elif s.arrays.timing[resource] == UNTIL:
        found = until_end(s, resource, at)
    elif s.arrays.past_periods[resource] == 0.0:
        found = at_rate(s, resource, at, arrived(s, resource) + 1.0, at - start_of(s, resource, 0))
    else:
        found = as_before(s, resource, at)
    found.tasks = max(found.tasks, 1.0)
    return found

cdef inline void count_in_bin(State *s, Int resource, double at) noexcept nogil:
    cdef double *bins = s.arrays.arrivals + resource * BINS
    cdef Int number = bin_number(s, resource, at), b
    if s.arrays.timing[resource] == UNTIL:
        for b in range(max(bin_number(s, resource, s.arrays.clock[0]) + 1, number - BINS + 1), number + 1):
            bins[b % BINS] = 0.0
        bins[number % BINS] += 1.0
    else:
        bins[min(number, <Int>(BINS - 1))] += 1.0

cdef inline void count_arrival(State *s, Int slot) noexcept nogil:
    """Count the current task, and move the clock to its time."""
    cdef double at = current_time(s)
    cdef Int r
    s.counters.n_backwards += s.arrays.task_time[0] < s.arrays.clock[0]
    for r in range(s.sizes.n_resources):
        if s.arrays.timing[r] != HORIZON and not isnan(start_of(s, r, 0)):
            count_in_bin(s, r, at)
    s.arrays.at[slot] = at
    s.arrays.clock[0] = at

cdef inline void begin_period(State *s, Int resource, double start, double end, bint open) noexcept nogil:
    """Begin a period. `open` is false for the time before the first one, in which nothing may be spent."""
    cdef double *starts = s.arrays.period_start + resource * PERIODS
    cdef double *bins = s.arrays.arrivals + resource * BINS
    cdef double *past = s.arrays.past_arrivals + resource * BINS
    cdef Int b
    if not isnan(starts[0]):
        for b in range(BINS):
            past[b] = PERIOD_DISCOUNT * past[b] + bins[b]
        s.arrays.past_periods[resource] = PERIOD_DISCOUNT * s.arrays.past_periods[resource] + 1.0
        starts[2] = starts[1]
        starts[1] = starts[0]
    memset(bins, 0, BINS * sizeof(double))
    starts[0] = start if open else NAN
    s.arrays.period_end[resource] = end
    s.arrays.bin_length[resource] = (end - start) / BINS
    if s.arrays.timing[resource] == UNTIL:
        s.arrays.bin_length[resource] = min(s.arrays.bin_length[resource], LONGEST_BIN)
    s.arrays.spent_before[resource] = s.arrays.spent[resource]
