"""The worker's line: in order, patient with the store, through with what never works, and never broken off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from proxy.errors import StoreUnavailable
from proxy.metrics import Metrics
from proxy.observe import answer_hash
from proxy.plugs import JournalTurn
from proxy.store.sqlite import SqliteStore
from proxy.types import Answer
from proxy.worker import Worker
from tests.running import eventually
from tests.store_samples import ALICE, DIMENSION, Clock, account, said, turn

RETRY_S = 0.001


class FaultyStore(SqliteStore):
    """A store whose health and journal fail on demand."""

    sick: str | None = None
    unreadable = 0

    def health(self) -> str | None:
        return self.sick

    def journal_waiting(self) -> Iterator[JournalTurn]:
        if self.unreadable:
            self.unreadable -= 1
            raise StoreUnavailable
        return super().journal_waiting()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FaultyStore]:
    """A store of this test's own."""
    opened = FaultyStore(
        tmp_path / "m.db", fingerprint="f", dimension=DIMENSION, answer_hash=answer_hash, clock=Clock()
    )
    yield opened
    opened.close()


class Written:
    """Stands for `Remember.turn`: closes the turn, after as many failures as a test wants."""

    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        self.failures: dict[str, list[Exception]] = {}
        self.tried: list[str] = []
        self.done: list[str] = []

    def __call__(self, turn: JournalTurn) -> None:
        self.tried.append(turn.id)
        if self.failures.get(turn.id):
            raise self.failures[turn.id].pop(0)
        self.store.transact(lambda tx: tx.journal_done(turn.id, "done", [])).result()
        self.done.append(turn.id)


@asynccontextmanager
async def working(store: FaultyStore, written: Written) -> AsyncIterator[Worker]:
    """A worker at work."""
    worker = Worker(store, written, Metrics(), retry_s=RETRY_S)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        worker.close()


def answered(store: FaultyStore, name: str) -> JournalTurn:
    """A turn whose two parts are in the journal."""
    opened = turn(said(name), id=name)
    store.journal_open(opened, account(opened, written_status="queued")).result()
    store.journal_answer(name, Answer("Noted."), []).result()
    return opened


def told(store: FaultyStore, name: str) -> tuple[str, list[str]]:
    """What the ledger says of a turn."""
    ledger = store.ledger(ALICE, name)
    assert ledger is not None
    return ledger.written_status, [one.reason for one in ledger.outcomes]


async def until(condition: Callable[[], bool]) -> None:
    """Let the worker go on until something is so."""
    await asyncio.to_thread(eventually, condition)


async def test_while_the_store_is_unavailable_turns_wait_in_their_order(store: FaultyStore) -> None:
    written = Written(store)
    written.failures["first"] = [StoreUnavailable() for _ in range(5)]
    store.sick = "its disk is full"
    async with working(store, written) as worker:
        for name in ("first", "second", "third"):
            worker.submit(answered(store, name))
        await until(lambda: len(written.done) == 3)
    assert written.tried == [*["first"] * 6, "second", "third"]
    assert written.done == ["first", "second", "third"]


async def test_a_turn_that_only_a_healthy_store_refuses_lets_the_others_pass(store: FaultyStore) -> None:
    written = Written(store)
    written.failures["first"] = [StoreUnavailable("of its own making") for _ in range(100)]
    async with working(store, written) as worker:
        for name in ("first", "second"):
            worker.submit(answered(store, name))
        await until(lambda: told(store, "first")[0] == "failed")
    assert written.done == ["second"]
    assert told(store, "first") == ("failed", ["StoreUnavailable: of its own making"])


async def test_a_turn_that_fails_for_a_moment_is_written(store: FaultyStore) -> None:
    written = Written(store)
    written.failures["first"] = [RuntimeError(), RuntimeError()]
    async with working(store, written) as worker:
        worker.submit(answered(store, "first"))
        await until(lambda: told(store, "first")[0] == "done")
    assert written.done == ["first"]


async def test_a_turn_that_always_fails_is_closed_as_failed(store: FaultyStore) -> None:
    written = Written(store)
    written.failures["first"] = [RuntimeError("half a character: \ud83d") for _ in range(3)]
    async with working(store, written) as worker:
        worker.submit(answered(store, "first"))
        await until(lambda: told(store, "first")[0] == "failed")
        worker.submit(answered(store, "second"))
        await worker.drain()
    assert told(store, "first") == ("failed", ["RuntimeError: half a character: ?"])
    assert written.done == ["second"]


async def test_what_the_journal_holds_is_taken_up_once_it_can_be_read(store: FaultyStore) -> None:
    written = Written(store)
    answered(store, "before")
    store.sick, store.unreadable = "its disk is gone", 5
    async with working(store, written) as worker:
        # Handed over while the journal cannot be read, which will name it as well.
        worker.submit(answered(store, "now"))
        await until(lambda: "now" in written.done)
        await worker.drain()
    assert written.tried == ["before", "now"]


async def test_a_journal_that_cannot_be_understood_stops_no_later_turn(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn() -> Iterator[JournalTurn]:
        raise ValueError("no JSON")

    monkeypatch.setattr(store, "journal_waiting", torn)
    written = Written(store)
    async with working(store, written) as worker:
        worker.submit(answered(store, "now"))
        await until(lambda: written.done == ["now"])
