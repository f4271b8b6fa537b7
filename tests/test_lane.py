"""Calls in threads of their own: in time, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.lane import Lane
from tests.running import eventually


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane("test-lane", 2)
    yield made
    made.close()


def test_a_result_and_an_error_come_back(lane: Lane) -> None:
    assert lane.call(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        lane.call(lambda: 1 / 0, 5)


def test_what_takes_too_long_is_waited_for_no_more_and_others_go_on(lane: Lane) -> None:
    released = threading.Event()
    with pytest.raises(TimeoutError):
        lane.call(lambda: released.wait(20), 0.02)
    assert lane.call(lambda: "other", 5) == "other"
    released.set()


def test_what_has_not_begun_in_time_never_begins(lane: Lane) -> None:
    released, begun = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as callers:
        busy = [callers.submit(lane.call, lambda: released.wait(20), 20) for _ in range(2)]
        eventually(lambda: sum(one.name == "test-lane" for one in threading.enumerate()) == 2)
        with pytest.raises(TimeoutError):
            lane.call(begun.set, 0.02)
        released.set()
        assert all(one.result(10) for one in busy)
    assert lane.call(lambda: "after", 5) == "after"
    assert not begun.is_set()


def test_never_more_threads_than_it_is_wide(lane: Lane) -> None:
    with ThreadPoolExecutor(8) as callers:
        found = list(callers.map(lambda n: lane.call(lambda: n * n, 10), range(100)))
    assert found == [n * n for n in range(100)]
    assert sum(one.name == "test-lane" for one in threading.enumerate()) <= 2


def test_closing_frees_who_waits_and_refuses_who_comes(lane: Lane) -> None:
    released, begun = threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return released.wait(20)

    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(lane.call, hang, 20)
        assert begun.wait(10)
        started = time.monotonic()
        lane.close()
        with pytest.raises(TimeoutError):
            waiting.result(10)
        assert time.monotonic() - started < 5
    with pytest.raises(TimeoutError):
        lane.call(lambda: 1, 5)
    released.set()
    eventually(lambda: not any(one.name == "test-lane" for one in threading.enumerate()))
