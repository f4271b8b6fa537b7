"""When a schedule rule runs: `hourly`, `daily 03:00`, `weekly mon 03:00`, by the user's clock.

In: the text of `when.schedule`. Out: the next moment. Pure: now and the time zone are given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final, Literal, Self

from proxy.yamlcheck import did_you_mean

Every = Literal["hourly", "daily", "weekly"]
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PERIOD: Final = {"hourly": timedelta(hours=1), "daily": timedelta(days=1), "weekly": timedelta(weeks=1)}
_FORMS: Final = "write hourly, daily 03:00 or weekly mon 03:00"
_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A time that comes back.

    Args:
        every: How often.
        at: Local time of day; midnight where `every` is ``hourly``, which runs at each full hour.
        weekday: 0 is Monday; None unless `every` is ``weekly``.
    """

    every: Every
    at: time = time()
    weekday: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a schedule.

        Args:
            text: ``hourly``, ``daily HH:MM`` or ``weekly DAY HH:MM``; capitals and full day names count as well.

        Raises:
            ValueError: None of these; says which part is wrong.

        >>> Schedule.parse("daily 03:00").at, Schedule.parse("Weekly Monday 9:30").weekday
        (datetime.time(3, 0), 0)
        >>> Schedule.parse("dayly 03:00")
        Traceback (most recent call last):
        ...
        ValueError: 'dayly' is not a schedule; did you mean 'daily'?
        """
        every, *rest = text.lower().split() or [""]
        if every == "hourly" and not rest:
            return cls("hourly")
        if every == "daily" and len(rest) == 1:
            return cls("daily", _time(rest[0]))
        if every == "weekly" and len(rest) == 2:
            return cls("weekly", _time(rest[1]), _weekday(rest[0]))
        if every in _PERIOD:
            raise ValueError(f"{text!r} is no schedule; {_FORMS}")
        raise ValueError(f"'{every}' is not a schedule{did_you_mean(every, _PERIOD) or '; ' + _FORMS}")

    @property
    def period(self) -> timedelta:
        """How long the time between two runs is, clock changes apart."""
        return _PERIOD[self.every]

    def next_after(self, moment: datetime, zone: tzinfo) -> datetime:
        """The first run after a moment.

        Args:
            moment: Aware.
            zone: Whose clock counts. A time that a clock change skips runs when the change is over; one that comes
                twice runs the first time.

        Returns:
            Aware UTC, strictly after `moment`.

        >>> monday = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
        >>> Schedule.parse("daily 03:00").next_after(monday, UTC).isoformat()
        '2026-01-06T03:00:00+00:00'
        >>> Schedule.parse("weekly sun 03:00").next_after(monday, UTC).isoformat()
        '2026-01-11T03:00:00+00:00'
        >>> Schedule.parse("hourly").next_after(monday + timedelta(minutes=5), UTC).isoformat()
        '2026-01-05T04:00:00+00:00'
        """
        local = moment.astimezone(zone)
        if self.every == "hourly":
            since = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
            return moment.astimezone(UTC) - since + timedelta(hours=1)
        # A day before the local date up to nine after it holds a run of every schedule, whatever the clock does.
        for days in range(-1, 10):
            date = local.date() + timedelta(days=days)
            if self.weekday is not None and date.weekday() != self.weekday:
                continue
            found = _instant(datetime.combine(date, self.at), zone)
            if found > moment:
                return found
        raise AssertionError("a week holds every weekday")


def _instant(local: datetime, zone: tzinfo) -> datetime:
    # PEP 495: with fold=0 a skipped local time is read with the offset before the gap, and so falls after it.
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def _time(text: str) -> time:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no time of day; write it like 03:00")
    return time(int(found.group(1)), int(found.group(2)))


def _weekday(text: str) -> int:
    if text[:3] in WEEKDAYS and len(text) >= 3:
        return WEEKDAYS.index(text[:3])
    raise ValueError(f"'{text}' is no weekday{did_you_mean(text, WEEKDAYS) or '; one of ' + ', '.join(WEEKDAYS)}")
