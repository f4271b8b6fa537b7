"""The daily backup of a running proxy: when it is due, and the loop that makes it.

In: a time of day and a zone. Out: backups, and one sentence while the last attempt has failed. A backup that was missed
because nothing ran is made at the next start.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, tzinfo
from pathlib import Path

import structlog

from proxy.backup import archive
from proxy.backup.archive import Backup, Told
from proxy.backup.create import Origin, create
from proxy.errors import SidemirrorError
from proxy.metrics import Metrics
from proxy.store.data_dir import installation

log = structlog.get_logger(__name__)
RETRY = timedelta(hours=1)


def next_time(now: datetime, at: time, zone: tzinfo | None) -> datetime:
    """The next moment when clocks in the zone show `at`, once on each day there.

    A time that a change of clocks leaves out is taken as if they had not been changed; of one that comes twice the
    first counts.

    Args:
        now: Aware.
        at: Time of day, without a zone.
        zone: None is the system's own.

    Returns:
        Aware UTC, after `now`.

    >>> from zoneinfo import ZoneInfo
    >>> next_time(datetime(2026, 11, 30, 12, 0, tzinfo=UTC), time(3, 0), ZoneInfo("Asia/Shanghai"))
    datetime.datetime(2026, 11, 30, 19, 0, tzinfo=datetime.timezone.utc)
    """
    return next(moment for moment in _moments(now, at, zone) if moment > now)


def last_time(now: datetime, at: time, zone: tzinfo | None) -> datetime:
    """The latest moment up to `now` when clocks in the zone showed `at`; arguments as in `next_time`."""
    return [moment for moment in _moments(now, at, zone) if moment <= now][-1]


def due(now: datetime, at: time, zone: tzinfo | None, newest: datetime | None) -> datetime:
    """When a backup is due.

    Args:
        now: Aware.
        at: Time of day.
        zone: None is the system's own.
        newest: When the newest backup was made; None when there is none.

    Returns:
        `now` when the last one was missed, or there is none yet; else the next time.
    """
    missed = newest is None or newest < last_time(now, at, zone)
    return now if missed else next_time(now, at, zone)


def _moments(now: datetime, at: time, zone: tzinfo | None) -> list[datetime]:
    # Wall time is put together day by day: adding 24 hours would drift with a change of clocks.
    today = now.astimezone(zone).date()
    days = [today + timedelta(days=offset) for offset in range(-2, 3)]
    return [datetime.combine(day, at, tzinfo=zone).astimezone(UTC) for day in days]


class _Stopped(Exception):
    """The proxy stops; the backup under way is dropped."""


class DailyBackup:
    """Makes a backup a day.

    Args:
        origin: What is backed up.
        folder: Where backups lie.
        keep: How many are kept.
        at: Time of day.
        zone: None is the system's own.
        clock: The present time, aware UTC.
        metrics: Counts what became of each attempt.
        look_s: How long it sleeps at most before it looks at the clock again.
    """

    def __init__(
        self,
        origin: Origin,
        folder: Path,
        keep: int,
        at: time,
        zone: tzinfo | None,
        clock: Callable[[], datetime],
        metrics: Metrics,
        *,
        look_s: float = 30.0,
    ) -> None:
        self._origin = origin
        self._folder = folder
        self._keep = keep
        self._at = at
        self._zone = zone
        self._clock = clock
        self._metrics = metrics
        self._look_s = look_s
        self._trouble: str | None = None
        self._not_before: datetime | None = None
        self._stop = threading.Event()

    def trouble(self) -> str | None:
        """Why the last attempt failed, in one sentence; None when it did not."""
        return self._trouble

    async def run(self) -> None:
        """Work until cancelled; a backup under way is then dropped without a trace."""
        newest = await asyncio.to_thread(self._newest)
        while True:
            now = self._clock()
            moment = due(now, self._at, self._zone, newest)
            if self._not_before is not None:
                moment = max(moment, self._not_before)
            wait_s = (moment - now).total_seconds()
            if wait_s > 0:
                # In short sleeps: the clock may be set, or the machine sleep.
                await asyncio.sleep(min(wait_s, self._look_s))
                continue
            made = await self._attempt()
            if made is not None:
                newest = datetime.fromtimestamp(made.manifest.created_at, UTC)

    async def _attempt(self) -> Backup | None:
        """Top of the loop: whatever fails is told, and tried again in an hour."""
        work = asyncio.ensure_future(asyncio.to_thread(self._make))
        try:
            made = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait({work})
            work.exception()
            raise
        except Exception as error:
            self._trouble = f"the daily backup failed: {error}; it is tried again within the hour"
            self._not_before = self._clock() + RETRY
            self._metrics.backed_up("failed")
            expected = isinstance(error, SidemirrorError)
            hint, trace = (str(error), None) if expected else (None, error)
            log.error("backup_failed", error_type=type(error).__name__, hint=hint, exc_info=trace)
            return None
        self._trouble = self._not_before = None
        self._metrics.backed_up("ok")
        log.info("backup_made", path=str(made.path), count=sum(made.manifest.rows.values()))
        return made

    def _make(self) -> Backup:
        return create(self._origin, self._folder, keep=self._keep, clock=self._clock, told=self._told)

    def _told(self, _what: str, _done: int, _total: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _newest(self) -> datetime | None:
        try:
            backups = archive.complete(self._folder, installation(self._origin.data_dir))
        except OSError:
            return None
        return datetime.fromtimestamp(backups[-1].manifest.created_at, UTC) if backups else None


__all__ = ["DailyBackup", "Told", "due", "last_time", "next_time"]
