"""Background work on the index: one thread, one partition at a time, the least pressing work of the process.

In: names of partitions that want a new file. Out: calls of the one function that makes it. A partition whose turn
failed waits before it is tried again; the thread starts with the first request and ends with `close`.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

log = structlog.get_logger(__name__)
RETRY_S = 60.0
_LONGEST_RETRY_S = 3_600.0
_NICE = 10


def least_pressing() -> None:
    """Let every other thread go before this one: whoever waits for an answer goes first."""
    if sys.platform == "linux":
        # On Linux a priority is a thread's own.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class Upkeep:
    """Does what is due, each name once however often it is asked for.

    Args:
        work: Called with a name and with what tells it whether to go on; it ends early when told not to.
    """

    def __init__(self, work: Callable[[str, Callable[[], bool]], None]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._running: str | None = None
        self._failed: dict[str, tuple[float, float]] = {}
        self._trouble: str | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def request(self, name: str) -> None:
        """Ask for a name's turn."""
        with self._changed:
            retry_at, _ = self._failed.get(name, (0.0, 0.0))
            if self._closed or name in self._waiting or time.monotonic() < retry_at:
                return
            self._waiting[name] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store-upkeep", daemon=True)
                self._thread.start()
                # A thread that the interpreter's end meets inside usearch would abort the process.
                atexit.register(self.close)
            self._changed.notify_all()

    def trouble(self) -> str | None:
        """Why the last turn failed; None when it did not."""
        return self._trouble

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing waits or runs; False when the time is up before."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running is None and not self._waiting, timeout_s)

    def forgive(self) -> None:
        """Let what failed be tried again at its next request."""
        with self._changed:
            self._failed.clear()

    def close(self) -> None:
        """End early what runs, and drop what waits."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            atexit.unregister(self.close)

    def _run(self) -> None:
        least_pressing()
        while (name := self._next()) is not None:
            self._turn(name)

    def _next(self) -> str | None:
        with self._changed:
            self._running = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or bool(self._waiting))
            if self._closed:
                return None
            self._running = next(iter(self._waiting))
            del self._waiting[self._running]
            return self._running

    def _turn(self, name: str) -> None:
        """Top of the loop: whatever fails, searches go on without the file."""
        try:
            self._work(name, lambda: not self._closed)
        except Exception as error:  # noqa: BLE001
            if self._closed:
                return
            with self._changed:
                _, delay_s = self._failed.get(name, (0.0, RETRY_S / 2))
                delay_s = min(2 * delay_s, _LONGEST_RETRY_S)
                self._failed[name] = (time.monotonic() + delay_s, delay_s)
                self._trouble = (
                    f"the vector index cannot be written: {error}; large scopes are searched exactly meanwhile"
                )
            log.warning("index_build_failed", partition=name, error_type=type(error).__name__, hint=str(error))
        else:
            with self._changed:
                self._failed.pop(name, None)
                if not self._failed:
                    self._trouble = None
