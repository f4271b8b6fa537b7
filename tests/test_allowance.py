"""The daily count of a model's tokens: exact under parallel calls, apart for each purse, kept over restarts."""

from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.store.allowance import Allowance

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "allowance.db"


@pytest.fixture
def allowance(path: Path, clock: Clock) -> Allowance:
    return Allowance(path, clock)


def test_a_reservation_counts_until_it_is_settled(allowance: Allowance) -> None:
    first = allowance.reserve("acme", "r", 60, 100)
    assert first is not None
    assert allowance.reserve("acme", "r", 60, 100) is None
    allowance.settle(first, 10)
    assert allowance.spent("acme", "r") == 10
    assert allowance.reserve("acme", "r", 90, 100) is not None
    assert allowance.reserve("acme", "r", 1, 100) is None


def test_a_call_may_come_to_more_than_was_set_aside(allowance: Allowance) -> None:
    reserved = allowance.reserve("acme", "r", 10, 100)
    assert reserved is not None
    allowance.settle(reserved, 130)
    assert allowance.spent("acme", "r") == 130
    assert allowance.reserve("acme", "r", 0, 100) is None


def test_without_a_cap_it_counts_all_the_same(allowance: Allowance) -> None:
    assert allowance.reserve("acme", "r", 10**9, None) is not None
    assert allowance.spent("acme", "r") == 10**9


def test_tenants_and_purposes_count_apart(allowance: Allowance) -> None:
    assert allowance.reserve("acme", "r", 100, 100) is not None
    assert allowance.reserve("acme", "other", 100, 100) is not None
    assert allowance.reserve("globex", "r", 100, 100) is not None


def test_the_count_survives_a_restart(allowance: Allowance, path: Path, clock: Clock) -> None:
    allowance.reserve("acme", "r", 100, 100)
    assert Allowance(path, clock).reserve("acme", "r", 1, 100) is None


def test_a_new_day_begins_at_midnight_utc(allowance: Allowance, clock: Clock) -> None:
    allowance.reserve("acme", "r", 100, 100)
    clock.now = datetime(2026, 12, 1, 6, tzinfo=timezone(timedelta(hours=8)))  # 22:00 UTC on the same day
    assert allowance.reserve("acme", "r", 1, 100) is None
    clock.now = datetime(2026, 12, 1, 8, tzinfo=timezone(timedelta(hours=8)))
    assert allowance.reserve("acme", "r", 100, 100) is not None


def test_a_call_that_ends_on_the_next_day_costs_that_day_nothing(allowance: Allowance, clock: Clock) -> None:
    late = allowance.reserve("acme", "r", 100, 100)
    assert late is not None
    clock.now += timedelta(days=1)
    assert allowance.reserve("acme", "r", 40, 100) is not None
    allowance.settle(late, 500)
    assert allowance.spent("acme", "r") == 40


def test_past_days_are_not_kept(allowance: Allowance, path: Path, clock: Clock) -> None:
    for _ in range(3):
        allowance.reserve("acme", "r", 1, None)
        clock.now += timedelta(days=1)
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM spent").fetchone() == (1,)
    database.close()


def test_parallel_reservations_never_pass_the_cap(path: Path, clock: Clock) -> None:
    # As many counts as threads: each opens the file for itself, as two processes would.
    with ThreadPoolExecutor(8) as threads:
        tries = [threads.submit(Allowance(path, clock).reserve, "acme", "r", 10, 100) for _ in range(40)]
        granted = [one.result() for one in tries if one.result() is not None]
    assert len(granted) == 10
    assert Allowance(path, clock).spent("acme", "r") == 100


def test_nobody_else_may_read_it(allowance: Allowance, path: Path) -> None:
    allowance.reserve("acme", "r", 1, None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_none_is_told(path: Path, clock: Clock) -> None:
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="delete it to count from zero"):
        Allowance(path, clock).reserve("acme", "r", 1, 100)


def test_a_folder_that_is_gone_is_told(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        Allowance(tmp_path / "gone" / "allowance.db", clock).reserve("acme", "r", 1, 100)
