"""Records kept in memory once read: reading is far more frequent than writing, and a record takes long to decode.

In: rows and records as read, and the rows that commits changed. Out: records by row, never older than the last commit
that a caller was told of.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import NamedTuple

from proxy.glance import Glance, glance
from proxy.types import Memory

MOST = 10_000


class Kept(NamedTuple):
    """A record in memory.

    Args:
        partition: Where it lies.
        memory: The record.
        seen: What ranking must know of it.
    """

    partition: str
    memory: Memory
    seen: Glance


class KeptRecords:
    """Decoded records by row. Safe to use from any thread.

    Args:
        most: How many are kept; past it the ones read in longest ago go.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._records: dict[int, Kept] = {}
        self._rows: dict[str, int] = {}
        self._changes = 0
        self._lock = threading.Lock()

    def find(self, rows: Collection[int], partitions: Collection[str]) -> dict[int, Memory]:
        """Those of `rows` that are kept and lie in one of `partitions`."""
        found = {}
        for row in rows:
            kept = self._records.get(row)
            if kept is not None and kept.partition in partitions:
                found[row] = kept.memory
        return found

    def glances(self, rows: Collection[int], partitions: Collection[str]) -> list[Glance | None]:
        """What ranking must know of each of `rows`; None for those that are not kept, or lie elsewhere."""
        get = self._records.get
        return [kept.seen if (kept := get(row)) is not None and kept.partition in partitions else None for row in rows]

    def named(self, ids: Collection[str], partitions: Collection[str]) -> dict[str, Memory]:
        """Those with one of these ids that are kept and lie in one of `partitions`."""
        found = {}
        for one in ids:
            kept = self._records.get(self._rows.get(one, -1))
            if kept is not None and kept.partition in partitions and kept.memory.id == one:
                found[one] = kept.memory
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
        seen = {row: Kept(partition, memory, glance(memory)) for row, (partition, memory) in read.items()}
        with self._lock:
            if mark != self._changes:
                return
            self._records.update(seen)
            self._rows.update((one.memory.id, row) for row, one in seen.items())
            self._trim()

    def put(self, row: int, partition: str, memory: Memory) -> None:
        """A commit brought a new record."""
        kept = Kept(partition, memory, glance(memory))
        with self._lock:
            self._records[row] = kept
            self._rows[memory.id] = row
            self._trim()

    def drop(self, rows: Collection[int]) -> None:
        """These records changed or are gone."""
        with self._lock:
            self._changes += 1
            for row in rows:
                self._remove(row)

    def _trim(self) -> None:
        surplus = len(self._records) - self._most
        for row in list(self._records)[:surplus] if surplus > 0 else ():
            self._remove(row)

    def _remove(self, row: int) -> None:
        kept = self._records.pop(row, None)
        if kept is not None:
            self._rows.pop(kept.memory.id, None)
