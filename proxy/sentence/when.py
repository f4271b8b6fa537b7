"""Points and stretches of the calendar, and how each is written in a Chinese and in an English sentence.

Pure. In: the moment something was said and how far from it something lies. Out: a `When`, and its words.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

Unit = Literal["moment", "day", "weekend", "week", "month", "year"]
Step = Literal["minute", "hour", "day", "week", "month", "year"]
_PREPOSITIONS: dict[Unit, str] = {
    "moment": "at",
    "day": "on",
    "weekend": "on",
    "week": "in",
    "month": "in",
    "year": "in",
}


@dataclass(frozen=True, slots=True)
class When:
    """A point or stretch of the calendar.

    Args:
        unit: How exact it is.
        start: Its first instant, in the user's zone; what is finer than `unit` does not count.
    """

    unit: Unit
    start: datetime

    @property
    def preposition(self) -> str:
        """What stands before it in an English sentence."""
        return _PREPOSITIONS[self.unit]

    def chinese(self) -> str:
        """As it stands in a Chinese sentence.

        >>> When("week", datetime(2026, 11, 23)).chinese(), When("year", datetime(2025, 1, 1)).chinese()
        ('2026-11-23 当周', '2025年')
        """
        if self.unit == "week":
            return f"{self.start:%Y-%m-%d} 当周"
        if self.unit == "weekend":
            return f"{self.start:%Y-%m-%d} 周末"
        return f"{self._plain()}年" if self.unit == "year" else self._plain()

    def english(self) -> str:
        """As it stands in an English sentence, without its preposition.

        >>> When("week", datetime(2026, 11, 23)).english(), When("month", datetime(2026, 10, 1)).english()
        ('the week of 2026-11-23', '2026-10')
        """
        if self.unit in ("week", "weekend"):
            return f"the {self.unit} of {self.start:%Y-%m-%d}"
        return self._plain()

    def attribute(self) -> str:
        """As it stands before an English noun: "the 2026-10 report".

        >>> When("week", datetime(2026, 11, 23)).attribute()
        'the week-of-2026-11-23'
        """
        return f"the {self.unit}-of-{self._plain()}" if self.unit in ("week", "weekend") else f"the {self._plain()}"

    def _plain(self) -> str:
        if self.unit == "moment":
            return f"{self.start:%Y-%m-%d %H:%M}"
        if self.unit == "year":
            return f"{self.start:%Y}"
        return f"{self.start:%Y-%m}" if self.unit == "month" else f"{self.start:%Y-%m-%d}"


def days(now: datetime, count: int) -> When | None:
    """The day that lies `count` days after today; None past the calendar's end, as with all below.

    >>> days(datetime(2026, 11, 30), -1).chinese()
    '2026-11-29'
    """
    moment = _shifted(now, timedelta(days=count))
    return None if moment is None else When("day", moment)


def weeks(now: datetime, count: int, weekday: int | None = None) -> When | None:
    """The week that lies `count` weeks after this one (Monday first), or a day of it.

    Args:
        now: When it was said.
        count: 0 is this week.
        weekday: 0 for Monday … 6 for Sunday; None for the whole week.

    >>> weeks(datetime(2026, 11, 30), -1, 4).chinese()  # said on a Monday
    '2026-11-27'
    """
    moment = _shifted(now, timedelta(days=7 * count - now.weekday() + (weekday or 0)))
    return None if moment is None else When("week" if weekday is None else "day", moment)


def weekend(now: datetime, count: int) -> When | None:
    """The weekend of the week that lies `count` weeks after this one, named for its Saturday."""
    found = weeks(now, count, 5)
    return None if found is None else When("weekend", found.start)


def coming(now: datetime, weekday: int) -> When | None:
    """The nearest such weekday from today on.

    >>> coming(datetime(2026, 11, 30), 4).chinese(), coming(datetime(2026, 11, 30), 0).chinese()
    ('2026-12-04', '2026-11-30')
    """
    return days(now, (weekday - now.weekday()) % 7)


def gone(now: datetime, weekday: int) -> When | None:
    """The nearest such weekday before today.

    >>> gone(datetime(2026, 11, 30), 4).chinese(), gone(datetime(2026, 11, 30), 0).chinese()
    ('2026-11-27', '2026-11-23')
    """
    return days(now, -((now.weekday() - weekday - 1) % 7 + 1))


def months(now: datetime, count: int, day: int | None = None) -> When | None:
    """The month that lies `count` months after this one, or a day of it.

    >>> months(datetime(2026, 11, 30), 2).chinese(), months(datetime(2026, 11, 30), -9, 30) is None
    ('2027-01', True)
    """
    index = now.year * 12 + now.month - 1 + count
    return exact(index // 12, index % 12 + 1, day)


def years(now: datetime, count: int, month: int | None = None, day: int | None = None) -> When | None:
    """The year that lies `count` years after this one, a month of it, or a day."""
    return exact(now.year + count, month, day)


def exact(year: int, month: int | None, day: int | None) -> When | None:
    """A year, a month of it, or a day of that; None when the calendar has none such."""
    try:
        start = datetime(year, month or 1, day or 1)
    except ValueError:
        return None
    return When("year" if month is None else "month" if day is None else "day", start)


def away(now: datetime, count: int, step: Step) -> When | None:
    """What lies `count` steps after now, as exact as the step is.

    >>> now = datetime(2026, 11, 30, 21, 15)
    >>> [away(now, -2, step).chinese() for step in ("hour", "day", "week", "month", "year")]
    ['2026-11-30 19:15', '2026-11-28', '2026-11-16 当周', '2026-09', '2024年']
    """
    if step == "month":
        return months(now, count)
    if step == "year":
        return years(now, count)
    if step == "week":
        return weeks(now, count)
    if step == "day":
        return days(now, count)
    moment = _shifted(now, timedelta(hours=count) if step == "hour" else timedelta(minutes=count))
    return None if moment is None else When("moment", moment)


def _shifted(moment: datetime, by: timedelta) -> datetime | None:
    try:
        return moment + by
    except OverflowError:
        return None
