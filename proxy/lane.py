"""A few threads that do calls which somebody waits for, and not for longer than they want to.

In: functions. Out: their results in time, or `TimeoutError`; what comes too late is dropped. The threads keep no
process alive: one that hangs in a call ends with it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

T = TypeVar("T")


class Lane:
    """Threads that start when first needed. Safe to use from any thread.

    Args:
        name: Of the threads.
        width: How many calls go on at once, ≥ 1.
    """

    def __init__(self, name: str, width: int) -> None:
        self._name = name
        self._width = width
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: set[Future[Any]] = set()
        self._threads = 0
        self._unfinished = 0
        self._closed = False

    def call(self, work: Callable[[], T], within_s: float) -> T:
        """The result of `work`, done in one of the threads.

        Args:
            work: What to do.
            within_s: How long to wait for it, in line and at work, seconds.

        Raises:
            TimeoutError: It takes longer, or the lane was closed meanwhile.
            Exception: Whatever `work` raises.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise TimeoutError
            # A call that nobody waits for any more keeps its thread until it ends.
            self._unfinished += 1
            if self._threads < min(self._width, self._unfinished):
                self._threads += 1
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._waiting.add(future)
            self._jobs.put((work, future))
        try:
            return future.result(within_s)
        except CancelledError as error:
            raise TimeoutError from error
        finally:
            future.cancel()
            with self._lock:
                self._waiting.discard(future)

    def close(self) -> None:
        """Let nobody wait any more; threads end after what they do."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
            for _ in range(self._threads):
                self._jobs.put(None)
        for future in waiting:
            if not future.cancel() and not future.done():
                _settle(future, TimeoutError())

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            if future.set_running_or_notify_cancel():
                _do(work, future)
            with self._lock:
                self._unfinished -= 1


def _do(work: Callable[[], T], future: Future[T]) -> None:
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 - handed to whoever waits
        _settle(future, error)
    else:
        _settle(future, None, result)


def _settle(future: Future[Any], error: BaseException | None, result: Any = None) -> None:
    """Resolve a future, unless the lane's end or its own work was quicker."""
    try:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
    except InvalidStateError:
        return
