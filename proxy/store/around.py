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
_DISTANCES = np.array(AROUND)


def surroundings(at: Positions, threads: npt.NDArray[np.int64], usable: _Flags) -> tuple[npt.NDArray[np.int64], _Flags]:
    """Positions around some positions, by `AROUND`, and whether there is a usable record of the conversation there.

    >>> places, known = surroundings(np.array([1]), np.array([5, 5, 5, 7]), np.ones(4, np.bool_))
    >>> places[0].tolist(), known[0].tolist()
    ([0, 0, 1, 2, 3], [False, True, True, True, False])
    """
    wanted = at[:, None] + _DISTANCES
    places = np.clip(wanted, 0, len(threads) - 1)
    known = usable[places] & (wanted == places)
    told = threads[places]
    joined = linked(told[:, :-1], told[:, 1:])  # each column with the next
    known[:, :_OWN] &= np.logical_and.accumulate(joined[:, _OWN - 1 :: -1], axis=1)[:, ::-1]
    known[:, _OWN + 1 :] &= np.logical_and.accumulate(joined[:, _OWN:], axis=1)
    return places, known


def neighbours(of: Positions, threads: npt.NDArray[np.int64], usable: _Flags, but: Positions) -> npt.NDArray[np.int64]:
    """The records next to some, without those that are known already."""
    places, known = surroundings(of, threads, usable)
    beside = [_OWN - 1, _OWN + 1]
    found: list[int] = places[:, beside][known[:, beside]].tolist()
    return np.array(sorted({*found}.difference(but.tolist())), np.int64)  # of a few dozen, faster than numpy
