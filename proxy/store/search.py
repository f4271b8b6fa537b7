"""Both search legs over the snapshots of a scope: cosine, and BM25 over the scope's own statistics.

In: snapshots, a query vector, each term's rows. Out: `Candidate`s. Where a snapshot has a matrix every vector is
compared; where it has a graph, the graph says which to compare, and the store's own vectors are compared. So a cosine
is the true one whatever path found the record.

BM25 as in Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), eq. 3.15, with
k1 = 1.2 and b = 0.75 and the idf of Lucene (never negative):
    sum over terms of ln(1 + (N − df + 0.5) / (df + 0.5)) · tf (k1 + 1) / (tf + k1 (1 − b + b · length / mean length)).
Memories are short, so a term's frequency tf is taken as 1 and a length is a count of distinct terms. N, df and the mean
are those of the partitions the scope reads, so that no tenant's words weigh on another's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from proxy.plugs import AROUND, Context
from proxy.store.around import neighbours, surroundings
from proxy.store.graph import Graph, Positions
from proxy.store.partition import Snapshot
from proxy.store.postings import Rows
from proxy.types import Vector

K1 = 1.2
B = 0.75
_OVERSHOOT = 2
"""A graph's order is rough: this many times the wanted are compared."""

_SEEDS = 24
"""Of this many of the best the neighbours are looked at."""
_LEAST = 1e-6
_BEFORE = AROUND.index(-1)
_SPREAD = 16
"""Up to this many row numbers per hit, weights are summed by row number, which is faster than looking each row up."""
_FEW = 20_000
"""Up to this many hits, all terms are summed at once; beyond, one after the other, which moves less memory."""
Scalar = TypeVar("Scalar", bound=np.generic)
Scores = npt.NDArray[np.float64]
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
    rows = _joined([one.rows for one in held])
    usable = _joined([one.alive & (one.expires_at > now) for one in held])
    if allowed is not None:
        usable = usable & np.isin(rows, allowed)
    looked = [_look(held, rows, usable, leg, limit, fetch) for leg in legs]
    at = list(dict.fromkeys(position for one in looked for position in one.best))
    if not at:
        return *_NOTHING, None
    chosen = np.array(at, np.int64)
    whole, *parts = looked
    threads = _joined([one.threads for one in held])
    if around:
        near = neighbours(_seeds(whole, chosen), threads, usable, chosen)
        for one in looked:
            _compare_also(held, one, near if one is whole else np.union1d(near, chosen), fetch)
        chosen = np.concatenate([chosen, near])
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
    held: Sequence[Snapshot], rows: Rows, usable: npt.NDArray[np.bool_], leg: Leg, limit: int, fetch: Fetch
) -> _Look:
    words = _bm25(held, leg.postings)
    worded = _best(words, usable, np.flatnonzero(words > 0.0), rows, limit)
    if leg.vector is None:
        return _Look(None, np.full(len(rows), np.nan, np.float32), words, worded)
    cosines = _dense(held, usable, leg.vector, limit, np.array(worded, np.int64), fetch)
    best = _best(cosines, usable, np.flatnonzero(~np.isnan(cosines)), rows, limit)
    return _Look(leg.vector, cosines, words, list(dict.fromkeys([*best, *worded])))


def _seeds(look: _Look, chosen: Positions) -> Positions:
    """The best of both legs together: whose neighbours are worth a look."""
    cosines, words = np.nan_to_num(look.cosines[chosen]), look.words[chosen]
    both = cosines / max(float(cosines.max()), _LEAST) + words / max(float(words.max()), _LEAST)
    return chosen[np.argsort(-both, kind="stable")[:_SEEDS]]


def _compare_also(held: Sequence[Snapshot], look: _Look, positions: Positions, fetch: Fetch) -> None:
    """Fill in cosines that a graph has spared."""
    if look.vector is None:
        return
    start = 0
    for part in held:
        end = start + len(part.rows)
        if part.graph is not None:
            here = positions[(positions >= start) & (positions < end)]
            here = here[np.isnan(look.cosines[here])] - start
            _compare(look.cosines[start:end], part.rows, here, look.vector, fetch)
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
    vector: Vector,
    limit: int,
    worded: Positions,
    fetch: Fetch,
) -> Cosines:
    """Cosines in the order of the snapshots' rows; NaN where there is no vector, or none was compared."""
    dense = np.full(len(usable), np.nan, np.float32)
    start = 0
    for part in held:
        end = start + len(part.rows)
        if part.graph is None:
            assert part.matrix is not None
            dense[start:end] = np.where(part.embedded, part.matrix @ vector, np.float32(np.nan))
        else:
            near = _near(part, part.graph, usable[start:end] & part.embedded, vector, limit)
            here = worded[(worded >= start) & (worded < end)] - start
            _compare(dense[start:end], part.rows, np.union1d(near, here), vector, fetch)
        start = end
    return np.clip(dense, -1.0, 1.0, out=dense)


