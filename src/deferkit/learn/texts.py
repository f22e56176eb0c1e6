"""Texts as vectors without a download: hashed words, pairs of words and parts of words."""

import itertools
import re
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

WIDTH = 64  # elements by default; docs/text.md has measurements
WORDS = re.compile(r"\w+")
PART = 4  # letters of a part of a word
MAX_LETTERS = 100_000  # of a text; the rest is not looked at


def hash_text(text: str, width: int = WIDTH) -> NDArray[np.float64]:
    """Return a text as a vector of length 1; zeros if it has no words.

    Each word, pair of neighbouring words and part of a word is added to or subtracted from the element that its
    checksum says, so that texts with much in common have similar vectors, and others are at right angles on average.

    >>> a, b, c = (hash_text(text) for text in ("The parcel never came", "My parcel never came", "I was charged twice"))
    >>> bool(a @ b > 0.5), bool(abs(a @ c) < 0.3)
    (True, True)
    """
    words = WORDS.findall(text[:MAX_LETTERS].lower())
    pairs = (f"{first} {second}" for first, second in itertools.pairwise(words))
    parts = (
        f"#{framed[i : i + PART]}" for word in words for framed in [f"_{word}_"] for i in range(len(framed) - PART + 1)
    )
    sums = np.array([crc32(each.encode()) for each in itertools.chain(words, pairs, parts)], dtype=np.int64)
    vector = np.bincount(sums // 2 % width, np.where(sums % 2, 1.0, -1.0), width).astype(np.float64)
    vector = np.copysign(np.sqrt(np.abs(vector)), vector)  # the tenth time says less than the first
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
