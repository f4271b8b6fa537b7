"""Records kept in memory once read: reading is far more frequent than writing, and a record takes long to decode.

In: rows and records as read, and the rows that commits changed. Out: records by row, never older than the last commit
that a caller was told of.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from proxy.types import Memory

MOST = 10_000


class KeptRecords:
    """Decoded records by row. Safe to use from any thread.

    Args:
        most: How many are kept; past it the ones read in longest ago go.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._records: dict[int, tuple[str, Memory]] = {}
        self._changes = 0
        self._lock = threading.Lock()

    def find(self, rows: Collection[int], partitions: Collection[str]) -> dict[int, Memory]:
        """Those of `rows` that are kept and lie in one of `partitions`."""
        found = {}
        for row in rows:
            kept = self._records.get(row)
            if kept is not None and kept[0] in partitions:
                found[row] = kept[1]
        return found

    def mark(self) -> int:
        """The state of things before a read, for `keep`."""
        return self._changes

    def keep(self, read: Mapping[int, tuple[str, Memory]], mark: int) -> None:
        """Keep what was read, unless a commit came in between: it might have changed just that.

        Args:
            read: Partition and record by row.
            mark: From before the read.
        """
        with self._lock:
            if mark != self._changes:
                return
            self._records.update(read)
            self._trim()

    def put(self, row: int, partition: str, memory: Memory) -> None:
        """A commit brought a new record."""
        with self._lock:
            self._records[row] = partition, memory
            self._trim()

    def drop(self, rows: Collection[int]) -> None:
        """These records changed or are gone."""
        with self._lock:
            self._changes += 1
            for row in rows:
                self._records.pop(row, None)

    def _trim(self) -> None:
        surplus = len(self._records) - self._most
        for row in list(self._records)[:surplus] if surplus > 0 else ():
            del self._records[row]
