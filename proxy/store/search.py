"""Both search legs over the snapshots of a scope: cosine, and BM25 over the scope's own statistics.

In: snapshots, a query vector, each term's rows. Out: `Candidate`s. Where a snapshot has a matrix every vector is
compared; where its vectors are in a file, that says which to compare, and the store's own are compared. So a cosine is
the true one whatever path found the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from proxy.plugs import AROUND, Context
from proxy.store.around import neighbours, surroundings
from proxy.store.bm25 import Scores, bm25, joined
from proxy.store.partition import Snapshot
from proxy.store.postings import Rows
from proxy.store.usearch_file import Floats, Positions, UsearchVectors
from proxy.types import Vector

_OVERSHOOT = 1.5
"""A file's order is rough: this many times the wanted are compared. Of 200,000 memories 1.25 missed 2 of 7,200 nearest
ones, and this none."""

_SEEDS = 24
"""Of this many of the best the neighbours are looked at."""
_LEAST = 1e-6
_BEFORE = AROUND.index(-1)
Cosines = npt.NDArray[np.float32]
Fetch = Callable[[Sequence[int]], Mapping[int, bytes]]
_NOTHING = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)


class Leg(NamedTuple):
    """What is looked for.

    Args:
        vector: Query, unit length; None skips the dense leg.
        postings: For each query term, the rows of active records that hold it.
    """

    vector: Vector | None
    postings: Sequence[Rows]


def find(
    snapshots: Sequence[Snapshot],
    legs: Sequence[Leg],
    *,
    now: float,
    limit: int,
    fetch: Fetch,
    allowed: Rows | None = None,
    around: bool = False,
) -> tuple[Rows, Scores, Scores, Context | None]:
    """The best of each leg.

    Args:
        snapshots: The partitions the scope reads.
        legs: The question's, then those of its parts.
        now: Unix seconds; what expired by then is left out.
        limit: Candidates per leg.
        fetch: Gives the stored vectors of rows; asked only where a snapshot has no matrix.
        allowed: Sorted rows that filters admit; None admits all.
        around: Whether to look at the neighbours of the best as well.

    Returns:
        Rows, cosines (NaN for none) and BM25 of the union of the legs' best, for the whole question: by cosine first,
        then what only the words found, then what only a part or the neighbourhood did; and their context, where it was
        asked for.
    """
    held = [one for one in snapshots if one.count]
    if not held:
        return *_NOTHING, None
    rows = joined([one.rows for one in held])
    usable = joined([one.alive & (one.expires_at > now) for one in held])
    if allowed is not None:
        usable = usable & np.isin(rows, allowed)
    looked = _look(held, rows, usable, legs, limit, fetch)
    at = list(dict.fromkeys(position for one in looked for position in one.best))
    if not at:
        return *_NOTHING, None
    chosen = np.array(at, np.int64)
    whole, *parts = looked
    threads = joined([one.threads for one in held])
    if around:
        near = neighbours(_seeds(whole, chosen), threads, usable, chosen)
        chosen = np.concatenate([chosen, near])
        _compare_also(held, looked, chosen, fetch)
    found = rows[chosen], whole.cosines[chosen].astype(np.float64), whole.words[chosen]
    return *found, _context(whole, parts, chosen, threads, usable) if around else None


@dataclass(frozen=True, slots=True)
class _Look:
    """What one leg sees.

    Args:
        vector: The leg's.
        cosines: Of every record, in the order of the snapshots' rows; NaN where there is none, or none was compared.
        words: BM25 likewise.
        best: Positions of the best, by cosine first.
    """

    vector: Vector | None
    cosines: Cosines
    words: Scores
    best: list[int]


def _look(
    held: Sequence[Snapshot],
    rows: Rows,
    usable: npt.NDArray[np.bool_],
    legs: Sequence[Leg],
    limit: int,
    fetch: Fetch,
) -> list[_Look]:
    words = [bm25(held, leg.postings) for leg in legs]
    worded = [_best(one, usable, np.flatnonzero(one > 0.0), rows, limit) for one in words]
    vectors = [leg.vector for leg in legs if leg.vector is not None]
    # What the words found is compared as well, for all legs at once: to read a vector takes longer than to compare it.
    also = np.unique(np.array([position for one in worded for position in one], np.int64))
    cosines = iter(_dense(held, usable, vectors, limit, also, fetch))
    looked = []
    for leg, by_words, best_words in zip(legs, words, worded, strict=True):
        if leg.vector is None:
            looked.append(_Look(None, np.full(len(rows), np.nan, np.float32), by_words, best_words))
            continue
        dense = next(cosines)
        best = _best(dense, usable, np.flatnonzero(~np.isnan(dense)), rows, limit)
        looked.append(_Look(leg.vector, dense, by_words, list(dict.fromkeys([*best, *best_words]))))
    return looked


def _seeds(look: _Look, chosen: Positions) -> Positions:
    """The best of both legs together: whose neighbours are worth a look."""
    cosines, words = np.nan_to_num(look.cosines[chosen]), look.words[chosen]
    both = cosines / max(float(cosines.max()), _LEAST) + words / max(float(words.max()), _LEAST)
    return chosen[np.argsort(-both, kind="stable")[:_SEEDS]]


def _compare_also(held: Sequence[Snapshot], looked: Sequence[_Look], positions: Positions, fetch: Fetch) -> None:
    """Fill in cosines that a file has spared."""
    looks = [one for one in looked if one.vector is not None]
    if not looks:
        return
    missing = positions[np.isnan(np.stack([one.cosines[positions] for one in looks])).any(axis=0)]
    vectors, cosines = [one.vector for one in looks if one.vector is not None], [one.cosines for one in looks]
    start = 0
    for part in held:
        end = start + len(part.rows)
        if part.filed is not None:
            here = missing[(missing >= start) & (missing < end)] - start
            _compare([one[start:end] for one in cosines], part.rows, here, vectors, fetch)
        start = end


def _context(
    whole: _Look,
    parts: Sequence[_Look],
    chosen: Positions,
    threads: npt.NDArray[np.int64],
    usable: npt.NDArray[np.bool_],
) -> Context:
    places, known = surroundings(chosen, threads, usable)
    cosines = np.where(known, whole.cosines[places], np.nan)
    words = np.where(known, whole.words[places], 0.0)
    none = np.zeros((len(chosen), 0))
    return Context(
        cosines=cosines,
        words=words,
        part_cosines=np.column_stack([one.cosines[chosen].astype(np.float64) for one in parts]) if parts else none,
        part_words=np.column_stack([one.words[chosen] for one in parts]) if parts else none,
        threads=threads[chosen],
        before=np.where(known[:, _BEFORE], _place_in(chosen, places[:, _BEFORE]), -1),
    )


def _place_in(chosen: Positions, wanted: Positions) -> Positions:
    """Where positions stand among the chosen ones; −1 for those that do not."""
    order = np.argsort(chosen)
    at = order[np.minimum(np.searchsorted(chosen, wanted, sorter=order), len(chosen) - 1)]
    return np.where(chosen[at] == wanted, at, -1)


def _dense(
    held: Sequence[Snapshot],
    usable: npt.NDArray[np.bool_],
    vectors: Sequence[Vector],
    limit: int,
    worded: Positions,
    fetch: Fetch,
) -> list[Cosines]:
    """For each vector, cosines in the order of the snapshots' rows; NaN where there is none, or none was compared."""
    dense = [np.full(len(usable), np.nan, np.float32) for _ in vectors]
    start = 0
    for part in held if vectors else ():
        end = start + len(part.rows)
        here = [one[start:end] for one in dense]
        if part.filed is None:
            assert part.matrix is not None
            for cosines, products in zip(here, np.stack(vectors) @ part.matrix.T, strict=True):
                cosines[:] = np.where(part.embedded, products, np.float32(np.nan))
        else:
            admitted = usable[start:end] & part.embedded
            near = _near(part.filed, admitted, vectors, limit)
            also = worded[(worded >= start) & (worded < end)] - start
            _compare(here, part.rows, np.unique(np.concatenate([*near, also])), vectors, fetch)
        start = end
    return [np.clip(one, -1.0, 1.0, out=one) for one in dense]


