"""A partition's active records and their vectors, read in chunks: no read transaction lasts long.

In: a partition's name. Out: `Stored` records. What changes between two chunks is the caller's to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from proxy.scope import Scope
from proxy.store import queries, records
from proxy.store.kept import ByRow
from proxy.store.partition import Stored, thread_of
from proxy.store.readers import Readers

_SQL = queries.load("memories")
CHUNK = 1_000
_KEPT_BYTES = 16 * 1024 * 1024
_KEPT_EACH_BYTES = 250
"""What a vector takes in memory beside its numbers."""


class Contents:
    """Reads partitions. Safe to use from any thread.

    Args:
        readers: Of the database.
        fingerprint: Of the present model; other vectors count as none.
        dimension: Of its vectors.
    """

    def __init__(self, readers: Readers, fingerprint: str, dimension: int) -> None:
        self._readers = readers
        self._fingerprint = fingerprint
        self._vectors: ByRow[bytes] = ByRow(_KEPT_BYTES // (4 * dimension + _KEPT_EACH_BYTES))

    def chunks(self, partition: str) -> Iterator[Sequence[Stored]]:
        """All active records; a small partition's in one query.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        keys = {"partition": partition, "fingerprint": self._fingerprint, "cap": CHUNK}
        first = self._readers.all(_SQL["partition_contents"], keys)
        if len(first) < CHUNK:
            yield _stored(first)
        else:
            del first
            yield from self.of_rows(partition, self.rows(partition))

    def of_rows(self, partition: str, rows: npt.NDArray[np.int64]) -> Iterator[Sequence[Stored]]:
        """Those of some records that are still active, in the order given.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        for start in range(0, len(rows), CHUNK):
            chunk = records.dumps(rows[start : start + CHUNK].tolist())
            keys = {"partition": partition, "fingerprint": self._fingerprint, "rows": chunk}
            found = self._readers.all(_SQL["contents_by_rows"], keys)
            yield _stored(found)

    def rows(self, partition: str) -> npt.NDArray[np.int64]:
        """The rows of all active records, ascending.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        found = self._readers.all(_SQL["partition_rows"], {"partition": partition})
        return np.array([row for (row,) in found], np.int64)

    def vectors(self, scope: Scope, rows: Sequence[int]) -> dict[int, bytes]:
        """The vectors of some of the scope's records, float32, by row; those without one are absent.

        Raises:
            StoreUnavailable: It cannot be read now.
        """

        def read(missing: list[int]) -> dict[int, tuple[str, bytes]]:
            agent, user, shared = scope.readable
            keys = {"rows": records.dumps(missing), "agent": agent, "user": user, "shared": shared}
            found = self._readers.all(_SQL["vectors_by_rows"], {**keys, "fingerprint": self._fingerprint})
            wide = _widened([vector for *_, vector in found])
            return {row: (partition, one) for (row, partition, _), one in zip(found, wide, strict=True)}

        return self._vectors.through(rows, scope.readable, read)

    def changed(self, row: int) -> None:
        """A commit changed a record's vector, or took it away."""
        self._vectors.drop((row,))

    def changed_all(self) -> None:
        """Any vector may be another one."""
        self._vectors.clear()

    def large_partitions(self, above: int) -> list[str]:
        """Partitions with more vectors than `above`.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        keys = {"fingerprint": self._fingerprint, "above": above}
        return [partition for (partition,) in self._readers.all(_SQL["large_partitions"], keys)]


def _widened(packed: Sequence[bytes]) -> list[bytes]:
    """Float16 vectors of one length as float32."""
    wide = np.frombuffer(b"".join(packed), "<f2").astype("<f4").tobytes()
    each = len(wide) // max(len(packed), 1)
    return [wide[at : at + each] for at in range(0, len(wide), each)] if each else []


def _stored(found: Sequence[tuple[Any, ...]]) -> list[Stored]:
    return [(row, words, expiry, vector, thread_of(session, at)) for row, words, expiry, vector, session, at in found]
