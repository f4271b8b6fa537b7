"""Group commit: what a future promises, and what one job's or one commit's failure costs the others."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from proxy.errors import StoreUnavailable
from proxy.store.health import Health
from proxy.store.writer import Unit, Writer
from tests.running import eventually


class Bench:
    """A writer on a small table, and what happened to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.health = Health(path)
        self.erased = 0
        self.erased_again = 0
        self.read_by_others = False
        self.commits = 0
        self.writer = Writer(self._connect, self._erase, self.health)
        self.writer.submit(lambda unit: unit.connection.execute("CREATE TABLE t (x UNIQUE)")).result(10)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=0.05)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.set_trace_callback(lambda sql: self._count(sql))
        return connection

    def _count(self, sql: str) -> None:
        self.commits += sql == "COMMIT"

    def _erase(self, connection: sqlite3.Connection, again: bool) -> bool:
        assert not connection.in_transaction
        self.erased += not again
        self.erased_again += again
        return not self.read_by_others

    def add(self, x: object) -> Future[None]:
        return self.writer.submit(lambda unit: insert(unit, x))

    def stored(self) -> list[object]:
        connection = sqlite3.connect(self.path)
        try:
            return [x for (x,) in connection.execute("SELECT x FROM t ORDER BY x")]
        finally:
            connection.close()

    def held_up(self) -> Callable[[], object]:
        """Keep the writer busy, so that what is queued now becomes one group; call the result to let it go on."""
        begun, may_end = threading.Event(), threading.Event()

        def work(unit: Unit) -> None:
            begun.set()
            assert may_end.wait(10)

        self.writer.submit(work)
        assert begun.wait(10)
        return may_end.set


def fails(unit: Unit) -> None:
    raise ZeroDivisionError


def insert(unit: Unit, x: object) -> None:
    unit.connection.execute("INSERT INTO t VALUES (?)", (x,))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "t.db")
    yield made
    made.writer.close()


def test_a_resolved_future_is_on_disk(bench: Bench) -> None:
    bench.add(1).result(10)
    assert bench.stored() == [1]


def test_jobs_that_wait_share_one_commit(bench: Bench) -> None:
    go_on = bench.held_up()
    before = bench.commits
    futures = [bench.add(x) for x in range(50)]
    go_on()
    for future in futures:
        future.result(10)
    assert bench.commits - before == 2
    assert bench.stored() == list(range(50))


def test_a_failing_job_undoes_only_its_own_writes(bench: Bench) -> None:
    def fails_late(unit: Unit) -> None:
        insert(unit, 2)
        raise LookupError("on purpose")

    go_on = bench.held_up()
    good, bad, twice, later = bench.add(1), bench.writer.submit(fails_late), bench.add(1), bench.add(3)
    go_on()
    with pytest.raises(LookupError, match="on purpose"):
        bad.result(10)
    with pytest.raises(sqlite3.IntegrityError):
        twice.result(10)
    good.result(10)
    later.result(10)
    assert bench.stored() == [1, 3]


def test_a_failing_job_on_its_own_leaves_nothing(bench: Bench) -> None:
    def fails_late(unit: Unit) -> None:
        insert(unit, 2)
        raise LookupError

    with pytest.raises(LookupError):
        bench.writer.submit(fails_late).result(10)
    bench.add(3).result(10)
    assert bench.stored() == [3]


def test_follow_ups_run_after_the_commit_and_before_the_future_resolves(bench: Bench) -> None:
    seen: list[list[object]] = []

    def work(unit: Unit) -> None:
        insert(unit, 1)
        unit.after_commit.append(lambda: seen.append(bench.stored()))

    bench.writer.submit(work).result(10)
    assert seen == [[1]]


def test_follow_ups_of_an_undone_job_never_run(bench: Bench) -> None:
    seen: list[int] = []

    def work(unit: Unit) -> None:
        unit.after_commit.append(lambda: seen.append(1))
        raise LookupError

    with pytest.raises(LookupError):
        bench.writer.submit(work).result(10)
    bench.add(1).result(10)
    assert seen == []


def test_a_group_erases_once_and_only_erasing_jobs_wait_for_it(bench: Bench) -> None:
    def erases(unit: Unit) -> None:
        unit.erases = True

    go_on = bench.held_up()
    plain = bench.add(1)
    counts: list[int] = []
    plain.add_done_callback(lambda _: counts.append(bench.erased))
    erasing = [bench.writer.submit(erases) for _ in range(5)]
    erasing[0].add_done_callback(lambda _: counts.append(bench.erased))
    go_on()
    for future in erasing:
        future.result(10)
    assert counts == [0, 1]
    assert bench.erased == 1