def _near(
    filed: UsearchVectors, usable: npt.NDArray[np.bool_], vectors: Sequence[Vector], limit: int
) -> Sequence[Positions]:
    """For each vector positions worth comparing: more than the wanted, or all usable ones where that is no more."""
    count = math.ceil(_OVERSHOOT * limit)
    some = np.flatnonzero(usable)
    return [some] if len(some) <= count else [_nearest(one, usable, count) for one in filed.likeness(vectors)]


def _nearest(likeness: Floats, usable: npt.NDArray[np.bool_], count: int) -> Positions:
    """The positions of the highest usable values; the newer ones where many are equal."""
    values = likeness if usable.all() else np.where(usable, likeness, np.float32(-np.inf))
    least = np.partition(values, len(values) - count)[len(values) - count]
    near = np.flatnonzero(values >= least)
    if len(near) == count:
        return near
    above, equal = near[values[near] > least], near[values[near] == least]
    return np.concatenate([above, equal[len(equal) - (count - len(above)) :]])


def _compare(
    cosines: Sequence[Cosines], rows: Rows, positions: Positions, vectors: Sequence[Vector], fetch: Fetch
) -> None:
    if not len(positions):
        return
    found = fetch(rows[positions].tolist())
    at = [place for place, row in zip(positions.tolist(), rows[positions].tolist(), strict=True) if row in found]
    if at:
        packed = b"".join([found[row] for row in rows[at].tolist()])
        matrix = np.frombuffer(packed, "<f4").reshape(len(at), -1)
        for one, products in zip(cosines, np.stack(vectors) @ matrix.T, strict=True):
            one[at] = products


def _best(
    scores: npt.NDArray[np.floating], usable: npt.NDArray[np.bool_], at: Positions, rows: Rows, limit: int
) -> list[int]:
    """Those of some positions with the `limit` highest usable scores, highest first; the newer row where equal."""
    at = at[usable[at]]
    values = scores[at]
    if len(at) > limit:
        least = np.partition(values, len(at) - limit)[len(at) - limit]
        near = values >= least
        at, values = at[near], values[near]
    order = np.lexsort((-rows[at], -values))[:limit]
    best: list[int] = at[order].tolist()
    return best
