"""The worker: takes journalled turns off the hot path and has their memories written, in threads of its own.

In: `JournalTurn`s from the pipeline, and at start those that the journal still holds. Out: nothing; the ledger tells.
A turn that fails is tried again; one that keeps failing is closed as failed, with the reason, and never blocks others.
While the store cannot be written all turns wait, in their order: a later word must not be overtaken by an earlier one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog

from proxy.errors import StoreUnavailable
from proxy.metrics import Metrics
from proxy.plugs import JournalTurn, Store
from proxy.scope import Scope
from proxy.types import Outcome

log = structlog.get_logger(__name__)
T = TypeVar("T")
_TRIES = 3
_RETRY_S = 1.0
_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class _Job:
    turn: JournalTurn
    tries: int = 0


def lane_of(scope: Scope, lanes: int) -> int:
    """The lane in which a user's turns follow one another: always the same one, as long as the process lives."""
    return hash((scope.tenant, scope.user_id)) % lanes


class Worker:
    """Works each user's turns off one after another, in the order they were answered.

    Args:
        store: Holds the journal.
        handle: Writes the memories of a turn (`Remember.turn`); runs in a thread.
        metrics: Counts failures.
        retry_s: Between two tries, seconds.
        lanes: How many users' turns are worked on at a time: where a model is asked, one must not wait for another's.
    """

    def __init__(
        self,
        store: Store,
        handle: Callable[[JournalTurn], object],
        metrics: Metrics,
        *,
        retry_s: float = _RETRY_S,
        lanes: int = 1,
    ) -> None:
        self._store = store
        self._handle = handle
        self._metrics = metrics
        self._retry_s = retry_s
        self._lanes = [asyncio.Queue[_Job]() for _ in range(lanes)]
        self._threads = ThreadPoolExecutor(lanes, thread_name_prefix="write-back")
        self._retries: set[asyncio.TimerHandle] = set()
        # Turns handed over before the journal could be read, which names most of them too; None from then on.
        self._early: list[JournalTurn] | None = []
        self._taken_up = asyncio.Event()

    def submit(self, turn: JournalTurn) -> None:
        """Queue a turn; on the event loop's thread only."""
        if self._early is not None:
            self._early.append(turn)
        else:
            self._put(_Job(turn))

    def _put(self, job: _Job) -> None:
        self._lanes[lane_of(job.turn.scope, len(self._lanes))].put_nowait(job)

    async def run(self) -> None:
        """Work until cancelled; starts with what the journal holds from before."""
        try:
            await self._take_up()
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes:
                    group.create_task(self._keep_working(lane))
        finally:
            for timer in self._retries:
                timer.cancel()

    async def _keep_working(self, lane: asyncio.Queue[_Job]) -> None:
        while True:
            job = await lane.get()
            await self._work(job)
            lane.task_done()

    async def drain(self) -> None:
        """Wait until everything queued so far is written; what the journal holds from before is queued first."""
        await self._taken_up.wait()
        for lane in self._lanes:
            await lane.join()

    def close(self) -> None:
        """Let the threads go; what is unfinished stays in the journal."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _take_up(self) -> None:
        found: list[JournalTurn] = []
        try:
            found = await self._patiently(lambda: list(self._store.journal_waiting()))
        except Exception as error:
            log.error("journal_not_taken_up", error_type=type(error).__name__, exc_info=error)
        early, self._early = self._early or [], None
        known = {turn.id for turn in found}
        for turn in (*found, *(turn for turn in early if turn.id not in known)):
            self.submit(turn)
        self._taken_up.set()

    async def _work(self, job: _Job) -> None:
        try:
            await self._patiently(lambda: self._handle(job.turn), job)
        except Exception as error:  # noqa: BLE001 - one turn's write-back must not stop the others
            self._failed(job, error)
            if job.tries + 1 < _TRIES:
                self._again(_Job(job.turn, job.tries + 1))
            else:
                await self._give_up(job, error)

    async def _patiently(self, work: Callable[[], T], job: _Job | None = None) -> T:
        """Run something in the thread, again and again while the disk or another process is in the way of the store.

        That passes, and the turn is safe in the journal.
        """
        loop, tries = asyncio.get_running_loop(), 0
        while True:
            try:
                return await loop.run_in_executor(self._threads, work)
            except StoreUnavailable as error:
                tries += 1
                # A store that is well refuses only this turn, for which nobody else is to wait.
                if tries >= _TRIES and self._store.health() is None:
                    raise
                if job is not None and tries == 1:
                    self._failed(job, error)
            await asyncio.sleep(self._retry_s)

    def _again(self, job: _Job) -> None:
        def put() -> None:
            self._retries.discard(timer)
            self._put(job)

        timer = asyncio.get_running_loop().call_later(self._retry_s, put)
        self._retries.add(timer)

    async def _give_up(self, job: _Job, error: Exception) -> None:
        outcome = Outcome("", "failed", None, f"{type(error).__name__}: {error}"[:_REASON_CHARS])

        def close() -> None:
            turn = job.turn
            self._store.transact(
                lambda tx: tx.journal_done(turn.id, "failed", [outcome], worked_on=turn.answered_as)
            ).result()

        try:
            await self._patiently(close)
        except Exception as unclosed:  # noqa: BLE001 - as above; the next start tries the turn again
            log.error("turn_not_closed", request_id=job.turn.id, error_type=type(unclosed).__name__)

    def _failed(self, job: _Job, error: Exception) -> None:
        log.error(
            "write_back_failed",
            request_id=job.turn.id,
            error_type=type(error).__name__,
            count=job.tries + 1,
            exc_info=error,
        )
        self._metrics.write_failed(type(error).__name__)
