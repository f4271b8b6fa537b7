"""One partition's active records in memory: vectors, term counts and expiry, as numpy arrays sorted by row.

In: the partition's rows from the store, then one change after the other. Out: immutable `Snapshot`s. A partition too
large for this keeps most of its vectors in a file (`filed`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from proxy.errors import StoreError
from proxy.store.usearch_file import UsearchVectors
from proxy.types import Vector

Stored = tuple[int, int, float | None, bytes | None, int]
"""A record as the store holds it: row, term count, expiry (Unix seconds), float16 vector of the present model, and
thread (`thread_of`)."""

_SPARE = 0.25
_LEAST_SPARE = 16
_DEAD_SHARE = 0.3
NEVER = np.inf
_DAY_MINUTES = 1_440


def pack(vector: Vector | None, dimension: int) -> bytes | None:
    """A vector as stored: float16, little endian.

    Args:
        vector: Shape (dimension,), unit length; all zero is no direction, and counts as none.
        dimension: What the model promises.

    Raises:
        StoreError: Wrong shape, or a value that is not finite.
    """
    if vector is None:
        return None
    if vector.shape != (dimension,):
        raise StoreError(f"a vector of shape {vector.shape} does not fit the model's dimension {dimension}")
    if not np.isfinite(vector).all():
        raise StoreError("the vector holds NaN or infinity; embed the text again")
    return vector.astype("<f2").tobytes() if vector.any() else None


def thread_of(session_id: str | None, created_at: float) -> int:
    """Which conversation a record was told in, as a number above zero; minus the minute it was told at where in none.

    >>> thread_of("s1", 0.0) == thread_of("s1", 9e9) > 0
    True
    >>> thread_of(None, 600.0)
    -10
    """
    if session_id is not None:
        return 1 + zlib.crc32(session_id.encode("utf-8", "replace"))
    return -max(int(created_at // 60), 0)


def linked(threads: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether neighbours by row belong together: told in one conversation, or, where in none, one within a day of the
    other, but not at once: what was stored in one go is in no order that tells anything."""
    apart = np.abs(threads - others)
    told: npt.NDArray[np.bool_] = np.where(
        (threads > 0) | (others > 0), apart == 0, (apart > 0) & (apart <= _DAY_MINUTES)
    )
    return told


