"""The worker: takes journalled turns off the hot path and has their memories written, in a thread of its own.

In: `JournalTurn`s from the pipeline, and at start those that the journal still holds. Out: nothing; the ledger tells.
A turn that fails is tried again; one that keeps failing is closed as failed, with the reason, and never blocks others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from proxy.errors import StoreUnavailable
from proxy.metrics import Metrics
from proxy.plugs import JournalTurn, Store
from proxy.types import Outcome

log = structlog.get_logger(__name__)
_TRIES = 3
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Job:
    turn: JournalTurn
    tries: int = 0


class Worker:
    """Works turns off one after another, in the order they were answered.

    Args:
        store: Holds the journal.
        handle: Writes the memories of a turn (`Remember.turn`); runs in a thread.
        metrics: Counts failures.
    """

    def __init__(self, store: Store, handle: Callable[[JournalTurn], object], metrics: Metrics) -> None:
        self._store = store
        self._handle = handle
        self._metrics = metrics
        self._queue: asyncio.Queue[_Job] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write-back")
        self._retries: set[asyncio.TimerHandle] = set()

    def submit(self, turn: JournalTurn) -> None:
        """Queue a turn; on the event loop's thread only."""
        self._queue.put_nowait(_Job(turn))

    async def run(self) -> None:
        """Work until cancelled; starts with what the journal holds from before."""
        loop = asyncio.get_running_loop()
        try:
            for turn in await loop.run_in_executor(self._thread, self._waiting):
                self.submit(turn)
            while True:
                job = await self._queue.get()
                await self._work(job)
                self._queue.task_done()
        finally:
            for timer in self._retries:
                timer.cancel()

    async def drain(self) -> None:
        """Wait until everything queued so far is written."""
        await self._queue.join()

    def close(self) -> None:
        """Let the thread go; what is unfinished stays in the journal."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _waiting(self) -> list[JournalTurn]:
        try:
            return list(self._store.journal_waiting())
        except StoreUnavailable:
            return []

    async def _work(self, job: _Job) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._handle, job.turn)
        except StoreUnavailable as error:
            # The disk or another process is in the way: that passes, and the turn is safe in the journal.
            self._failed(job, error)
            self._again(job, _RETRY_S)
        except Exception as error:  # noqa: BLE001 - one turn's write-back must not stop the others
            self._failed(job, error)
            if job.tries + 1 < _TRIES:
                self._again(_Job(job.turn, job.tries + 1), _RETRY_S)
            else:
                await loop.run_in_executor(self._thread, self._give_up, job.turn, error)

    def _again(self, job: _Job, delay_s: float) -> None:
        def put() -> None:
            self._retries.discard(timer)
            self._queue.put_nowait(job)

        timer = asyncio.get_running_loop().call_later(delay_s, put)
        self._retries.add(timer)

    def _give_up(self, turn: JournalTurn, error: Exception) -> None:
        outcome = Outcome("", "failed", None, f"{type(error).__name__}: {error}"[:300])
        try:
            self._store.transact(lambda tx: tx.journal_done(turn.id, "failed", [outcome])).result()
        except StoreUnavailable as unavailable:
            log.error("turn_not_closed", request_id=turn.id, error_type=type(unavailable).__name__)

    def _failed(self, job: _Job, error: Exception) -> None:
        log.error(
            "write_back_failed",
            request_id=job.turn.id,
            error_type=type(error).__name__,
            count=job.tries + 1,
            exc_info=error,
        )
        self._metrics.write_failed(type(error).__name__)
