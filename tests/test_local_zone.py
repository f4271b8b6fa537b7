"""The system's zone as a `tzinfo`: its offset at every moment, its summer time, and the way back to UTC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.local_zone import LocalZone
from proxy.policy.schedule import Schedule

WINTER, SUMMER = datetime(2026, 1, 15, 23, 30, tzinfo=UTC), datetime(2026, 7, 15, 23, 30, tzinfo=UTC)


@contextmanager
def set_to(name: str) -> Iterator[ZoneInfo]:
    """The system, set to a zone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", name)
        time.tzset()
        yield ZoneInfo(name)
    time.tzset()


@pytest.fixture(params=["Europe/Berlin", "Asia/Shanghai", "America/New_York", "UTC"])
def zone(request: pytest.FixtureRequest) -> Iterator[ZoneInfo]:
    """A zone that the system is set to."""
    with set_to(request.param) as zone:
        yield zone


@pytest.mark.parametrize("moment", [WINTER, SUMMER])
def test_a_moment_has_the_systems_local_time_summer_and_winter(zone: ZoneInfo, moment: datetime) -> None:
    here, there = moment.astimezone(LocalZone()), moment.astimezone(zone)
    assert here.replace(tzinfo=None) == there.replace(tzinfo=None)
    assert (here.utcoffset(), here.tzname()) == (there.utcoffset(), there.tzname())
    assert here == moment
    assert here.astimezone(UTC) == moment


@pytest.mark.parametrize("hour", [0, 12, 23])
def test_a_local_time_of_day_is_that_of_the_system(zone: ZoneInfo, hour: int) -> None:
    for month in (1, 7):
        local = datetime(2026, month, 15, hour, tzinfo=LocalZone())
        assert local.astimezone(UTC) == datetime(2026, month, 15, hour, tzinfo=zone).astimezone(UTC)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moment=st.datetimes(datetime(2025, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
)
def test_no_moment_is_changed_by_going_there_and_back(zone: ZoneInfo, moment: datetime) -> None:
    local = moment.astimezone(LocalZone())
    assert local.replace(tzinfo=None) == moment.astimezone(zone).replace(tzinfo=None)
    assert local.astimezone(UTC) == moment


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    with set_to("Europe/Berlin"):
        local = [moment.astimezone(LocalZone()) for moment in (first, first + timedelta(hours=1))]
        assert [moment.replace(tzinfo=None, fold=0) for moment in local] == [datetime(2026, 10, 25, 2, 30)] * 2
        assert local[1].astimezone(UTC) - local[0].astimezone(UTC) == timedelta(hours=1)


def test_schedules_go_by_it() -> None:
    daily = Schedule.parse("daily 03:00")
    with set_to("Europe/Berlin") as berlin:
        for moment in (WINTER, SUMMER):
            assert daily.next_after(moment, LocalZone()) == daily.next_after(moment, berlin)


def test_a_time_without_a_zone_is_nothing_it_can_tell() -> None:
    assert (LocalZone().utcoffset(None), LocalZone().dst(None), LocalZone().tzname(None)) == (None, None, None)
    assert LocalZone().dst(WINTER) is None
    assert repr(LocalZone()) == "LocalZone()"
