"""What a cached recall is keyed with: a counter per partition that moves with each commit, and this process's token.

In: partitions as they change. Out: one text per set of partitions. A use count is no change.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Iterable


class Generations:
    """Counts the commits that changed each partition. Safe to use from any thread."""

    def __init__(self) -> None:
        self.boot = secrets.token_hex(8)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def bump(self, partition: str) -> None:
        """A commit changed a record of this partition."""
        with self._lock:
            self._counts[partition] += 1

    def of(self, partitions: Iterable[str]) -> str:
        """One text that differs whenever one of the partitions has changed, also after a restart."""
        return ".".join((self.boot, *(str(self._counts[name]) if name in self._counts else "0" for name in partitions)))
