"""The postings of small partitions, whole, in memory: a question's terms are then looked up without a query each.

In: a partition's name; after each commit, what was inserted or changed. Out: rows by FTS token. Most scopes are small,
and a call's two dozen look-ups in SQLite cost more than all the rest of its search.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping

from proxy.store import queries
from proxy.store.lexical import token
from proxy.store.readers import Readers

_SQL = queries.load("memories")
MOST_RECORDS = 2_000
"""Larger partitions are asked in SQLite: reading one whole would hold up the first recall."""
_MOST_POSTINGS = 1_000_000
_AFTER_HEX = "g"

Rows = Mapping[str, list[int]]


class TermMaps:
    """Maps of partitions in use. Safe to use from any thread.

    Args:
        readers: Of the database.
        most_postings: How many postings are held; past it the partitions used longest ago go.
    """

    def __init__(self, readers: Readers, most_postings: int = _MOST_POSTINGS) -> None:
        self._readers = readers
        self._most_postings = most_postings
        self._maps: OrderedDict[str, dict[str, list[int]]] = OrderedDict()
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

    def added(self, partition: str, row: int, words: Collection[str]) -> None:
        """A commit made a record active."""
        with self._lock:
            self._changes[partition] += 1
            held = self._maps.get(partition)
            if held is None:
                return
            for word in words:
                rows = held.setdefault(token(partition, word), [])
                at = bisect_left(rows, row)
                # A map read between the commit and this call has the row already.
                if at == len(rows) or rows[at] != row:
                    rows.insert(at, row)
                    self._sizes[partition] += 1

    def removed(self, partition: str, row: int, words: Collection[str]) -> None:
        """A commit took a record out of the active ones, or is about to add it with other words."""
        with self._lock:
            self._changes[partition] += 1
            held = self._maps.get(partition, {})
            for word in words:
                rows = held.get(token(partition, word), [])
                at = bisect_left(rows, row)
                if at < len(rows) and rows[at] == row:
                    del rows[at]
                    self._sizes[partition] -= 1

    def clear(self) -> None:
        """Void everything: each partition is read again when next used."""
        with self._lock:
            for partition in [*self._maps, *self._changes]:
                self._changes[partition] += 1
            self._maps.clear()
            self._sizes.clear()

    def _read(self, partition: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        keys = {"from": partition, "to": partition + _AFTER_HEX}
        for term, row in self._readers.all(_SQL["partition_terms"], keys):
            found.setdefault(term, []).append(row)
        return found
