"""One pass over a JSON document, for what its decoder does not tell: depth, number of containers, repeated keys."""

from cpython.bytes cimport PyBytes_AsString


def scan(bytes raw, Py_ssize_t deepest, Py_ssize_t most, unescape):
    """Return how deep a JSON document goes, how many lists and objects it has, and whether an object has a key twice.

    Whatever is not JSON is gone through too, safely, with results that mean nothing. The pass ends where a limit is
    passed.

    Args:
        raw: The document.
        deepest: The depth at which the pass ends.
        most: The number of lists and objects at which the pass ends.
        unescape: Returns the bytes of a key with escapes, which is given with its quotes.
    """
    cdef const unsigned char *text = <const unsigned char *> PyBytes_AsString(raw)
    cdef Py_ssize_t n = len(raw), i = 0, start, after, level = 0, reached = 0, containers = 0
    cdef bint escaped, repeated = False
    cdef unsigned char c
    cdef list keys = []  # of each container that is open: a set for an object, None for a list
    while i < n:
        c = text[i]
        i += 1
        if c == b'"':
            start, escaped = i, False
            while i < n and text[i] != b'"':
                if text[i] == b"\\":
                    escaped = True
                    i += 1
                i += 1
            after = i + 1
            if level and not repeated and keys[level - 1] is not None:
                while after < n and text[after] in b" \t\n\r":
                    after += 1
                if after < n and text[after] == b":":
                    key = raw[start:i]
                    if escaped:
                        key = unescape(b'"' + key + b'"')
                    seen = <set> keys[level - 1]
                    repeated = key in seen
                    seen.add(key)
            i += 1
        elif c == b"[" or c == b"{":
            level += 1
            containers += 1
            reached = max(reached, level)
            if reached > deepest or containers > most:
                break
            keys.append(set() if c == b"{" else None)
        elif (c == b"]" or c == b"}") and level:
            level -= 1
            keys.pop()
    return reached, containers, bool(repeated)
