"""How much one user may have written: the `guard.rate` of the policies. Off as shipped.

In: an owner, a moment, the limits. Out: why a memory must not be written now, or None.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import datetime, timedelta

from proxy.policy.model import Rate

_MINUTE = timedelta(minutes=1)
_OWNERS = 10_000


class Allotment:
    """Counts the writes of each user. Thread-safe."""

    def __init__(self) -> None:
        self._writes: OrderedDict[str, deque[datetime]] = OrderedDict()
        self._lock = threading.Lock()

    def refusal(self, owner: str, rate: Rate, now: datetime, stored: Callable[[], int]) -> str | None:
        """Why one more memory must not be written, or None; then it is counted.

        Args:
            owner: The user's key.
            rate: The limits in force.
            now: The present time.
            stored: How many memories the user has; asked only where that is limited.
        """
        if rate.memories_per_user is not None and stored() >= rate.memories_per_user:
            return f"guard.rate.memories_per_user ({rate.memories_per_user}) is reached"
        if rate.writes_per_minute is None:
            return None
        with self._lock:
            recent = self._writes.setdefault(owner, deque())
            self._writes.move_to_end(owner)
            while recent and now - recent[0] >= _MINUTE:
                recent.popleft()
            if len(recent) >= rate.writes_per_minute:
                return f"guard.rate.writes_per_minute ({rate.writes_per_minute}) is reached"
            recent.append(now)
            while len(self._writes) > _OWNERS:
                self._writes.popitem(last=False)
        return None
