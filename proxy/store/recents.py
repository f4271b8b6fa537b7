"""The newest records of a partition by type, kept in memory: every recall asks for them, and most writes only add one.

In: what was read of a partition, then what commits added or changed. Out: records, newest first.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.types import Memory

MOST = 8
"""How many are kept of each partition and type; longer lists are read."""
_PARTITIONS = 2_000

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Recent:
    """One record and its row."""

    row: int
    memory: Memory


def newest_first(entries: Sequence[Recent]) -> list[Recent]:
    """By `valid_from`, the later row first where equal."""
    return sorted(entries, key=lambda one: (one.memory.valid_from, one.row), reverse=True)


class Recents:
    """The newest of each partition and memory type. Safe to use from any thread."""

    def __init__(self) -> None:
        self._newest: OrderedDict[_Name, tuple[Recent, ...]] = OrderedDict()
        self._changes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, partition: str, memory_type: str) -> tuple[Recent, ...] | None:
        """The newest active ones, at most `MOST`; None when they must be read."""
        return self._newest.get((partition, memory_type))

    def mark(self, partition: str) -> int:
        """The state of things before a read, for `keep`."""
        return self._changes[partition]

    def keep(self, partition: str, memory_type: str, newest: Sequence[Recent], mark: int) -> None:
        """Keep what was read, unless a commit came in between."""
        with self._lock:
            if self._changes[partition] != mark:
                return
            self._newest[partition, memory_type] = tuple(newest)
            while len(self._newest) > _PARTITIONS:
                self._newest.popitem(last=False)

    def inserted(self, partition: str, row: int, memory: Memory) -> None:
        """A commit brought a new active record."""
        with self._lock:
            self._changes[partition] += 1
            name = (partition, memory.memory_type)
            held = self._newest.get(name)
            if held is not None:
                self._newest[name] = tuple(newest_first([Recent(row, memory), *held])[:MOST])

    def changed(self, partition: str) -> None:
        """A commit changed a record, or took it out of the active ones."""
        with self._lock:
            self._changes[partition] += 1
            for name in [name for name in self._newest if name[0] == partition]:
                del self._newest[name]
