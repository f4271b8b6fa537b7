"""The worker's line: in order, patient with the store, through with what never works, and never broken off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from proxy.errors import StoreUnavailable
from proxy.metrics import Metrics
from proxy.observe import answer_hash
from proxy.plugs import JournalTurn
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.types import Answer
from proxy.worker import Worker, lane_of
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
async def working(store: FaultyStore, written: Callable[[JournalTurn], None], lanes: int = 1) -> AsyncIterator[Worker]:
    """A worker at work."""
    worker = Worker(store, written, Metrics(), retry_s=RETRY_S, lanes=lanes)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        worker.close()


def answered(store: FaultyStore, name: str, scope: Scope = ALICE) -> JournalTurn:
    """A turn whose two parts are in the journal."""
    opened = turn(said(name), scope=scope, id=name)
    store.journal_open(opened, account(opened, written_status="queued")).result()
    store.journal_answer(name, name, Answer("Noted."), []).result()
    return opened


class Held(Written):
    """Holds some turns up until they are let go; the first of them is waited for."""

    def __init__(self, store: FaultyStore, *names: str) -> None:
        super().__init__(store)
        self.held = {name: threading.Event() for name in names}
        self.at_once: list[int] = []
        self._here: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, turn: JournalTurn) -> None:
        with self._lock:
            self._here.add(turn.id)
            self.at_once.append(len(self._here))
        try:
            if (held := self.held.get(turn.id)) is not None:
                assert held.wait(20)
            super().__call__(turn)
        finally:
            with self._lock:
                self._here.discard(turn.id)

    def let_go(self) -> None:
        for held in self.held.values():
            held.set()


def users(lanes: int) -> tuple[list[Scope], Scope]:
    """Some users of one lane, and one of another."""
    by_lane: dict[int, list[Scope]] = {}
    for number in range(10 * lanes):
        scope = Scope("acme", f"user-{number}", session_id="s1")
        by_lane.setdefault(lane_of(scope, lanes), []).append(scope)
    fullest = max(by_lane, key=lambda lane: len(by_lane[lane]))
    return by_lane[fullest][:2], next(some[0] for lane, some in by_lane.items() if lane != fullest)


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


# ── lanes ──────────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_one_users_turns_follow_one_another_however_many_lanes_there_are(store: FaultyStore) -> None:
    names = [f"turn-{number}" for number in range(6)]
    written = Held(store, names[0])
    async with working(store, written, lanes=4) as worker:
        for name in names:
            worker.submit(answered(store, name))
        await until(lambda: written.at_once != [])
        written.let_go()
        await worker.drain()
    assert written.done == names
    assert set(written.at_once) == {1}


async def test_a_slow_turn_holds_up_no_user_of_another_lane(store: FaultyStore) -> None:
    (slow, _), quick = users(4)
    written = Held(store, "slow")
    async with working(store, written, lanes=4) as worker:
        worker.submit(answered(store, "slow", slow))
        worker.submit(answered(store, "after the slow one", slow))
        for number in range(3):
            worker.submit(answered(store, f"quick-{number}", quick))
        await until(lambda: len(written.done) == 3)
        assert written.done == ["quick-0", "quick-1", "quick-2"]
        written.let_go()
        await worker.drain()
    assert written.done[3:] == ["slow", "after the slow one"]
    assert max(written.at_once) == 2


async def test_with_one_lane_users_follow_one_another(store: FaultyStore) -> None:
    (slow, _), quick = users(4)
    written = Held(store, "slow")
    async with working(store, written) as worker:
        worker.submit(answered(store, "slow", slow))
        worker.submit(answered(store, "quick", quick))
        await until(lambda: written.at_once != [])
        written.let_go()
        await worker.drain()
    assert written.done == ["slow", "quick"]
    assert max(written.at_once) == 1


async def test_a_turn_that_fails_is_tried_again_in_its_users_lane(store: FaultyStore) -> None:
    (failing, _), quick = users(4)
    written = Written(store)
    written.failures["first"] = [RuntimeError()]
    async with working(store, written, lanes=4) as worker:
        worker.submit(answered(store, "first", failing))
        worker.submit(answered(store, "other", quick))
        await until(lambda: len(written.done) == 2)
    assert sorted(written.tried) == ["first", "first", "other"]


async def test_what_the_journal_holds_goes_to_the_lanes_of_its_users_in_order(store: FaultyStore) -> None:
    (some, others), quick = users(4)
    scopes = [some, quick, others, some, quick]
    for number, scope in enumerate(scopes):
        answered(store, f"turn-{number}", scope)
    written = Held(store, "turn-0")
    async with working(store, written, lanes=4) as worker:
        await until(lambda: "turn-4" in written.done)
        assert written.done == ["turn-1", "turn-4"]
        written.let_go()
        await worker.drain()
    assert written.done[2:] == ["turn-0", "turn-2", "turn-3"]