def test_traces_that_others_still_read_are_looked_after_without_any_further_write(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.store.writer.IDLE_S", 0.01)

    def erases(unit: Unit) -> None:
        unit.erases = True

    bench.read_by_others = True
    bench.writer.submit(erases).result(10)
    assert bench.erased == 1
    eventually(lambda: bench.erased_again > 2)
    bench.read_by_others = False
    tried = bench.erased_again
    eventually(lambda: bench.erased_again > tried)
    bench.add(1).result(10)
    assert (bench.erased, bench.stored()) == (1, [1])


def test_traces_are_looked_after_when_the_writer_is_never_idle(bench: Bench) -> None:
    def erases(unit: Unit) -> None:
        unit.erases = True

    bench.read_by_others = True
    bench.writer.submit(erases).result(10)
    for number in range(200):
        bench.add(number).result(10)
    assert bench.erased_again >= 2


def test_a_locked_database_fails_the_group_and_heals_by_itself(bench: Bench) -> None:
    other = sqlite3.connect(bench.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    futures = [bench.add(1), bench.add(2)]
    for future in futures:
        with pytest.raises(StoreUnavailable, match="lock"):
            future.result(10)
    assert "lock" in (bench.health.sentence() or "")
    other.execute("ROLLBACK")
    other.close()
    bench.add(3).result(10)
    assert bench.health.sentence() is None
    assert bench.stored() == [3]


def test_a_full_disk_fails_the_group_and_heals_by_itself(bench: Bench) -> None:
    def limit(unit: Unit) -> None:
        # A database that may not grow fails as a full disk does.
        pages = unit.connection.execute("PRAGMA page_count").fetchone()[0]
        unit.connection.execute(f"PRAGMA max_page_count = {pages}")

    bench.writer.submit(limit).result(10)
    bench.add("small").result(10)
    go_on = bench.held_up()
    futures = [bench.add("little"), bench.add("x" * 500_000)]
    go_on()
    for future in futures:
        with pytest.raises(StoreUnavailable, match="full"):
            future.result(10)
    # The next group opens a fresh connection, whose limit is the default one.
    bench.add("y" * 500_000).result(10)
    assert bench.health.sentence() is None
    assert bench.stored() == ["small", "y" * 500_000]


def test_closing_finishes_what_is_queued(bench: Bench) -> None:
    go_on = bench.held_up()
    futures = [bench.add(x) for x in range(10)]
    closing = threading.Thread(target=bench.writer.close)
    closing.start()
    go_on()
    closing.join(10)
    assert all(future.done() for future in futures)
    assert bench.stored() == list(range(10))
    with pytest.raises(StoreUnavailable, match="closed"):
        bench.add(11).result(10)


def test_a_cancelled_job_is_not_done(bench: Bench) -> None:
    go_on = bench.held_up()
    cancelled = bench.add(1)
    assert cancelled.cancel()
    go_on()
    bench.add(2).result(10)
    assert bench.stored() == [2]


def test_a_fault_of_our_own_does_not_stop_later_writes(bench: Bench) -> None:
    def work(unit: Unit) -> None:
        unit.after_commit.append(lambda: fails(unit))

    with pytest.raises(StoreUnavailable, match="ZeroDivision"):
        bench.writer.submit(work).result(10)
    bench.add(2).result(10)
    assert bench.stored() == [2]


def test_a_patient_job_shares_the_commit_of_the_next_one(bench: Bench) -> None:
    before = bench.commits
    patient = bench.writer.submit(lambda unit: insert(unit, 1), patient=True)
    bench.add(2).result(10)
    patient.result(10)
    assert (bench.stored(), bench.commits - before) == ([1, 2], 1)


def test_a_patient_job_is_written_when_nobody_comes(bench: Bench) -> None:
    for number in range(3):
        bench.writer.submit(partial(insert, x=number), patient=True).result(10)
    assert bench.stored() == [0, 1, 2]


def test_closing_does_not_leave_a_patient_job_behind(bench: Bench) -> None:
    patient = bench.writer.submit(lambda unit: insert(unit, 1), patient=True)
    bench.writer.close()
    assert patient.result(0) is None
    assert bench.stored() == [1]


def test_what_a_reader_sees_in_there_has_been_heard_of_in_memory(bench: Bench) -> None:
    heard: list[str] = []
    committed, may_hear = threading.Event(), threading.Event()

    def hear() -> None:
        committed.set()
        assert may_hear.wait(10)
        heard.append("heard")

    def work(unit: Unit) -> None:
        insert(unit, 1)
        unit.after_commit.append(hear)

    def look() -> tuple[list[object], list[str]]:
        with bench.writer.landed():
            return bench.stored(), [*heard]

    written = bench.writer.submit(work)
    assert committed.wait(10)
    assert bench.stored() == [1]
    with ThreadPoolExecutor(1) as threads:
        looked = threads.submit(look)
        with pytest.raises(TimeoutError):
            looked.result(0.05)
        may_hear.set()
        assert looked.result(10) == ([1], ["heard"])
    written.result(10)


def test_the_write_ahead_log_is_carried_over_after_some_commits(bench: Bench) -> None:
    log = bench.path.with_name(f"{bench.path.name}-wal")
    bench.writer.submit(lambda unit: insert(unit, "0" * 1_000)).result(10)
    one = log.stat().st_size
    for number in range(300):
        bench.add(number).result(10)
    assert log.stat().st_size < 150 * one


def test_the_log_is_emptied_when_no_job_comes_for_a_while_and_at_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bench.path.with_name("t.db-wal")
    monkeypatch.setattr("proxy.store.writer.IDLE_S", 0.01)
    bench.add("swordfish").result(10)
    eventually(lambda: log.stat().st_size == 0)
    monkeypatch.setattr("proxy.store.writer.IDLE_S", 60)
    bench.add("marlin").result(10)
    with closing(sqlite3.connect(bench.path)) as other:  # the last connection to close would empty it by itself
        assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)
        assert log.stat().st_size > 0
        bench.writer.close()
        assert log.stat().st_size == 0
