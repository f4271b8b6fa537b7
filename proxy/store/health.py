"""Whether the database can be used: the check at opening, what each error means, and the sentence for people.

In: a path, and SQLite's errors as they happen. Out: None, or what is wrong and what to do. Damage stays until a
restart; a lock or a full disk is over at the next success.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal

from proxy.errors import StoreUnavailable

APPLICATION_ID = 0x51DE_0A1F
SCHEMA_VERSION = 4
_MAGIC = b"SQLite format 3\0"
_CHECKED_WHOLE_BYTES = 64 * 1024 * 1024
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FATAL = (
    *_DAMAGE,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERNAL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
)
Side = Literal["read", "write"]


class Health:
    """What is known of one database's state. Safe to use from any thread.

    Args:
        path: The database file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lost: str | None = None
        self._trouble: dict[Side, str] = {}

    def sentence(self) -> str | None:
        """None when well; else what is wrong and what to do."""
        return self._lost or next(iter(self._trouble.values()), None)

    def refuse(self) -> None:
        """Stop an operation that cannot succeed.

        Raises:
            StoreUnavailable: The database is damaged or not ours.
        """
        if self._lost is not None:
            raise StoreUnavailable(self._lost)

    def failed(self, side: Side, error: sqlite3.Error) -> StoreUnavailable:
        """Note an error of SQLite's.

        Returns:
            The exception to raise in its place.
        """
        if primary_code(error) in _DAMAGE:
            self.lost(self._damaged(str(error)))
        else:
            self._trouble[side] = (
                f"{self._path} cannot be {'read' if side == 'read' else 'written'} now: {error}; {_advice(error)}"
            )
        return StoreUnavailable(self.sentence())

    def worked(self, side: Side) -> None:
        """Note a success: passing trouble is over."""
        if self._trouble:
            self._trouble.pop(side, None)

    def lost(self, sentence: str) -> None:
        """Note that the database cannot be used until someone acts."""
        self._lost = self._lost or sentence

    def examine(self) -> None:
        """Look at the file before it is used; what is wrong is noted, not raised."""
        try:
            size = self._path.stat().st_size
            with self._path.open("rb") as file:
                head = file.read(len(_MAGIC))
        except FileNotFoundError:
            return
        except OSError as error:
            self._trouble["read"] = f"{self._path} cannot be read: {error}; check the data directory's permissions"
            return
        if size and head != _MAGIC:
            self.lost(self._damaged("it does not begin like a SQLite database"))
        elif size:
            self._examine_inside(whole=size < _CHECKED_WHOLE_BYTES)

    def _examine_inside(self, *, whole: bool) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=2.0)
        try:
            tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            if tables and (application != APPLICATION_ID or version != SCHEMA_VERSION):
                self.lost(self._foreign(application, version))
            elif whole and (said := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                self.lost(self._damaged(" ".join(said.split())))
        except sqlite3.Error as error:
            self.failed("read", error)
        finally:
            connection.close()

    def _damaged(self, detail: str) -> str:
        return (
            f"{self._path} is damaged ({detail}): restore a backup with 'sidemirror restore', "
            "or move the file away to start with an empty memory"
        )

    def _foreign(self, application: int, version: int) -> str:
        if application != APPLICATION_ID:
            return (
                f"{self._path} is a SQLite database of another program: set data_dir to a directory of Sidemirror's own"
            )
        return (
            f"{self._path} has schema {version}, this Sidemirror reads {SCHEMA_VERSION}: run the version that wrote "
            "it, or restore a backup with 'sidemirror restore'"
        )


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension; 0 when the error did not come from SQLite itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_fatal(error: BaseException) -> bool:
    """Whether SQLite itself failed (lock, disk, damage), rather than a constraint or the caller."""
    return isinstance(error, sqlite3.Error) and primary_code(error) in _FATAL


def _advice(error: sqlite3.Error) -> str:
    code = primary_code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process holds its lock; it goes on by itself once the lock is gone"
    if code == sqlite3.SQLITE_FULL:
        return "free some disk space; it goes on by itself then"
    return "check the disk and the data directory's permissions"
