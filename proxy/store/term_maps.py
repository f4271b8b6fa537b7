"""The postings of small partitions, whole, in memory: a question's terms are then looked up without a query each.

In: a partition's name; after each commit, what was inserted or changed. Out: rows by FTS token. Most scopes are small,
and a call's two dozen look-ups in SQLite cost more than all the rest of its search.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from proxy.store import queries
from proxy.store.readers import Readers

_SQL = queries.load("memories")
MOST_RECORDS = 2_000
"""Larger partitions are asked in SQLite: reading one whole would hold up the first recall."""
_MOST_POSTINGS = 1_000_000
_AFTER_HEX = "g"

_LEAST_ROOM = 4


class TermRows:
    """The rows that hold one term, ascending.

    They are given out as an array, made when first asked for; a row that comes last, as new ones do, is added to it in
    place, behind what others may be looking at.
    """

    __slots__ = ("_array", "_filled", "_rows")

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._array: npt.NDArray[np.int64] | None = None
        self._filled = 0

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, row: int) -> None:
        """Add a row above all others."""
        self._rows.append(row)

    def add(self, row: int) -> bool:
        """Add a row; False when it is there already."""
        at = bisect_left(self._rows, row)
        if at == len(self._rows):
            self._rows.append(row)
            return True
        if self._rows[at] == row:
            return False
        self._rows = [*self._rows[:at], row, *self._rows[at:]]
        self._array = None
        return True

    def remove(self, row: int) -> bool:
        """Take a row out; False when it is not there."""
        at = bisect_left(self._rows, row)
        if at == len(self._rows) or self._rows[at] != row:
            return False
        self._rows = [*self._rows[:at], *self._rows[at + 1 :]]
        self._array = None
        return True

    def array(self) -> npt.NDArray[np.int64]:
        """The rows; nobody writes into what was given out."""
        rows, array = self._rows, self._array
        count = len(rows)
        if array is None or count > len(array):
            array = np.empty(count + max(count // 2, _LEAST_ROOM), np.int64)
            array[:count] = rows
        elif self._filled < count:
            array[self._filled : count] = rows[self._filled : count]
        self._array, self._filled = array, count
        return array[:count]


Rows = Mapping[str, TermRows]


class TermMaps:
    """Maps of partitions in use. Safe to use from any thread.

    Args:
        readers: Of the database.
        most_postings: How many postings are held; past it the partitions used longest ago go.
    """

    def __init__(self, readers: Readers, most_postings: int = _MOST_POSTINGS) -> None:
        self._readers = readers
        self._most_postings = most_postings
        self._maps: OrderedDict[str, dict[str, TermRows]] = OrderedDict()
        self._sizes: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, partition: str, count: int) -> Rows | None:
        """The partition's postings, rows ascending.

        Args:
            partition: Its name.
            count: Its active records.

        Returns:
            Rows by token (`lexical.token`); None when it is too large, or changed while it was read.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        if count > MOST_RECORDS:
            return None
        with self._lock:
            held = self._maps.get(partition)
            if held is not None:
                self._maps.move_to_end(partition)
                return held
            mark = self._changes[partition]
        read = self._read(partition)
        with self._lock:
            if self._changes[partition] != mark:
                return None
            self._maps[partition] = read
            self._sizes[partition] = sum(len(rows) for rows in read.values())
            while self._sizes.total() > self._most_postings and len(self._maps) > 1:
                oldest, _ = self._maps.popitem(last=False)
                del self._sizes[oldest]
        return read

    def added(self, partition: str, row: int, tokens: Collection[str]) -> None:
        """A commit made a record active; `tokens` as in `lexical.token`."""
        with self._lock:
            self._changes[partition] += 1
            held = self._maps.get(partition)
            if held is None:
                return
            for name in tokens:
                rows = held.get(name)
                if rows is None:
                    rows = held[name] = TermRows()
                # A map read between the commit and this call has the row already.
                self._sizes[partition] += rows.add(row)

    def removed(self, partition: str, row: int, tokens: Collection[str]) -> None:
        """A commit took a record out of the active ones, or is about to add it with other words."""
        with self._lock:
            self._changes[partition] += 1
            held = self._maps.get(partition, {})
            for name in tokens:
                rows = held.get(name)
                if rows is not None:
                    self._sizes[partition] -= rows.remove(row)

    def clear(self) -> None:
        """Void everything: each partition is read again when next used."""
        with self._lock:
            for partition in [*self._maps, *self._changes]:
                self._changes[partition] += 1
            self._maps.clear()
            self._sizes.clear()

    def _read(self, partition: str) -> dict[str, TermRows]:
        found: dict[str, TermRows] = {}
        keys = {"from": partition, "to": partition + _AFTER_HEX}
        for term, row in self._readers.all(_SQL["partition_terms"], keys):
            rows = found.get(term)
            if rows is None:
                rows = found[term] = TermRows()
            rows.append(row)
        return found
