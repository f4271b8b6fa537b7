"""When schedule rules run, by the user's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.schedule import Schedule

BERLIN = ZoneInfo("Europe/Berlin")
SHANGHAI = ZoneInfo("Asia/Shanghai")
KOLKATA = ZoneInfo("Asia/Kolkata")
TEXTS = ("hourly", "daily 00:00", "daily 02:30", "daily 23:59", "weekly mon 03:00", "weekly sun 02:30")


def following(text: str, moment: str, zone: ZoneInfo) -> str:
    found = Schedule.parse(text).next_after(datetime.fromisoformat(moment).replace(tzinfo=UTC), zone)
    return found.astimezone(zone).strftime("%a %m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "moment", "zone", "expected"),
    [
        ("daily 03:00", "2026-01-05T18:00", SHANGHAI, "Tue 01-06 03:00"),
        ("daily 03:00", "2026-01-05T19:00", SHANGHAI, "Wed 01-07 03:00"),
        ("daily 3:05", "2026-01-05T00:00", SHANGHAI, "Tue 01-06 03:05"),
        ("weekly mon 03:00", "2026-01-05T01:59", BERLIN, "Mon 01-05 03:00"),
        ("weekly mon 03:00", "2026-01-05T02:00", BERLIN, "Mon 01-12 03:00"),
        ("WEEKLY Sunday 03:00", "2026-01-05T02:00", BERLIN, "Sun 01-11 03:00"),
        ("hourly", "2026-01-05T02:10", KOLKATA, "Mon 01-05 08:00"),
        ("hourly", "2026-01-05T02:30", KOLKATA, "Mon 01-05 09:00"),
    ],
)
def test_next_run_by_the_users_clock(text: str, moment: str, zone: ZoneInfo, expected: str) -> None:
    assert following(text, moment, zone) == expected


def test_a_time_that_the_clock_skips_runs_once_the_change_is_over() -> None:
    assert following("daily 02:30", "2026-03-28T12:00", BERLIN) == "Sun 03-29 03:30"
    assert following("daily 02:30", "2026-03-29T01:30", BERLIN) == "Mon 03-30 02:30"


def test_a_time_that_comes_twice_runs_once() -> None:
    schedule = Schedule.parse("daily 02:30")
    first = schedule.next_after(datetime(2026, 10, 24, 12, tzinfo=UTC), BERLIN)
    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert schedule.next_after(first, BERLIN) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@given(
    st.sampled_from(TEXTS),
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),
    st.sampled_from([UTC, BERLIN, SHANGHAI, KOLKATA, ZoneInfo("Pacific/Apia"), ZoneInfo("America/Sao_Paulo")]),
)
def test_every_run_comes_after_and_within_its_period(text: str, moment: datetime, zone: ZoneInfo) -> None:
    schedule = Schedule.parse(text)
    following = schedule.next_after(moment, zone)
    assert moment < following <= moment + schedule.period + timedelta(hours=2)
    assert following.tzinfo is UTC


@pytest.mark.parametrize(
    "text", ["", "daily", "weekly 03:00", "hourly 03:00", "daily 3", "daily 24:00", "weekly no 3:00"]
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no\b|is not a schedule"):
        Schedule.parse(text)
