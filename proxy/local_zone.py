"""The system's own time zone, with its summer time, as a `tzinfo`: Python has none by that name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo


class LocalZone(tzinfo):
    """Whatever zone the system is set to.

    >>> moment = datetime(2026, 7, 1, tzinfo=UTC)
    >>> moment.astimezone(LocalZone()) == moment
    True
    """

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """The system's offset at a local moment."""
        return None if moment is None else _naive(moment).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Not known apart from the offset."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """The system's name for its zone at a local moment."""
        return None if moment is None else _naive(moment).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """A UTC moment that bears this zone's name, as local time."""
        local = moment.replace(tzinfo=UTC).astimezone()
        # An hour that comes twice when summer time ends: the second one is told by its fold.
        again = _naive(local).astimezone().utcoffset() != local.utcoffset()
        return local.replace(tzinfo=self, fold=int(again))

    def __repr__(self) -> str:
        return "LocalZone()"


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)