@dataclass(frozen=True, slots=True)
class Entry:
    """One active record.

    Args:
        row: The store's integer.
        term_count: Distinct lexical terms.
        expires_at: Unix seconds; infinity for never.
        vector: As stored; None when there is none of the present model.
        thread: From `thread_of`.
    """

    row: int
    term_count: int
    expires_at: float
    vector: bytes | None
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A partition at one moment. Arrays of one length n, sorted by row; nobody writes into them.

    Args:
        rows: int64.
        term_counts: float32.
        expires_at: float64, Unix seconds.
        alive: False for a record that is gone.
        embedded: Whether the record has a vector.
        matrix: float32 (n, dimension), zeros where there is no vector; None where a file stands in for it.
        count: How many are alive.
        vectors: How many of these have a vector.
        terms: Their term counts together.
        threads: int64, from `thread_of`.
        filed: The vectors in a file; None where there is a matrix.
    """

    rows: npt.NDArray[np.int64]
    term_counts: npt.NDArray[np.float32]
    expires_at: npt.NDArray[np.float64]
    alive: npt.NDArray[np.bool_]
    embedded: npt.NDArray[np.bool_]
    matrix: npt.NDArray[np.float32] | None
    count: int
    vectors: int
    terms: int
    threads: npt.NDArray[np.int64]
    filed: UsearchVectors | None = None

    def position(self, row: int) -> int | None:
        """Where a row stands; None when it is not here."""
        at = int(np.searchsorted(self.rows, row))
        return at if at < len(self.rows) and self.rows[at] == row else None


class Partition:
    """One partition's arrays and how they change. Not thread-safe: `VectorIndex` holds its lock.

    Args:
        stored: All active records of the partition, in chunks.
        dimension: Vector length.
    """

    def __init__(self, stored: Iterable[Sequence[Stored]], dimension: int) -> None:
        kept: list[tuple[int, int, float | None, bool, int]] = []
        packed: list[npt.NDArray[np.float16]] = [np.zeros((0, dimension), "<f2")]
        for chunk in stored:
            kept += [(row, count, expiry, vector is not None, thread) for row, count, expiry, vector, thread in chunk]
            vectors = b"".join(vector for *_, vector, _ in chunk if vector is not None)
            packed.append(np.frombuffer(vectors, "<f2").reshape(-1, dimension))
        embedded = np.array([has for *_, has, _ in kept], np.bool_)
        matrix = np.zeros((len(kept), dimension), np.float32)
        matrix[embedded] = np.concatenate(packed)
        self._fill(
            np.array([row for row, *_ in kept], np.int64),
            np.array([count for _, count, *_ in kept], np.float32),
            np.array([NEVER if expiry is None else expiry for _, _, expiry, *_ in kept], np.float64),
            embedded,
            matrix,
            np.array([thread for *_, thread in kept], np.int64),
        )

    @property
    def parts(self) -> tuple[Snapshot, ...]:
        """What to search."""
        return (self.snapshot,)

    @property
    def vectors(self) -> int:
        """How many active records have a vector."""
        return self.snapshot.vectors

    @property
    def nbytes(self) -> int:
        """Bytes held, spare capacity included."""
        return self._capacity * (30 + 4 * self._matrix.shape[1])

    def _fill(
        self,
        rows: npt.NDArray[np.int64],
        term_counts: npt.NDArray[np.float32],
        expires_at: npt.NDArray[np.float64],
        embedded: npt.NDArray[np.bool_],
        matrix: npt.NDArray[np.float32],
        threads: npt.NDArray[np.int64],
    ) -> None:
        """New arrays with spare capacity, sorted by row; those that readers hold stay as they are."""
        n, order = len(rows), np.argsort(rows, kind="stable")
        self._capacity = n + max(_LEAST_SPARE, int(n * _SPARE))
        self._rows = np.zeros(self._capacity, np.int64)
        self._term_counts = np.zeros(self._capacity, np.float32)
        self._expires_at = np.full(self._capacity, NEVER)
        self._embedded = np.zeros(self._capacity, np.bool_)
        self._matrix = np.zeros((self._capacity, matrix.shape[1]), np.float32)
        self._threads = np.zeros(self._capacity, np.int64)
        self._rows[:n] = rows[order]
        self._term_counts[:n] = term_counts[order]
        self._expires_at[:n] = expires_at[order]
        self._embedded[:n] = embedded[order]
        self._matrix[:n] = matrix[order]
        self._threads[:n] = threads[order]
        self._publish(np.ones(n, np.bool_), n, int(embedded.sum()), int(term_counts.sum(dtype=np.float64)))

    def _publish(self, alive: npt.NDArray[np.bool_], count: int, vectors: int, terms: int) -> None:
        n = len(alive)
        self.snapshot = Snapshot(
            rows=self._rows[:n],
            term_counts=self._term_counts[:n],
            expires_at=self._expires_at[:n],
            alive=alive,
            embedded=self._embedded[:n],
            matrix=self._matrix[:n],
            count=count,
            vectors=vectors,
            terms=terms,
            threads=self._threads[:n],
        )

    def put(self, entry: Entry) -> None:
        """Add a record, or replace it by its new state."""
        now = self.snapshot
        last = int(now.rows[-1]) if len(now.rows) else 0
        at = now.position(entry.row)
        if at is not None:
            self._replace(at, entry)
        elif entry.row > last and len(now.rows) < self._capacity:
            self._append(entry)
        else:
            self._rebuild(now.alive, entry)

    def _replace(self, at: int, entry: Entry) -> None:
        # Readers may hold the arrays: what changes in their midst is changed in a copy.
        now = self.snapshot
        alive = now.alive.copy()
        alive[at] = True
        self._term_counts = self._term_counts.copy()
        self._term_counts[at] = entry.term_count
        self._expires_at = self._expires_at.copy()
        self._expires_at[at] = entry.expires_at
        if self._threads[at] != entry.thread:
            self._threads = self._threads.copy()
            self._threads[at] = entry.thread
        vector = self._unpacked(entry.vector)
        if not np.array_equal(vector, self._matrix[at]):
            self._matrix = self._matrix.copy()
            self._matrix[at] = vector
            self._embedded = self._embedded.copy()
            self._embedded[at] = entry.vector is not None
        was = int(now.alive[at])
        self._publish(
            alive,
            now.count - was + 1,
            now.vectors - (was and int(now.embedded[at])) + (entry.vector is not None),
            now.terms - (was and int(now.term_counts[at])) + entry.term_count,
        )

    def _append(self, entry: Entry) -> None:
        now, n = self.snapshot, len(self.snapshot.rows)
        self._rows[n] = entry.row
        self._term_counts[n] = entry.term_count
        self._expires_at[n] = entry.expires_at
        self._embedded[n] = entry.vector is not None
        self._threads[n] = entry.thread
        if entry.vector is not None:
            self._matrix[n] = self._unpacked(entry.vector)
        vectors = now.vectors + (entry.vector is not None)
        self._publish(np.append(now.alive, True), now.count + 1, vectors, now.terms + entry.term_count)

    def remove(self, row: int) -> None:
        """Take a record out; past 30 % of removed ones the arrays are made anew."""
        now = self.snapshot
        at = now.position(row)
        if at is None or not now.alive[at]:
            return
        alive = now.alive.copy()
        alive[at] = False
        vectors = now.vectors - int(now.embedded[at])
        self._publish(alive, now.count - 1, vectors, now.terms - int(now.term_counts[at]))
        if len(alive) - now.count > max(_LEAST_SPARE, _DEAD_SHARE * len(alive)):
            self._rebuild(alive, None)

    def _rebuild(self, keep: npt.NDArray[np.bool_], entry: Entry | None) -> None:
        now, added = self.snapshot, [entry] if entry is not None else []
        matrix, n = self._matrix, len(now.rows)
        self._fill(
            np.append(now.rows[keep], np.array([one.row for one in added], np.int64)),
            np.append(now.term_counts[keep], np.array([one.term_count for one in added], np.float32)),
            np.append(now.expires_at[keep], np.array([one.expires_at for one in added], np.float64)),
            np.append(now.embedded[keep], np.array([one.vector is not None for one in added], np.bool_)),
            np.concatenate([matrix[:n][keep], *(self._unpacked(one.vector)[None, :] for one in added)]),
            np.append(now.threads[keep], np.array([one.thread for one in added], np.int64)),
        )

    def _unpacked(self, packed: bytes | None) -> npt.NDArray[np.float32]:
        if packed is None:
            return np.zeros(self._matrix.shape[1], np.float32)
        return np.frombuffer(packed, "<f2").astype(np.float32)
