"""The one thread that writes: all jobs that wait are done in one transaction, each in its own savepoint.

In: jobs. Out: futures, resolved only once their commit is on disk. A failing job undoes its own writes only; a failing
commit fails its whole group, and the next group tries again on a fresh connection.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from proxy.errors import StoreUnavailable
from proxy.store.health import Health, is_fatal

log = structlog.get_logger(__name__)

T = TypeVar("T")
_MAX_GROUP = 256
PATIENCE_S = 0.02
IDLE_S = 10.0
"""When no job has come for so long, the write-ahead log is emptied."""
_CHECKPOINT_COMMITS = 64
_CHECKPOINT_ROWS = 2_000
"""After as many commits, or rows changed, the write-ahead log is carried over: at about a thousand pages."""


@dataclass(slots=True)
class Unit:
    """One job's view of the transaction.

    Args:
        connection: Inside the job's savepoint.
        after_commit: Called in order once the group is on disk, before the job's future resolves; never when undone.
        erases: Set when the job removed text that must also leave the file: its future then waits for that as well.
    """

    connection: sqlite3.Connection
    after_commit: list[Callable[[], None]] = field(default_factory=list)
    erases: bool = False


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[Unit], Any]
    future: Future[Any]
    patient: bool = False


class Writer:
    """Group commit on a thread of its own.

    Args:
        connect: Opens the database for writing; called on the writer thread, again after a failed commit.
        erase: Removes the traces of erased text from the file, and says whether all are gone; called between
            transactions after jobs that erased, and again (second argument) while some are left.
        health: Told of every failure and success.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        erase: Callable[[sqlite3.Connection, bool], bool],
        health: Health,
    ) -> None:
        self._connect = connect
        self._erase = erase
        self._health = health
        self._connection: sqlite3.Connection | None = None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._patience_s = PATIENCE_S
        self._commits = self._changes = 0
        self._traces = False
        self._landing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Unit], T], *, patient: bool = False) -> Future[T]:
        """Queue a job.

        Args:
            work: What it does.
            patient: Nobody waits for it: it may lie for `PATIENCE_S` so that others share its commit.

        Returns:
            Its result after the commit; its own exception; or `StoreUnavailable`.
        """
        future: Future[T] = Future()
        with self._lock:
            if not self._closed:
                self._jobs.put(_Job(work, future, patient))
                return future
        future.set_exception(StoreUnavailable("the store is closed"))
        return future

    @contextmanager
    def landed(self) -> Iterator[None]:
        """In here, whatever a reader sees of a job has had its `after_commit` too: a commit shows in the file before
        what is kept in memory has heard of it."""
        with self._landing:
            yield

    def close(self) -> None:
        """Finish what is queued, then close the connection. A second call waits for the first."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    # ── on the writer thread ───────────────────────────────────────────────────────────────────────────────────
    def _run(self) -> None:
        last = False
        while not last:
            waiting = [self._next()]
            if (first := waiting[0]) is not None and first.patient:
                waiting += self._company()
            else:
                self._patience_s = PATIENCE_S
            while len(waiting) < _MAX_GROUP and not self._jobs.empty():
                waiting.append(self._jobs.get())
            last = waiting[-1] is None
            group = [job for job in waiting if job is not None and job.future.set_running_or_notify_cancel()]
            if group:
                self._guarded(group)
        self._carry_over("TRUNCATE")
        self._disconnect()

    def _next(self) -> _Job | None:
        """The next job. When none comes for a while, the log is emptied: text that is gone from the database may stand
        in it, and traces of erased text are left there while others read them."""
        while self._commits or self._traces:
            try:
                return self._jobs.get(timeout=IDLE_S)
            except queue.Empty:
                self._commits = 0
                if self._traces:
                    self._scrub(again=True)
                else:
                    self._carry_over("TRUNCATE")
        return self._jobs.get()

    def _company(self) -> list[_Job | None]:
        """The next job, if it comes soon. Not waited for twice in a row: a backlog of patient jobs would take long."""
        wait_s, self._patience_s = self._patience_s, 0.0
        try:
            return [self._jobs.get(timeout=wait_s) if wait_s else self._jobs.get_nowait()]
        except queue.Empty:
            return []

    def _guarded(self, group: list[_Job]) -> None:
        """Top of the loop: a fault of our own must not stop the writing of what comes later."""
        try:
            self._work(group)
        except Exception as error:  # noqa: BLE001
            log.error("store_writer_failed", error_type=type(error).__name__, count=len(group))
            self._disconnect()
            for job in group:
                if not job.future.done():
                    job.future.set_exception(StoreUnavailable(f"the store's writer failed: {error!r}"))

    def _work(self, group: list[_Job]) -> None:
        try:
            self._health.refuse()
            done = self._done(group)
        except StoreUnavailable as error:
            # One exception object per future: a traceback that several threads extend is unreadable.
            for job in group:
                job.future.set_exception(StoreUnavailable(str(error)))
            return
        erasing: list[Callable[[], None]] = []
        for job, unit, result in done:
            resolve = _resolution(job.future, result)
            if unit.erases:
                erasing.append(resolve)
            else:
                resolve()
        if erasing:
            self._scrub()
        for resolve in erasing:
            resolve()
        self._checkpoint()

    def _done(self, group: list[_Job]) -> list[tuple[_Job, Unit, Any]]:
        """Run the group in one transaction.

        Returns:
            Each job with its unit and its result, or the exception that it raised.

        Raises:
            StoreUnavailable: Nothing was written.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            attempt = self._alone if len(group) == 1 else self._attempt
            done = [(job, *attempt(connection, job)) for job in group]
            with self._landing:
                connection.execute("COMMIT")
                for _, unit, _ in done:
                    for follow_up in unit.after_commit:
                        follow_up()
        except sqlite3.Error as error:
            failure = self._health.failed("write", error)
            self._disconnect()
            raise failure from error
        self._health.worked("write")
        return done

    def _alone(self, connection: sqlite3.Connection, job: _Job) -> tuple[Unit, Any]:
        """Run a job that has the transaction to itself and needs no savepoint; as `_attempt` else."""
        unit = Unit(connection)
        try:
            return unit, job.work(unit)
        except Exception as error:
            if not connection.in_transaction or is_fatal(error):
                raise
            connection.execute("ROLLBACK")
            connection.execute("BEGIN")
            return Unit(connection), _Failed(error)

    def _attempt(self, connection: sqlite3.Connection, job: _Job) -> tuple[Unit, Any]:
        """Run one job in its savepoint.

        Raises:
            sqlite3.Error: The whole transaction is lost.
        """
        unit = Unit(connection)
        connection.execute("SAVEPOINT job")
        try:
            result = job.work(unit)
        except Exception as error:
            if not connection.in_transaction or is_fatal(error):
                raise
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            return Unit(connection), _Failed(error)
        connection.execute("RELEASE job")
        return unit, result

    def _checkpoint(self) -> None:
        """Carry the write-ahead log over into the file from time to time. Not within a commit, as SQLite would do it by
        itself: whoever waits for that commit would wait for this."""
        connection = self._connection
        if connection is None:
            return
        self._commits += 1
        if self._commits < _CHECKPOINT_COMMITS and connection.total_changes - self._changes < _CHECKPOINT_ROWS:
            return
        self._commits, self._changes = 0, connection.total_changes
        if self._traces:
            self._scrub(again=True)
        else:
            self._carry_over("PASSIVE")

    def _carry_over(self, how: str) -> None:
        if self._connection is None:
            return
        try:
            with without_waiting(self._connection):
                self._connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        except sqlite3.Error as error:
            # All is in the log and stays there; the next time is soon.
            log.warning("checkpoint_failed", error_type=type(error).__name__)

    def _scrub(self, *, again: bool = False) -> None:
        self._traces = False
        if self._connection is None:
            return
        try:
            self._traces = not self._erase(self._connection, again)
        except sqlite3.Error as error:
            # The records are gone; their traces wait for the next erasure or the next start.
            self._health.failed("write", error)
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._changes = 0


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


def _resolution(future: Future[Any], result: Any) -> Callable[[], None]:
    if isinstance(result, _Failed):
        error = result.error
        return lambda: future.set_exception(error)
    return lambda: future.set_result(result)


@contextmanager
def without_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """In here a lock that somebody else holds is an error, or a "busy", at once."""
    (before_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {before_ms}")
