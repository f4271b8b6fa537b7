"""A large partition: most of its vectors lie in an index file, the newer and the changed ones in a tail beside it.

In: a verified file, the partition's rows from the store, then one change after the other. Out: immutable `Snapshot`s.
A record is searched in the file only where its vector in the store is the one that the file was built from; so neither
an older file nor another database's can show or hide anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from proxy.store.index_file import IndexFile
from proxy.store.marks import marks_of
from proxy.store.partition import NEVER, Entry, Partition, Snapshot, Stored

_ROW_BYTES = 26
"""Of the arrays below, and of what brings each vector to unit length."""


class Filed:
    """One large partition's arrays and how they change. Not thread-safe: `VectorIndex` holds its lock.

    Args:
        file: Verified.
        stored: All active records of the partition, in chunks.
        dimension: Vector length.
    """

    def __init__(self, file: IndexFile, stored: Iterable[Sequence[Stored]], dimension: int) -> None:
        self.file = file
        self.stale = False
        self._dimension = dimension
        n = len(file.rows)
        self._term_counts = np.zeros(n, np.float32)
        self._expires_at = np.full(n, NEVER)
        self._embedded: npt.NDArray[np.bool_] = file.marks != 0
        self._alive = np.zeros(n, np.bool_)
        self._threads = np.zeros(n, np.int64)
        self._tail = Partition((self._take(chunk) for chunk in stored), dimension)
        terms = int(self._term_counts[self._alive].sum(dtype=np.float64))
        self._base = self._based(int(self._alive.sum()), int((self._alive & self._embedded).sum()), terms)
        self._publish()

    def _take(self, chunk: Sequence[Stored]) -> list[Stored]:
        """Take up what the file knows; give back the rest."""
        at, known = self._known([row for row, *_ in chunk], [vector for *_, vector, _ in chunk])
        place = at[known]
        self._alive[place] = True
        self._term_counts[place] = [count for (_, count, *_), is_known in zip(chunk, known, strict=True) if is_known]
        self._expires_at[place] = [
            NEVER if expiry is None else expiry
            for (_, _, expiry, *_), is_known in zip(chunk, known, strict=True)
            if is_known
        ]
        self._threads[place] = [thread for (*_, thread), is_known in zip(chunk, known, strict=True) if is_known]
        return [one for one, is_known in zip(chunk, known, strict=True) if not is_known]

    def _known(
        self, rows: Sequence[int], vectors: Sequence[bytes | None]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Where rows stand in the file, and whether they stand there with this vector."""
        wanted = np.array(rows, np.int64)
        at = np.minimum(np.searchsorted(self.file.rows, wanted), len(self.file.rows) - 1)
        same = (self.file.rows[at] == wanted) & (self.file.marks[at] == marks_of(vectors, self._dimension))
        return at, same

    @property
    def parts(self) -> tuple[Snapshot, ...]:
        """What to search."""
        return self._parts

    @property
    def vectors(self) -> int:
        """How many active records have a vector."""
        return sum(part.vectors for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory; the file is held by the system's page cache."""
        return _ROW_BYTES * len(self.file.rows) + self._tail.nbytes

    @property
    def churn(self) -> float:
        """How many records the file has too many or too few, as a share of what it has."""
        base, tail = self._base, self._tail.snapshot
        return (len(base.rows) - base.count + tail.count) / len(base.rows)

    def put(self, entry: Entry) -> None:
        """Add a record, or replace it by its new state."""
        (at,), (known,) = self._known([entry.row], [entry.vector])
        if known:
            self._keep(int(at), entry)
            self._tail.remove(entry.row)
        else:
            self._lose(entry.row)
            self._tail.put(entry)
        self._publish()

    def remove(self, row: int) -> None:
        """Take a record out."""
        self._lose(row)
        self._tail.remove(row)
        self._publish()

    def _keep(self, at: int, entry: Entry) -> None:
        base = self._base
        was = bool(base.alive[at])
        if (
            was
            and base.term_counts[at] == entry.term_count
            and base.expires_at[at] == entry.expires_at
            and base.threads[at] == entry.thread
        ):
            return
        # Readers may hold the arrays: what changes in their midst is changed in a copy.
        self._alive, self._term_counts = base.alive.copy(), base.term_counts.copy()
        self._expires_at, self._threads = base.expires_at.copy(), base.threads.copy()
        self._alive[at], self._term_counts[at], self._expires_at[at] = True, entry.term_count, entry.expires_at
        self._threads[at] = entry.thread
        self._base = self._based(
            base.count + (not was),
            base.vectors + (not was and bool(base.embedded[at])),
            base.terms - (int(base.term_counts[at]) if was else 0) + entry.term_count,
        )

    def _lose(self, row: int) -> None:
        base = self._base
        at = base.position(row)
        if at is None or not base.alive[at]:
            return
        self._alive = base.alive.copy()
        self._alive[at] = False
        terms = base.terms - int(base.term_counts[at])
        self._base = self._based(base.count - 1, base.vectors - int(base.embedded[at]), terms)

    def _publish(self) -> None:
        # Both at once: a record that moves from the one to the other is never in neither.
        self._parts = (self._base, self._tail.snapshot)

    def _based(self, count: int, vectors: int, terms: int) -> Snapshot:
        return Snapshot(
            rows=self.file.rows,
            term_counts=self._term_counts,
            expires_at=self._expires_at,
            alive=self._alive,
            embedded=self._embedded,
            matrix=None,
            count=count,
            vectors=vectors,
            terms=terms,
            threads=self._threads,
            filed=self.file.vectors,
        )
