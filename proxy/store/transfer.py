"""Records with all that belongs to them, read out and taken in again; and the listing of a whole tenant.

In: a scope and the readers, or a connection inside a transaction. Out: `Carried` records, read in pages so that no read
lasts long; rows as they were.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
from collections import defaultdict
from collections.abc import Iterator

from proxy.errors import StoreError
from proxy.plugs import Carried, Derivation, Filters, Page, Sighting, Version
from proxy.scope import Scope, TenantScope
from proxy.store import listing, queries, records
from proxy.store.readers import Readers
from proxy.types import Memory

_SQL = queries.load("transfer")
_SURVEY = queries.load("survey")
_MEMORIES = queries.load("memories")
_PAGE = 200
_LAST = 2**63 - 1


def carried(readers: Readers, scope: Scope, *, all_agents: bool) -> Iterator[Carried]:
    """See `Store.carried`."""
    agent, user, shared = scope.readable
    whose = {"owner": user, "agent": agent, "user": user, "shared": shared, "every": all_agents}
    after = 0
    while page := readers.all(_SQL["page"], {**whose, "after": after, "limit": _PAGE}):
        memories = [records.row_to_memory(row) for row in page]
        keys = {"owner": user, "ids": records.dumps([memory.id for memory in memories])}
        history: dict[str, list[Version]] = defaultdict(list)
        for id_, change, state, at in readers.all(_SQL["versions"], {"ids": keys["ids"]}):
            history[id_].append(Version(records.memory_from_json(state), change, records.moment(at)))
        links: dict[str, list[tuple[str, Derivation]]] = defaultdict(list)
        for derived, evidence, how in readers.all(_SQL["links"], keys):
            links[derived].append((evidence, how))
        again: dict[str, list[Sighting]] = defaultdict(list)
        for id_, session, message, at in readers.all(_SQL["sightings"], keys):
            again[id_].append(Sighting(session, message, records.moment(at)))
        for row, memory in zip(page, memories, strict=True):
            its = (history[memory.id], links[memory.id], again[memory.id])
            yield Carried(memory, row[records.CHANGE], *(tuple(one) for one in its))  # type: ignore[arg-type]
        after = page[-1][records.ROW]


def list_tenant(readers: Readers, scope: TenantScope, filters: Filters, *, limit: int, cursor: str | None) -> Page:
    """See `Store.list_tenant`."""
    sql, keys = listing.narrowed(_SQL["tenant_page"], filters)
    whose = {"tenant": scope.tenant, "only_user": scope.user_id, "only_agent": scope.agent_id}
    before = _LAST if cursor is None else _row_of(cursor)
    rows = readers.all(sql, {**keys, **whose, "before": before, "limit": limit + 1})
    items = tuple(records.row_to_memory(row) for row in rows[:limit])
    return Page(items, _cursor(rows[limit - 1][records.ROW]) if len(rows) > limit else None)


def _cursor(row: int) -> str:
    return base64.urlsafe_b64encode(f"row {row}".encode()).decode().rstrip("=")


def _row_of(cursor: str) -> int:
    try:
        word, number = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split()
        if word != "row":
            raise ValueError(word)
        return int(number)
    except (ValueError, binascii.Error) as error:
        raise listing.foreign_cursor() from error


# ── inside a transaction ───────────────────────────────────────────────────────────────────────────────────────────
def is_known(connection: sqlite3.Connection, memory: Memory) -> bool:
    """Whether this user has a record of that id.

    Raises:
        StoreError: Somebody else has one.
    """
    found = connection.execute(_SQL["owner_of"], {"id": memory.id}).fetchone()
    if found is None:
        return False
    if found[0] != records.owner_of(memory).partition("user"):
        raise StoreError(f"the id {memory.id} is another user's: copy the record under an id of its own (move=true)")
    return True


def add_belongings(connection: sqlite3.Connection, one: Carried) -> None:
    """Store what belongs to a record: its former states, its links, where it was said again."""
    owner = records.owner_of(one.memory).partition("user")
    for version in one.history:
        state = {"state": records.memory_to_json(version.memory), "at": version.at.timestamp()}
        connection.execute(_MEMORIES["add_version"], {"id": one.memory.id, "change": version.change, **state})
    for evidence, how in one.links:
        keys = {"owner": owner, "derived": one.memory.id, "evidence": evidence, "how": how}
        connection.execute(_SURVEY["link"], keys)
    for seen in one.said_again:
        where = {"session": seen.session, "message": seen.message, "at": seen.at.timestamp()}
        connection.execute(_SURVEY["sight"], {"owner": owner, "id": one.memory.id, **where})
