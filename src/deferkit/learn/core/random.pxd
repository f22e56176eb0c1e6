"""Random numbers that are a function of (key, decision, draw): there is no stream to save or to rewind."""

from libc.math cimport cos, log, sqrt
from libc.stdint cimport uint64_t

from deferkit.learn.core.state cimport Int

cdef inline double uniform(Int key, Int decision, Int draw) noexcept nogil:
    """A number in [0, 1): SplitMix64 on a counter."""
    cdef uint64_t z = <uint64_t>key + <uint64_t>(2 * decision + draw + 1) * <uint64_t>0x9E3779B97F4A7C15ULL
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9ULL
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EBULL
    z = z ^ (z >> 31)
    return <double>(z >> 11) * (1.0 / 9007199254740992.0)

cdef inline double gaussian(Int key, Int decision, Int draw) noexcept nogil:
    """A standard normal number (Box & Muller), from a separate stream."""
    cdef Int other = key ^ (<Int>0x5851F42D4C957F2D + draw)
    cdef double radius = sqrt(-2.0 * log(1.0 - uniform(other, decision, 0)))
    return radius * cos(2.0 * 3.141592653589793 * uniform(other, decision, 1))