def _near(part: Snapshot, graph: Graph, usable: npt.NDArray[np.bool_], vector: Vector, limit: int) -> Positions:
    """Positions worth comparing: more than the wanted, or all usable ones where that is less work."""
    count = int(np.count_nonzero(usable))
    if not count:
        return np.zeros(0, np.int64)
    asked = math.ceil(_OVERSHOOT * limit * graph.count / count)
    while asked < count:
        near = graph.near(vector, asked)
        near = near[usable[near]]
        if len(near) >= limit:
            return near[: _OVERSHOOT * limit]
        asked *= 4
    return np.flatnonzero(usable)


def _compare(cosines: Cosines, rows: Rows, positions: Positions, vector: Vector, fetch: Fetch) -> None:
    found = fetch(rows[positions].tolist())
    at = [place for place, row in zip(positions.tolist(), rows[positions].tolist(), strict=True) if row in found]
    if at:
        packed = b"".join(found[row] for row in rows[at].tolist())
        matrix = np.frombuffer(packed, "<f2").reshape(len(at), -1).astype(np.float32)
        cosines[at] = matrix @ vector


def _joined(arrays: list[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _bm25(held: Sequence[Snapshot], postings: Sequence[Rows]) -> Scores:
    """BM25 of every record, in the order of the snapshots' rows; 0 where no term matched."""
    found = [one for one in postings if len(one)]
    scores = np.zeros(sum(len(one.rows) for one in held))
    if not found:
        return scores
    mean = max(sum(one.terms for one in held) / sum(one.count for one in held), 1.0)
    summed = _summed(held, found, _idf(held, found))
    start = 0
    for snapshot in held:
        end = start + len(snapshot.rows)
        lengths = 1 + K1 * (1 - B + (B / mean) * snapshot.term_counts)
        np.divide(summed[start:end], lengths, out=scores[start:end])
        start = end
    scores *= K1 + 1
    return scores


def _idf(held: Sequence[Snapshot], found: Sequence[Rows]) -> list[float]:
    count = sum(one.count for one in held)
    # A commit between the two readings may leave df one ahead of N: the idf must stay positive.
    return [math.log1p((max(count - len(one), 0) + 0.5) / (len(one) + 0.5)) for one in found]


def _summed(held: Sequence[Snapshot], found: Sequence[Rows], idf: Sequence[float]) -> Scores:
    """The sum of the idf of each record's terms."""
    sizes = [len(one) for one in found]
    rows = np.concatenate(found)
    lowest = min(int(rows.min()), *(int(one.rows[0]) for one in held))
    span = max(int(rows.max()), *(int(one.rows[-1]) for one in held)) - lowest + 1
    if span <= _SPREAD * len(rows):
        by_row = _by_row(rows - lowest, sizes, idf, span)
        return _joined([by_row[one.rows - lowest] for one in held])
    weights = np.repeat(idf, sizes)
    parts: list[Scores] = []
    for one in held:
        at = np.minimum(np.searchsorted(one.rows, rows), len(one.rows) - 1)
        here = one.rows[at] == rows
        parts.append(np.bincount(at[here], weights[here], minlength=len(one.rows)).astype(np.float64, copy=False))
    return _joined(parts)


def _by_row(rows: Rows, sizes: Sequence[int], idf: Sequence[float], span: int) -> Scores:
    if len(rows) <= _FEW:
        return np.bincount(rows, np.repeat(idf, sizes), minlength=span).astype(np.float64, copy=False)
    by_row, start = np.zeros(span), 0
    for size, weight in zip(sizes, idf, strict=True):
        by_row[rows[start : start + size]] += weight  # a row stands once in a term's list
        start += size
    return by_row


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
