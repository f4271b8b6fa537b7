"""What each tenant may still spend on a model today: counted in a small file of its own, so that no restart forgets it.

In: a tenant, a purpose (a rule's id, or ``judge`` and the like), tokens. Out: a reservation, or None past the cap. Days
are UTC days. A call that never came back (kill -9) stays counted with what was reserved for it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proxy.errors import StoreError
from proxy.store import queries

FILE = "allowance.db"
_LOCK_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens set aside for one call.

    Args:
        tenant: Who pays.
        purpose: What for.
        day: The UTC day it counts on, ISO.
        tokens: How many.
    """

    tenant: str
    purpose: str
    day: str
    tokens: int


class Allowance:
    """The count of one installation. Safe to share between threads and processes.

    Args:
        path: The file; made when it is first needed.
        clock: Returns now, aware.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._clock = clock

    def reserve(self, tenant: str, purpose: str, tokens: int, cap: int | None) -> Reservation | None:
        """Set tokens aside before a call, so that calls at the same time see each other.

        Args:
            tenant: Who pays.
            purpose: What for; each has a count of its own.
            tokens: What the call may cost, ≥ 0.
            cap: Tokens a day; None is no limit, but counts all the same.

        Returns:
            The reservation, to be settled; None when the day's tokens would not be enough.

        Raises:
            StoreError: The count cannot be kept.
        """
        day = self._day()
        with self._writing() as database:
            if cap is not None and self._spent(database, day, tenant, purpose) + tokens > cap:
                return None
            database.execute(_SQL["forget_other_days"], (day,))
            database.execute(_SQL["add"], (day, tenant, purpose, tokens))
        return Reservation(tenant, purpose, day, tokens)

    def settle(self, reservation: Reservation, tokens: int) -> None:
        """Count what a call came to in place of what was set aside for it; a past day's is forgotten.

        Args:
            reservation: The call's.
            tokens: What it cost, ≥ 0.

        Raises:
            StoreError: The count cannot be kept; the reservation stays counted.
        """
        difference = tokens - reservation.tokens
        if difference:
            with self._writing() as database:
                owner = (reservation.day, reservation.tenant, reservation.purpose)
                database.execute(_SQL["correct"], (difference, *owner))

    def spent(self, tenant: str, purpose: str) -> int:
        """Tokens counted today, those set aside included.

        Raises:
            StoreError: The count cannot be read.
        """
        with self._writing() as database:
            return self._spent(database, self._day(), tenant, purpose)

    def _day(self) -> str:
        return self._clock().astimezone(UTC).date().isoformat()

    @staticmethod
    def _spent(database: sqlite3.Connection, day: str, tenant: str, purpose: str) -> int:
        row = database.execute(_SQL["spent"], (day, tenant, purpose)).fetchone()
        return 0 if row is None else int(row[0])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that has the write lock from its start: what was read in it still holds when it is written.

        A connection lasts no longer than that. Next to the call of a model its cost is nothing, and whoever moves or
        deletes the file while we run does no harm.
        """
        try:
            # Tenants' names are nobody else's business on this machine.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            with closing(sqlite3.connect(self._path, timeout=_LOCK_WAIT_S, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(_SQL["create"])
                yield database
                database.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{self._path} cannot be used ({error}); free its disk, or delete it to count from zero today"
            ) from error


_SQL = queries.load("allowance")
