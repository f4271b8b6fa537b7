"""The lexical leg: BM25 of every record of a scope, over the scope's own statistics.

In: snapshots, and each term's rows. Out: an array of scores.

BM25 as in Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), eq. 3.15, with
k1 = 1.2 and b = 0.75 and the idf of Lucene (never negative):
    sum over terms of ln(1 + (N − df + 0.5) / (df + 0.5)) · tf (k1 + 1) / (tf + k1 (1 − b + b · length / mean length)).
Memories are short, so a term's frequency tf is taken as 1 and a length is a count of distinct terms. N, df and the mean
are those of the partitions the scope reads, so that no tenant's words weigh on another's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from proxy.store.partition import Snapshot
from proxy.store.postings import Rows

K1 = 1.2
B = 0.75
_SPREAD = 16
"""Up to this many row numbers per hit, weights are summed by row number, which is faster than looking each row up."""
_FEW = 20_000
"""Up to this many hits, all terms are summed at once; beyond, one after the other, which moves less memory."""
Scalar = TypeVar("Scalar", bound=np.generic)
Scores = npt.NDArray[np.float64]


def bm25(held: Sequence[Snapshot], postings: Sequence[Rows]) -> Scores:
    """BM25 of every record.

    Args:
        held: The partitions the scope reads.
        postings: For each term of the question, the rows of active records that hold it.

    Returns:
        float64, in the order of the snapshots' rows; 0 where no term matched.
    """
    found = [one for one in postings if len(one)]
    scores = np.zeros(sum(len(one.rows) for one in held))
    if not found:
        return scores
    mean = max(sum(one.terms for one in held) / sum(one.count for one in held), 1.0)
    summed = _summed(held, found, _idf(held, found))
    start = 0
    for snapshot in held:
        end = start + len(snapshot.rows)
        # (1 + k1 (1 − b + b · length / mean length)) / (k1 + 1), with the numbers drawn together first
        lengths = (1 + K1 * (1 - B)) / (K1 + 1) + (K1 * B / mean / (K1 + 1)) * snapshot.term_counts
        np.divide(summed[start:end], lengths, out=scores[start:end])
        start = end
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
        return joined([by_row[one.rows - lowest] for one in held])
    weights = np.repeat(idf, sizes)
    parts: list[Scores] = []
    for one in held:
        at = np.minimum(np.searchsorted(one.rows, rows), len(one.rows) - 1)
        here = one.rows[at] == rows
        parts.append(np.bincount(at[here], weights[here], minlength=len(one.rows)).astype(np.float64, copy=False))
    return joined(parts)


def _by_row(rows: Rows, sizes: Sequence[int], idf: Sequence[float], span: int) -> Scores:
    if len(rows) <= _FEW:
        return np.bincount(rows, np.repeat(idf, sizes), minlength=span).astype(np.float64, copy=False)
    by_row, start = np.zeros(span), 0
    for size, weight in zip(sizes, idf, strict=True):
        by_row[rows[start : start + size]] += weight  # a row stands once in a term's list
        start += size
    return by_row


def joined(arrays: list[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """Arrays one behind the other, without a copy where there is one only."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
