"""A small cache in this process whose entries end after a while. Thread-safe; holds no more than it is told."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """Values by key.

    Args:
        ttl_s: How long an entry lives, seconds; 0 keeps nothing.
        most: How many there may be; past it the oldest go.
        clock: Monotonic seconds.
    """

    def __init__(self, ttl_s: float, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._most = most
        self._clock = clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, or None when there is none any more."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry[0] <= self._clock():
                del self._entries[key]
                return None
            return entry[1]

    def put(self, key: K, value: V) -> None:
        """Keep a value."""
        if self._ttl_s <= 0:
            return
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = (self._clock() + self._ttl_s, value)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
