"""The database file: made, opened for writing, taken up after a restart, re-indexed.

In: a path, or the writer's unit. Out: a connection set up the way every write needs it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from proxy import glance, traits
from proxy.store import forget, journal, lexical, queries
from proxy.store.health import APPLICATION_ID, SCHEMA_VERSION
from proxy.store.kept import KeptRecords
from proxy.store.postings import Postings
from proxy.store.vectors import VectorIndex
from proxy.store.writer import Unit

_SQL = queries.load("memories")
_META = queries.load("forget")
_TERMS = "lexical_version"
_TRAITS = "traits_version"
_TRIED = "write_tried"
_BUSY_S = 2.0


def connect(path: Path) -> sqlite3.Connection:
    """Open the database for writing, and make it where there is none.

    Raises:
        sqlite3.Error: It cannot be opened or made now.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Nobody else on the machine is to read it; SQLite gives its companion files the same mode. A file that is there
        # is not opened: closing it again would drop the locks that this process's other connections have on it, and the
        # next foreign connection to close would take the write-ahead log away from under them.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise sqlite3.OperationalError(f"unable to open database file: {error}") from error
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_S)
    try:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cache_size = -8192")
        _make(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _statements(queries.load("schema")["create"]):
                connection.execute(statement)
            _note(connection, _TERMS, lexical.VERSION)
            _note(connection, _TRAITS, traits.VERSION)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    # `executescript` would commit first; the schema is to appear whole or not at all.
    statements, begun = [], ""
    for line in f"{script};".splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            statements.append(begun)
            begun = ""
    return statements


def take_up(unit: Unit, now: datetime) -> None:
    """What a start owes to the run before: old ledger entries go, an interrupted erasure is finished, and postings and
    traits made by other rules than today's are made anew."""
    journal.take_up(unit.connection, now)
    _catch_up(unit)


def write_something(unit: Unit) -> None:
    """Find out whether the database can be written again, and do what could not be done meanwhile."""
    unit.connection.execute(_META["set_meta"], {"name": _TRIED, "value": "1"})
    _catch_up(unit)


def _catch_up(unit: Unit) -> None:
    if _noted(unit.connection, _TERMS) != lexical.VERSION:
        index_terms(unit.connection)
    if _noted(unit.connection, _TRAITS) != traits.VERSION:
        look_again(unit.connection)
    unit.erases = forget.pending(unit.connection)


def reindex(unit: Unit, index: VectorIndex, postings: Postings, kept: KeptRecords) -> int:
    """Make postings and traits anew, and have vectors read again and their files made anew once that is committed.

    Returns:
        How many records were indexed.
    """
    unit.after_commit += [postings.clear, index.renew_all, kept.clear]
    look_again(unit.connection)
    return index_terms(unit.connection)


def index_terms(connection: sqlite3.Connection) -> int:
    """Make the lexical postings of all active records anew.

    Returns:
        How many records were indexed.
    """
    connection.execute(_SQL["drop_all_terms"])
    count, after = 0, 0
    while batch := connection.execute(_SQL["to_index"], {"after": after}).fetchall():
        for row, partition, content in batch:
            words = lexical.terms(content)
            keys = {"row": row, "terms": " ".join(lexical.token(partition, word) for word in words)}
            connection.execute(_SQL["add_terms"], keys)
            connection.execute(_SQL["set_term_count"], {"row": row, "term_count": len(words)})
        count, after = count + len(batch), batch[-1][0]
    _note(connection, _TERMS, lexical.VERSION)
    return count


def look_again(connection: sqlite3.Connection) -> None:
    """Work out anew what ranking looks at in each record."""
    after = 0
    while batch := connection.execute(_SQL["to_see"], {"after": after}).fetchall():
        for row, content, role in batch:
            bits, speaker = glance.seen(content, role)
            connection.execute(_SQL["set_seen"], {"row": row, "seen": bits, "speaker": speaker})
        after = batch[-1][0]
    _note(connection, _TRAITS, traits.VERSION)


def _note(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute(_META["set_meta"], {"name": name, "value": value})


def _noted(connection: sqlite3.Connection, name: str) -> str | None:
    found = connection.execute(_META["get_meta"], {"name": name}).fetchone()
    return None if found is None else found[0]
