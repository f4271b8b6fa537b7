"""Who stands beside whom: records told just before and after one another in the same conversation.

Pure. In: positions, and each record's thread (`partition.thread_of`). Out: the positions around them. Neighbours are
neighbours by row, which is the order of writing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from proxy.plugs import AROUND
from proxy.store.partition import linked
from proxy.store.usearch_file import Positions

_Flags = npt.NDArray[np.bool_]
_OWN = AROUND.index(0)


def surroundings(at: Positions, threads: npt.NDArray[np.int64], usable: _Flags) -> tuple[npt.NDArray[np.int64], _Flags]:
    """Positions around some positions, by `AROUND`, and whether there is a usable record of the conversation there.

    >>> places, known = surroundings(np.array([1]), np.array([5, 5, 5, 7]), np.ones(4, np.bool_))
    >>> places[0].tolist(), known[0].tolist()
    ([0, 0, 1, 2, 3], [False, True, True, True, False])
    """
    last = len(threads) - 1
    places = np.clip(at[:, None] + np.array(AROUND), 0, last)
    known = usable[places] & (at[:, None] + np.array(AROUND) == places)
    for direction in (-1, 1):
        joined = np.ones(len(at), np.bool_)
        for distance in range(1, _OWN + 1):
            column = _OWN + direction * distance
            joined = joined & linked(threads[places[:, column - direction]], threads[places[:, column]])
            known[:, column] &= joined
    return places, known


def neighbours(of: Positions, threads: npt.NDArray[np.int64], usable: _Flags, but: Positions) -> npt.NDArray[np.int64]:
    """The records next to some, without those that are known already."""
    places, known = surroundings(of, threads, usable)
    beside = [_OWN - 1, _OWN + 1]
    return np.setdiff1d(places[:, beside][known[:, beside]], but)
