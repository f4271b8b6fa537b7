"""How much a user may write: by the minute, and in all; one user's writes are not another's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from proxy import allotment
from proxy.allotment import Allotment
from proxy.policy.model import Rate
from tests.store_samples import Clock

FREE = Rate()
FEW_A_MINUTE = Rate(writes_per_minute=3)
FEW = Rate(memories_per_user=2)


def never() -> int:
    """Counting the user's memories where that is not limited costs a read for nothing."""
    raise AssertionError("asked how much is stored")


def test_as_shipped_nothing_is_refused_and_nothing_is_counted() -> None:
    book = Allotment()
    assert [book.refusal("alice", FREE, Clock()(), never) for _ in range(100)] == [None] * 100


def test_after_so_many_writes_a_minute_the_next_is_refused_until_the_minute_is_over() -> None:
    book, clock = Allotment(), Clock()
    for _ in range(3):
        assert book.refusal("alice", FEW_A_MINUTE, clock(), never) is None
        clock.forward(seconds=10)
    assert book.refusal("alice", FEW_A_MINUTE, clock(), never) == "guard.rate.writes_per_minute (3) is reached"
    clock.forward(seconds=29.9)
    assert book.refusal("alice", FEW_A_MINUTE, clock(), never) is not None
    clock.forward(seconds=0.1)
    assert book.refusal("alice", FEW_A_MINUTE, clock(), never) is None
    # What was refused did not count; the second write is ten seconds younger than the first.
    assert book.refusal("alice", FEW_A_MINUTE, clock(), never) is not None


def test_one_users_writes_are_not_anothers() -> None:
    book, clock = Allotment(), Clock()
    for _ in range(4):
        book.refusal("alice", FEW_A_MINUTE, clock(), never)
    assert book.refusal("bob", FEW_A_MINUTE, clock(), never) is None


def test_who_has_as_many_memories_as_allowed_writes_none_until_there_is_room() -> None:
    book, clock = Allotment(), Clock()
    assert book.refusal("alice", FEW, clock(), lambda: 1) is None
    assert book.refusal("alice", FEW, clock(), lambda: 2) == "guard.rate.memories_per_user (2) is reached"
    assert book.refusal("alice", FEW, clock(), lambda: 3) is not None
    assert book.refusal("alice", FEW, clock(), lambda: 1) is None


def test_a_write_that_finds_no_room_does_not_use_up_the_minute() -> None:
    book, clock = Allotment(), Clock()
    rate = Rate(writes_per_minute=1, memories_per_user=1)
    assert "memories_per_user" in (book.refusal("alice", rate, clock(), lambda: 1) or "")
    assert book.refusal("alice", rate, clock(), lambda: 0) is None


def test_a_limit_that_was_lowered_holds_at_once() -> None:
    book, clock = Allotment(), Clock()
    for _ in range(3):
        book.refusal("alice", FEW_A_MINUTE, clock(), never)
    assert book.refusal("alice", Rate(writes_per_minute=1), clock(), never) is not None


def test_who_has_not_written_for_long_is_dropped_first() -> None:
    book, clock = Allotment(), Clock()
    rate = Rate(writes_per_minute=1)
    for number in range(allotment._OWNERS):
        book.refusal(f"user-{number}", rate, clock(), never)
    assert book.refusal("user-0", rate, clock(), never) is not None
    book.refusal("one-more", rate, clock(), never)
    assert len(book._writes) == allotment._OWNERS
    # user-0 was looked at last; user-1 is the one that went.
    assert book.refusal("user-0", rate, clock(), never) is not None
    assert "user-1" not in book._writes


def test_writes_from_many_threads_are_counted_each_once() -> None:
    book, clock = Allotment(), Clock()
    together = threading.Barrier(8)

    def write() -> list[str | None]:
        together.wait()
        return [book.refusal("alice", Rate(writes_per_minute=20), clock(), never) for _ in range(10)]

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(write) for _ in range(8)]
    assert sum(one is None for each in asked for one in each.result()) == 20
