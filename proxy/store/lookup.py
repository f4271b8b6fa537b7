"""Records by row, id, key or message, from what is kept in memory or else from the file. Reads only, in a scope.

In: a scope and what to look for. Out: records, and the little that ranking and blocks must know of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from proxy.glance import GONE, Glance, composed, gathered
from proxy.plugs import Filters, Glances, Page, Version
from proxy.scope import Scope
from proxy.store import listing, queries, records
from proxy.store.health import Health
from proxy.store.kept import KeptRecords
from proxy.store.readers import Readers
from proxy.store.recents import MOST, Recent, Recents, newest_first
from proxy.store.transaction import partitions
from proxy.types import Memory, State

_SQL = queries.load("memories")


class Lookup:
    """Looks records up. Safe to use from any thread; methods are those of `plugs.Store`.

    Args:
        readers: The database.
        health: Refuses while the database is unusable, also what is kept in memory.
        kept: Records read before.
        recents: The newest of each kind.
        clock: The present time, aware UTC.
    """

    def __init__(
        self, readers: Readers, health: Health, kept: KeptRecords, recents: Recents, clock: Callable[[], datetime]
    ) -> None:
        self._readers = readers
        self._health = health
        self._kept = kept
        self._recents = recents
        self._clock = clock

    def get(self, scope: Scope, memory_id: str) -> Memory | None:
        row = self._readers.one(_SQL["by_id"], {"id": memory_id, **partitions(scope)})
        return None if row is None else records.row_to_memory(row)

    def read(self, scope: Scope, memory_ids: Collection[str]) -> Sequence[Memory]:
        kept = self._kept.named(memory_ids, scope.readable)
        missing = [one for one in memory_ids if one not in kept]
        if not missing:
            return tuple(kept.values())
        mark = self._kept.mark()
        rows = self._readers.all(_SQL["by_ids"], {"ids": records.dumps(missing), **partitions(scope)})
        read = _decoded(rows)
        self._kept.keep(read, mark)
        return (*kept.values(), *(memory for _, memory in read.values()))

    def list(
        self, scope: Scope, filters: Filters, *, limit: int, cursor: str | None = None, all_agents: bool = False
    ) -> Page:
        listing.check_limit(limit)
        owner = scope.partition("user") if all_agents else None
        sql, keys = listing.narrowed(_SQL["listed"], filters, cursor)
        whose = {"partitions": records.dumps(scope.readable), "owner": owner}
        rows = self._readers.all(sql, {**keys, **whose, "limit": limit + 1})
        found = tuple(records.row_to_memory(row) for row in rows)
        items = found[:limit]
        return Page(items, listing.cursor_after(items[-1]) if len(found) > limit else None)

    def load(self, scope: Scope, rows: Collection[int]) -> Mapping[int, Memory]:
        self._health.refuse()
        read = partial(self._by_rows, "by_rows", scope)
        return self._kept.through(rows, scope.readable, lambda missing: _decoded(read(missing)))

    def glances(self, scope: Scope, rows: Sequence[int]) -> Glances:
        self._health.refuse()

        def read(missing: list[int]) -> dict[int, tuple[str, Glance]]:
            return {row: (where, composed(*told)) for row, where, *told in self._by_rows("glances", scope, missing)}

        known = self._kept.glances.through(rows, scope.readable, read)
        return gathered(known.get(row, GONE) for row in rows)

    def _by_rows(self, query: str, scope: Scope, rows: Sequence[int]) -> Sequence[records.Row]:
        return self._readers.all(_SQL[query], {"rows": records.dumps(rows), **partitions(scope)})

    def recent(self, scope: Scope, memory_type: str, limit: int) -> Sequence[Memory]:
        self._health.refuse()
        now = self._clock()
        found = [one for name in scope.readable for one in self._newest(name, memory_type, limit, now)]
        return tuple(one.memory for one in newest_first(found)[:limit])

    def _newest(self, partition: str, memory_type: str, limit: int, now: datetime) -> Sequence[Recent]:
        held = self._recents.of(partition, memory_type)
        if held is not None and (limit < MOST or len(held) < MOST):
            living = [one for one in held if one.memory.expires_at is None or one.memory.expires_at > now]
            if len(living) >= limit or len(held) < MOST:
                return living[:limit]
        mark = self._recents.mark(partition)
        keys = {"partition": partition, "memory_type": memory_type, "now": now.timestamp()}
        rows = self._readers.all(_SQL["recent"], {**keys, "limit": max(limit, MOST)})
        read = [Recent(row[records.ROW], records.row_to_memory(row)) for row in rows]
        self._recents.keep(partition, memory_type, read[:MOST], mark)
        return read[:limit]

    def by_key(self, scope: Scope, key: str) -> Sequence[Memory]:
        return self._memories("by_key", {"key": key, "now": self._clock().timestamp(), **partitions(scope)})

    def from_message(self, scope: Scope, message_hash: str) -> Sequence[Memory]:
        return self._memories("from_message", {"message_hash": message_hash, **partitions(scope)})

    def _memories(self, query: str, keys: Mapping[str, Any]) -> tuple[Memory, ...]:
        return tuple(records.row_to_memory(row) for row in self._readers.all(_SQL[query], keys))

    def states(self, scope: Scope, memory_ids: Collection[str]) -> Mapping[str, tuple[State, str | None, int]]:
        kept = self._kept.named(memory_ids, scope.readable)
        found = {one.id: (one.state, one.superseded_by, one.version) for one in kept.values()}
        missing = [one for one in memory_ids if one not in kept]
        if missing:
            keys = {"ids": records.dumps(missing), **partitions(scope)}
            found |= {id_: (state, *more) for id_, state, *more in self._readers.all(_SQL["states"], keys)}
        return found

    def counts(self, scope: Scope) -> dict[str, Any]:
        """How many records there are, by type, kind and state."""
        types, kinds, states = Counter[str](), Counter[str](), Counter[str]()
        for memory_type, kind, state, number in self._readers.all(_SQL["counts"], partitions(scope)):
            types[memory_type] += number
            kinds[kind] += number
            states[state] += number
        by = {"by_memory_type": dict(types), "by_kind": dict(kinds), "by_state": dict(states)}
        return {**by, "total": states.total()}

    def history(self, scope: Scope, memory_id: str) -> Sequence[Version]:
        versions: list[Version] = []
        met: set[str] = set()
        wanted: str | None = memory_id
        while wanted is not None and wanted not in met:
            met.add(wanted)
            row = self._readers.one(_SQL["by_id"], {"id": wanted, **partitions(scope)})
            if row is None:
                break
            present = records.row_to_memory(row)
            former = [
                Version(records.memory_from_json(state), change, records.moment(at))
                for change, state, at in self._readers.all(_SQL["versions"], {"id": wanted})
            ]
            versions = [*former, Version(present, row[records.CHANGE], present.updated_at), *versions]
            wanted = present.supersedes
        return versions


def _decoded(found: Sequence[records.Row]) -> dict[int, tuple[str, Memory]]:
    """Partition and record, by row."""
    return {row[records.ROW]: (row[records.PARTITION], records.row_to_memory(row)) for row in found}
