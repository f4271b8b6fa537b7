"""A number for each stored vector, by which an index file tells whether the store still holds what it was built from.

In: packed vectors. Out: 64-bit marks, the same on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Marks = npt.NDArray[np.uint64]


def marks_of(vectors: Sequence[bytes | None], dimension: int) -> Marks:
    """A number for each stored vector, such that another vector has another number.

    Args:
        vectors: As `partition.pack` gives them.
        dimension: Their length.

    Returns:
        0 for None.

    >>> marks_of([None, b"ab", b"ab", b"ba"], 1).astype(bool).tolist()
    [False, True, True, True]
    """
    has = np.array([vector is not None for vector in vectors], np.bool_)
    words = np.frombuffer(b"".join(vector for vector in vectors if vector is not None), "<u2").reshape(-1, dimension)
    marks = np.zeros(len(vectors), np.uint64)
    # Multiplied by fixed odd random numbers modulo 2**64: two vectors meet once in about 2**48 times.
    marks[has] = np.maximum(words.astype(np.uint64) @ _factors(dimension), np.uint64(1))
    return marks


@lru_cache(maxsize=4)
def _factors(dimension: int) -> Marks:
    drawn = np.frombuffer(hashlib.shake_128(b"sidemirror index").digest(8 * dimension), "<u8")
    return drawn.astype(np.uint64) | np.uint64(1)
