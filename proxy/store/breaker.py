"""A circuit breaker: what failed is left alone for a moment, so that an outage costs one attempt at a time.

In: outcomes of calls, and a monotonic clock. Out: whether the next call may be tried. Safe to share between threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Breaker:
    """Closed until a failure; then open, letting one probe through per `open_s` until one succeeds.

    Args:
        open_s: Seconds between two attempts while open.
        clock: Monotonic seconds.
    """

    def __init__(self, open_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._open_s = open_s
        self._clock = clock
        self._lock = threading.Lock()
        self._retry_at: float | None = None
        self._reason = ""

    @property
    def is_open(self) -> bool:
        """Whether the last outcome was a failure."""
        return self._retry_at is not None

    @property
    def reason(self) -> str:
        """What the last failure was; empty while closed."""
        return self._reason

    def admits(self) -> bool:
        """Whether a call may be tried now. True claims the probe where one is due: until `open_s` later no other is."""
        if not self.is_open:
            return True
        with self._lock:
            retry_at, now = self._retry_at, self._clock()
            if retry_at is None:
                return True
            if now < retry_at:
                return False
            # Claimed by moving the next attempt on, so that a probe whose thread dies blocks nobody for long.
            self._retry_at = now + self._open_s
            return True

    def failed(self, reason: str) -> None:
        """Open: a call failed."""
        with self._lock:
            self._retry_at = self._clock() + self._open_s
            self._reason = reason

    def succeeded(self) -> None:
        """Close: a call was answered."""
        if self._retry_at is None:
            return
        with self._lock:
            self._retry_at = None
            self._reason = ""
