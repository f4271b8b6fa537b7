"""The length of an embedding API's vectors, kept in the database: a later start need not ask the API.

In: an opened store and the embedder in use. Out: a dimension, at a time when no store can be opened without it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from proxy.errors import StoreUnavailable
from proxy.plugs import Embedder, Store
from proxy.store import queries, survey
from proxy.store.database_copy import read_rows

_META = queries.load("forget")
_NOTE = "embedder"


def remembered(database: Path, space: str) -> int | None:
    """The dimension of an embedder that this database was used with last.

    Args:
        database: The file.
        space: What the embedder's fingerprint begins with; its dimension follows.

    Returns:
        None where it was another one, or the database cannot be read.
    """
    if not database.is_file():
        return None
    try:
        found = read_rows(database, _META["get_meta"], {"name": survey.note_name(_NOTE)})
    except StoreUnavailable:
        return None
    fingerprint = str(found[0][0]) if found else ""
    dimension = fingerprint.removeprefix(space)
    return int(dimension) if fingerprint.startswith(space) and dimension.isdecimal() else None


def remember(store: Store, embedder: Embedder) -> None:
    """Note which embedder the database is used with; a store that is out of order is left alone."""
    with suppress(StoreUnavailable):
        if store.note(_NOTE) != embedder.fingerprint:
            store.transact(lambda tx: tx.keep_note(_NOTE, embedder.fingerprint))
