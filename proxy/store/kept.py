"""Records kept in memory once read: reading is far more frequent than writing, and a record takes long to decode.

In: rows and what was read of them, and the rows that commits changed. Out: the same by row, never older than the last
commit that a caller was told of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Generic, TypeVar

from proxy.glance import Glance, glance
from proxy.types import Memory

MOST = 10_000
T = TypeVar("T")


class ByRow(Generic[T]):
    """What was read of records, by row. Safe to use from any thread.

    Args:
        most: How many are kept; past it the ones read in longest ago go.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[int, tuple[str, T]] = {}
        self._changes = 0
        self._lock = threading.Lock()

    def find(self, rows: Collection[int], partitions: Collection[str]) -> dict[int, T]:
        """Those of `rows` that are kept and lie in one of `partitions`."""
        get = self._held.get
        return {row: held[1] for row in rows if (held := get(row)) is not None and held[0] in partitions}

    def through(
        self,
        rows: Collection[int],
        partitions: Collection[str],
        read: Callable[[list[int]], Mapping[int, tuple[str, T]]],
    ) -> dict[int, T]:
        """As `find`, and what is not kept is read, and kept from then on.

        Args:
            rows: Which.
            partitions: Where they may lie.
            read: Gives partition and what was read, by row, of rows that are not kept; those that lie elsewhere are
                absent.
        """
        found = self.find(rows, partitions)
        if missing := [row for row in rows if row not in found]:
            mark = self.mark()
            fresh = read(missing)
            self.keep(fresh, mark)
            found |= {row: value for row, (_, value) in fresh.items()}
        return found

    def mark(self) -> int:
        """The state of things before a read, for `keep`."""
        return self._changes

    def keep(self, read: Mapping[int, tuple[str, T]], mark: int) -> None:
        """Keep what was read, unless a commit came in between: it might have changed just that.

        Args:
            read: Partition and what was read, by row.
            mark: From before the read.
        """
        with self._lock:
            if mark == self._changes:
                self._add(read)

    def drop(self, rows: Collection[int]) -> None:
        """These records changed or are gone."""
        with self._lock:
            self._changes += 1
            for row in rows:
                self._remove(row)

    def clear(self) -> None:
        """Any may have changed."""
        with self._lock:
            self._changes += 1
            for row in [*self._held]:
                self._remove(row)

    def _add(self, read: Mapping[int, tuple[str, T]]) -> None:
        self._held.update(read)
        surplus = len(self._held) - self._most
        if surplus > 0:
            for row in [*islice(self._held, surplus)]:
                self._remove(row)

    def _remove(self, row: int) -> T | None:
        held = self._held.pop(row, None)
        return None if held is None else held[1]


class KeptRecords(ByRow[Memory]):
    """Decoded records, by row and by id; and by row what ranking must know of them, which is asked for far more often.

    Args:
        most: How many of each are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        super().__init__(most)
        self.glances: ByRow[Glance] = ByRow(most)
        self._rows: dict[str, int] = {}

    def named(self, ids: Collection[str], partitions: Collection[str]) -> dict[str, Memory]:
        """Those with one of these ids that are kept and lie in one of `partitions`."""
        rows = [row for one in ids if (row := self._rows.get(one)) is not None]
        found = {memory.id: memory for memory in self.find(rows, partitions).values()}
        return {one: found[one] for one in ids if one in found}

    def put(self, row: int, partition: str, memory: Memory) -> None:
        """A commit brought a new record."""
        with self._lock:
            self._add({row: (partition, memory)})
        self.glances.keep({row: (partition, glance(memory))}, self.glances.mark())

    def drop(self, rows: Collection[int]) -> None:
        super().drop(rows)
        self.glances.drop(rows)

    def clear(self) -> None:
        super().clear()
        self.glances.clear()

    def _add(self, read: Mapping[int, tuple[str, Memory]]) -> None:
        self._rows.update((memory.id, row) for row, (_, memory) in read.items())
        super()._add(read)

    def _remove(self, row: int) -> Memory | None:
        memory = super()._remove(row)
        if memory is not None:
            self._rows.pop(memory.id, None)
        return memory
