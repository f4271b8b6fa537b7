"""Read-only connections: one per thread, closed when its thread ends or the store closes.

In: SQL and parameters. Out: rows. Every failure of SQLite's becomes `StoreUnavailable` and is told to `Health`.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from proxy.errors import StoreError, StoreUnavailable
from proxy.store.health import Health, is_fatal

T = TypeVar("T")
Row = tuple[Any, ...]
_CACHE_KIB = 4_096
HALF_PAIR = "a value holds half a surrogate pair, which stored text cannot: send whole characters"


class Readers:
    """Reads from any thread.

    Args:
        path: The database file; the writer has made it.
        health: Told of every failure and success.
    """

    def __init__(self, path: Path, health: Health) -> None:
        self._uri = f"{path.absolute().as_uri()}?mode=ro"
        self._health = health
        self._local = threading.local()
        self._open: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def all(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Every row of a query.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        return self._run(lambda connection: connection.execute(sql, parameters).fetchall())

    def one(self, sql: str, parameters: Mapping[str, Any]) -> Row | None:
        """The first row of a query.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        rows: list[Row | None] = self._run(lambda connection: [connection.execute(sql, parameters).fetchone()])
        return rows[0]

    def each(self, sql: str, parameters: Iterable[Mapping[str, Any]]) -> list[Row]:
        """The one row of the same aggregate for each of many parameters.

        Raises:
            StoreUnavailable: It cannot be read now.
        """
        return self._run(lambda connection: [connection.execute(sql, one).fetchone() for one in parameters])

    def close(self) -> None:
        """Close every thread's connection once its query is done; later reads are refused."""
        with self._lock:
            self._closed = True
            readers = list(self._open)
        for reader in readers:
            with reader.busy:
                reader.close()

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            reader = self._reader()
            with reader.busy:
                self._refuse()
                result = query(reader.connection)
        except sqlite3.Error as error:
            if is_fatal(error):
                # A connection may stay broken after what broke it is over: the next read opens another.
                self._local.reader = None
            raise self._health.failed("read", error) from error
        except UnicodeEncodeError as error:
            raise StoreError(HALF_PAIR) from error
        self._health.worked("read")
        return result

    def _refuse(self) -> None:
        self._health.refuse()
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _reader(self) -> _Reader:
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            with self._lock:
                self._refuse()
                reader = _Reader(self._uri)
                self._open.add(reader)
            self._local.reader = reader
        return reader


class _Reader:
    """A connection that closes when its thread lets go of it."""

    def __init__(self, uri: str) -> None:
        self.busy = threading.Lock()
        # Used by its own thread only, but closed by whoever closes the store.
        self.connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=2.0)
        self.close = weakref.finalize(self, self.connection.close)
        # What the index holds, term by term; a name for it in this connection only.
        self.connection.execute("CREATE VIRTUAL TABLE temp.fts_terms USING fts5vocab(main, fts, instance)")
        self.connection.execute("PRAGMA query_only = ON")
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self.connection.create_function("casefold", 1, str.casefold, deterministic=True)
