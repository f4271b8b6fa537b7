"""The daily backup: when it is due, also where clocks change, and what a failing one leaves behind."""

from __future__ import annotations

import asyncio
import time as clocks
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.backup import archive
from proxy.backup.create import Origin
from proxy.backup.daily import RETRY, DailyBackup, due, last_time, next_time
from proxy.metrics import Metrics
from tests.installations import installed, now
from tests.running import eventually, running
from tests.store_samples import Clock

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe")]
THREE = time(3, 0)


def utc(year: int, month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


class TestNextTime:
    def test_is_later_today_or_tomorrow_in_the_zone_not_in_utc(self) -> None:
        shanghai = ZoneInfo("Asia/Shanghai")
        assert next_time(utc(2026, 11, 30, 18, 59), THREE, shanghai) == utc(2026, 11, 30, 19)
        assert next_time(utc(2026, 11, 30, 19, 0), THREE, shanghai) == utc(2026, 12, 1, 19)

    def test_moves_with_the_change_of_clocks(self) -> None:
        assert next_time(utc(2026, 3, 28, 12), THREE, BERLIN) == utc(2026, 3, 29, 1)
        assert next_time(utc(2026, 3, 27, 12), THREE, BERLIN) == utc(2026, 3, 28, 2)

    def test_comes_on_a_day_whose_clocks_leave_it_out(self) -> None:
        gap = next_time(utc(2026, 3, 28, 12), time(2, 30), BERLIN)
        assert gap == utc(2026, 3, 29, 1, 30)
        assert next_time(gap, time(2, 30), BERLIN) == utc(2026, 3, 30, 0, 30)

    def test_comes_once_on_a_day_whose_clocks_show_it_twice(self) -> None:
        first = next_time(utc(2026, 10, 24, 12), time(2, 30), BERLIN)
        assert first == utc(2026, 10, 25, 0, 30)
        assert next_time(first, time(2, 30), BERLIN) == utc(2026, 10, 26, 1, 30)

    def test_without_a_zone_goes_by_the_systems_own(self, system_zone: None) -> None:
        assert next_time(utc(2026, 3, 28, 12), THREE, None) == utc(2026, 3, 29, 1)
        assert next_time(utc(2026, 10, 24, 12), time(2, 30), None) == utc(2026, 10, 25, 0, 30)

    @given(
        moment=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),
        at=st.times().map(lambda found: found.replace(second=0, microsecond=0, fold=0)),
        zone=st.sampled_from(ZONES),
    )
    def test_each_day_of_the_zone_has_exactly_one(self, moment: datetime, at: time, zone: ZoneInfo) -> None:
        times = [next_time(moment, at, zone)]
        for _ in range(3):
            times.append(next_time(times[-1], at, zone))
        assert moment < times[0] <= moment + timedelta(hours=26)
        assert all(timedelta(hours=22) < later - sooner < timedelta(hours=26) for sooner, later in pairwise(times))

    @given(moment=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)))
    def test_the_last_time_is_the_one_before_the_next(self, moment: datetime) -> None:
        last = last_time(moment, THREE, BERLIN)
        assert last <= moment
        assert next_time(last, THREE, BERLIN) == next_time(moment, THREE, BERLIN)


class TestDue:
    NOW = utc(2026, 11, 30, 12)

    def test_at_once_when_there_is_no_backup_yet(self) -> None:
        assert due(self.NOW, THREE, UTC, None) == self.NOW

    def test_at_once_when_the_last_time_was_missed(self) -> None:
        assert due(self.NOW, THREE, UTC, utc(2026, 11, 29, 3)) == self.NOW

    def test_next_time_when_the_last_one_was_not(self) -> None:
        assert due(self.NOW, THREE, UTC, utc(2026, 11, 30, 3)) == utc(2026, 12, 1, 3)


@pytest.fixture
def system_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clocks.tzset()
    yield
    monkeypatch.undo()
    clocks.tzset()


def daily(folder: Path, backups: Path, metrics: Metrics, clock: Callable[[], datetime] = now) -> DailyBackup:
    origin = Origin(folder / "data", "embedded")
    return DailyBackup(origin, backups, 7, THREE, UTC, clock, metrics, look_s=0.01)


def counted(metrics: Metrics, result: str) -> float | None:
    return metrics.registry.get_sample_value("sidemirror_backups_total", {"result": result})


@asynccontextmanager
async def at_work(backup: DailyBackup) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(backup.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.01)


async def test_a_backup_that_was_missed_is_made_and_the_next_one_a_day_later(tmp_path: Path) -> None:
    folder = installed(tmp_path / "here").folder
    metrics, clock = Metrics(), Clock()
    async with at_work(daily(folder, tmp_path / "b", metrics, clock)):
        await until(lambda: counted(metrics, "ok") == 1)
        clock.forward(hours=2)
        clock.forward(days=1)
        await until(lambda: counted(metrics, "ok") == 2)
    names = [backup.path.name for backup in archive.complete(tmp_path / "b")]
    assert names == ["sidemirror-20261102T083000Z", "sidemirror-20261103T103000Z"]


async def test_a_start_soon_after_a_backup_makes_no_other(tmp_path: Path) -> None:
    folder = installed(tmp_path / "here").folder
    first = Metrics()
    async with at_work(daily(folder, tmp_path / "b", first)):
        await until(lambda: counted(first, "ok") == 1)
    backup = daily(folder, tmp_path / "b", Metrics())
    (made,) = archive.complete(tmp_path / "b")
    assert backup._newest() == datetime.fromtimestamp(made.manifest.created_at, UTC)


async def test_a_failure_is_told_counted_and_tried_again_within_the_hour(tmp_path: Path) -> None:
    folder = installed(tmp_path / "here").folder
    in_the_way = tmp_path / "b"
    in_the_way.write_text("a file where the folder should be")
    metrics, clock = Metrics(), Clock()
    backup = daily(folder, in_the_way, metrics, clock)
    async with at_work(backup):
        await until(lambda: counted(metrics, "failed") == 1)
        assert "no backup was made" in (backup.trouble() or "")
        in_the_way.unlink()
        clock.now += RETRY
        await until(lambda: counted(metrics, "ok") == 1)
        assert backup.trouble() is None
    assert counted(metrics, "failed") == 1


async def test_a_backup_under_way_is_dropped_without_a_trace_when_the_proxy_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = installed(tmp_path / "here").folder
    backup = daily(folder, tmp_path / "b", Metrics())
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    told = backup._told

    def slow(what: str, done: int, total: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        backup._stop.wait(20)
        told(what, done, total)

    monkeypatch.setattr(backup, "_told", slow)
    async with at_work(backup):
        await begun.wait()
    assert list((tmp_path / "b").iterdir()) == []


def test_the_running_product_makes_it_and_says_when_it_cannot(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    config = {"backup": {"at": "03:00", "dir": str(blocked)}, "policies": [], "identity": {"timezone": "Asia/Shanghai"}}
    with running(tmp_path / "product", config=config) as product, product.http() as http:
        eventually(lambda: http.get("/readyz").json()["degraded"] == ["backup"])
        assert 'sidemirror_backups_total{result="failed"} 1.0' in http.get("/metrics").text
        assert "the daily backup failed" in http.get("/readyz").json()["details"]["backup"]
    blocked.unlink()
    with running(tmp_path / "product", config=config) as product, product.http() as http:
        (made,) = eventually(lambda: archive.complete(blocked))
        archive.verify(made, lambda *_: None)
        assert made.manifest.working_keys == 0
        assert [path.name for path in (made.path / "settings").iterdir()] == ["config.yaml"]
        assert http.get("/readyz").json()["degraded"] == []
