"""What sweeps look at: which users there are, all that one of them has, and what was made from what.

In: a scope, a connection inside a transaction or the readers. Out: `Surveyed` records with their vectors, `Evidence`
links, and where the same was said again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import numpy as np

from proxy.plugs import Derivation, Evidence, Survey, Surveyed
from proxy.scope import Scope
from proxy.store import queries, records
from proxy.store.readers import Readers
from proxy.types import Memory, Source

_SQL = queries.load("survey")
_META = queries.load("forget")
_PAGE = 500
_NOTE = "note:"


def owners(readers: Readers) -> Iterator[Scope]:
    """See `Store.owners`; read in pages, so that no read transaction lasts long."""
    after = ""
    while True:
        page = readers.all(_SQL["owners"], {"after": after, "limit": _PAGE})
        for owner, tenant, user_id, agent_id in page:
            yield Scope(tenant, user_id, agent_id)
            after = owner
        if len(page) < _PAGE:
            return


def survey(readers: Readers, scope: Scope, fingerprint: str) -> Survey:
    """See `Store.survey`."""
    owner = scope.partition("user")
    sightings: dict[str, list[tuple[str, datetime]]] = {}
    for id_, session, at in readers.all(_SQL["sightings"], {"owner": owner}):
        sightings.setdefault(id_, []).append((session, records.moment(at)))
    found: list[Surveyed] = []
    after = 0
    while True:
        keys = {"owner": owner, "after": after, "limit": _PAGE, "fingerprint": fingerprint}
        page = readers.all(_SQL["surveyed"], keys)
        for *row, packed in page:
            memory = records.row_to_memory(tuple(row))
            vector = None if packed is None else np.frombuffer(packed, "<f2").astype(np.float32)
            found.append(Surveyed(memory, vector, row[records.CHANGE], tuple(sightings.get(memory.id, ()))))
        if len(page) < _PAGE:
            break
        after = page[-1][records.ROW]
    links = tuple(Evidence(*link) for link in readers.all(_SQL["links"], {"owner": owner}))
    return Survey(scope, tuple(found), links)


def note_name(name: str) -> str:
    """What a note is called among the database's meta data."""
    return _NOTE + name


def note(readers: Readers, name: str) -> str | None:
    """See `Store.note`."""
    found = readers.one(_META["get_meta"], {"name": note_name(name)})
    return None if found is None else str(found[0])


# ── inside a transaction ───────────────────────────────────────────────────────────────────────────────────────────
def keep_note(connection: sqlite3.Connection, name: str, text: str) -> None:
    """See `Transaction.keep_note`."""
    connection.execute(_META["set_meta"], {"name": note_name(name), "value": text})


def link(connection: sqlite3.Connection, derived: Memory, evidence: Collection[str], how: Derivation) -> None:
    """See `Transaction.link`."""
    owner = records.owner_of(derived).partition("user")
    keys = [{"owner": owner, "derived": derived.id, "evidence": one, "how": how} for one in evidence]
    connection.executemany(_SQL["link"], keys)


def unlink(connection: sqlite3.Connection, derived: Memory) -> None:
    """See `Transaction.unlink`."""
    connection.execute(_SQL["unlink"], {"owner": records.owner_of(derived).partition("user"), "id": derived.id})


def sight(connection: sqlite3.Connection, memory: Memory, source: Source, at: datetime) -> bool:
    """Note where a record's words were said again.

    Returns:
        Whether that was in a session of its own: neither the record's nor one known from before.
    """
    if source.session is None:
        return False
    keys = {
        "owner": records.owner_of(memory).partition("user"),
        "id": memory.id,
        "session": source.session,
        "message": source.message_hash or "",
        "at": at.timestamp(),
    }
    known = source.session == memory.source.session or connection.execute(_SQL["seen_in"], keys).fetchone() is not None
    connection.execute(_SQL["sight"], keys)
    return not known


def drop(connection: sqlite3.Connection, owner: str, memory_id: str) -> None:
    """A record goes: so does what it was linked with, and where it was said again."""
    keys = {"owner": owner, "id": memory_id}
    connection.execute(_SQL["drop_links"], keys)
    connection.execute(_SQL["drop_sightings"], keys)


def folded(connection: sqlite3.Connection, owner: str, memory_id: str) -> Sequence[tuple[records.Row, Derivation]]:
    """The records that one stands for, and how: duplicates merged into it, members of a summary."""
    found = connection.execute(_SQL["folded"], {"owner": owner, "id": memory_id}).fetchall()
    return [(tuple(row), how) for *row, how in found]


def made_from(connection: sqlite3.Connection, owner: str, memory_id: str) -> Sequence[records.Row]:
    """The summaries, lessons and promoted facts that a record was evidence of."""
    return connection.execute(_SQL["made_from"], {"owner": owner, "id": memory_id}).fetchall()


def said_again(connection: sqlite3.Connection, owner: str, memory_id: str) -> Sequence[str]:
    """Hashes of the later messages that said the same."""
    return [message for (message,) in connection.execute(_SQL["said_again"], {"owner": owner, "id": memory_id})]
