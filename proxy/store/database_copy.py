"""A copy of the database while it is in use: one moment's state, whole, in a single file.

In: the database file, and a path for the copy. Out: the copy, proved by reading it back, and how many rows its tables
hold. Writers go on meanwhile; only the write-ahead log waits, and grows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from proxy.errors import StoreUnavailable
from proxy.store import forget
from proxy.store.health import Health

_STEP_PAGES = 256
_BUSY_S = 5.0
_LOOK_INSTRUCTIONS = 1_000_000
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'fts%'"
_FORGOTTEN = (
    "SELECT count(*) FROM (SELECT hash FROM main.tombstones WHERE hash LIKE 'r:%' "
    "EXCEPT SELECT hash FROM copy.tombstones)"
)
Counts = Mapping[str, int]
Step = Callable[[int, int], None]
"""Called with how much is done and how much there is; what it raises ends the work."""


def copy_database(source: Path, target: Path, step: Step) -> Counts:
    """Copy the database as it is at this moment.

    Args:
        source: The database; whoever writes to it goes on.
        target: A new file.
        step: Told the pages copied.

    Returns:
        Rows by table, at the moment of the copy.

    Raises:
        StoreUnavailable: The source cannot be read, or the target cannot be written.
    """
    try:
        with closing(_read_only(source)) as connection:
            # Held to the end: a copy in steps would begin anew with each commit of somebody else.
            connection.execute("BEGIN")
            found = counts(connection)
            os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                connection.backup(
                    copy, pages=_STEP_PAGES, progress=lambda _, remaining, total: step(total - remaining, total)
                )
                # One file: a copy without its write-ahead log would be no copy.
                copy.execute("PRAGMA journal_mode = DELETE")
        _finish_erasure(source)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{source} cannot be copied to {target.parent}: {error}; check both disks") from error
    return found


def read_back(path: Path, step: Step) -> Counts:
    """Check a copy from its first to its last page.

    Args:
        path: The database.
        step: Called now and then, with zeros.

    Returns:
        Rows by table.

    Raises:
        StoreUnavailable: It is damaged, or not a database of this version; the message says which.
    """
    health = Health(path)
    health.examine()
    health.refuse()
    try:
        with closing(_read_only(path)) as connection:
            with _interruptible(connection, step):
                said = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if said != "ok":
                raise StoreUnavailable(f"{path} is damaged ({' '.join(said.split())})")
            return counts(connection)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}") from error


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Rows by table; the words' postings are left out, since they follow from the records."""
    tables = sorted(name for (name,) in connection.execute(_TABLES))
    return {name: int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) for name in tables}  # noqa: S608


def forgotten_since(present: Path, copy: Path) -> int:
    """How many things were forgotten in the present database that a copy still holds the right to recall.

    Args:
        present: The database; one that cannot be read counts as none.
        copy: An older copy of it.
    """
    if not present.exists():
        return 0
    try:
        with closing(_read_only(present)) as connection:
            connection.execute("ATTACH DATABASE ? AS copy", (f"{copy.absolute().as_uri()}?mode=ro",))
            return int(connection.execute(_FORGOTTEN).fetchone()[0])
    except sqlite3.Error:
        return 0


def read_rows(path: Path, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of a query, on a connection of its own that cannot write.

    Raises:
        StoreUnavailable: The database cannot be read.
    """
    try:
        with closing(_read_only(path)) as connection:
            return connection.execute(sql, parameters).fetchall()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}") from error


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=_BUSY_S)


def _finish_erasure(source: Path) -> None:
    """Empty the write-ahead log where forgotten text waited in it for our reading to end."""
    with closing(_read_only(source)) as connection:
        if not forget.pending(connection):
            return
    with closing(sqlite3.connect(source, isolation_level=None, timeout=_BUSY_S)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


@contextmanager
def _interruptible(connection: sqlite3.Connection, step: Step) -> Iterator[None]:
    """Let `step` end a long statement by raising."""
    raised: list[BaseException] = []

    def look() -> int:
        try:
            step(0, 0)
        except BaseException as error:  # noqa: BLE001 - SQLite would swallow it
            raised.append(error)
        return len(raised)

    connection.set_progress_handler(look, _LOOK_INSTRUCTIONS)
    try:
        yield
    except sqlite3.OperationalError:
        if raised:
            raise raised[0] from None
        raise
    finally:
        connection.set_progress_handler(None, 0)
