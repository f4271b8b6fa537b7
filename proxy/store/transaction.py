"""What may be done inside one transaction: `plugs.Transaction` on SQLite.

In: records and the writer's unit. Out: rows, lexical postings and versions, and what to change in memory after the
commit. Nothing here commits by itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from proxy.errors import Forgotten, StoreError, VersionConflict
from proxy.plugs import Transaction
from proxy.scope import Scope
from proxy.store import conversations, forget, journal, lexical, queries, records
from proxy.store.generations import Generations
from proxy.store.kept import KeptRecords
from proxy.store.partition import NEVER, Entry, pack
from proxy.store.postings import Postings
from proxy.store.vectors import VectorIndex
from proxy.store.writer import Unit
from proxy.types import JournalStatus, Memory, Message, Outcome, Vector

_SQL = queries.load("memories")
_FORGET = queries.load("forget")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a transaction needs beside the database.

    Args:
        fingerprint: Of the present embedding model.
        dimension: Its vectors' length.
        index: Told of changes after the commit.
        postings: Likewise.
        generations: Likewise.
        kept: Likewise.
        clock: The present time.
        owners: Those known to be in the `owners` table.
    """

    fingerprint: str
    dimension: int
    index: VectorIndex
    postings: Postings
    generations: Generations
    kept: KeptRecords
    clock: Callable[[], datetime]
    owners: set[str] = field(default_factory=set)


class SqliteTransaction(Transaction):
    """One savepoint of the writer's group commit.

    Args:
        unit: The writer's.
        around: Model, index, generations, clock.
    """

    def __init__(self, unit: Unit, around: Surroundings) -> None:
        self._unit = unit
        self._execute = unit.connection.execute
        self._around = around

    def get(self, scope: Scope, memory_id: str) -> Memory | None:
        row = self._execute(_SQL["by_id"], {"id": memory_id, **partitions(scope)}).fetchone()
        return None if row is None else records.row_to_memory(row)

    def insert(self, memory: Memory, vector: Vector | None) -> None:
        columns = records.memory_to_row(memory)
        packed = pack(vector, self._around.dimension)
        self._pass_tombstones(memory, columns["owner"])
        words = lexical.terms(columns["content"])
        fingerprint = self._around.fingerprint if packed is not None else None
        columns |= {"change": "created", "term_count": len(words), "fingerprint": fingerprint, "vector": packed}
        try:
            row = self._execute(_SQL["insert"], columns).lastrowid
        except sqlite3.IntegrityError as error:
            raise StoreError(f"memory {memory.id} cannot be stored ({error}): update it, or take a new id") from error
        assert row is not None
        self._know_owner(records.owner_of(memory))
        if memory.state == "active":
            self._add_terms(row, columns["partition"], words)
            self._unit.after_commit.append(partial(self._around.postings.inserted, columns["partition"]))
            self._index(columns["partition"], _entry(row, memory, len(words), packed))
        self._changed(columns["partition"])

    def update(
        self, memory: Memory, vector: Vector | None, *, change: str, expected_version: int | None = None
    ) -> None:
        row = self._owned(memory, memory.id)
        former = records.row_to_memory(row)
        if expected_version is not None and former.version != expected_version:
            raise VersionConflict(
                f"memory {memory.id} is at version {former.version}, not {expected_version}: read it again, "
                "then repeat the change"
            )
        self._replace(row, former, memory, vector, change)

    def supersede(self, old: Memory, new: Memory, vector: Vector | None) -> None:
        row = self._owned(new, old.id)
        stored = records.row_to_memory(row)
        if stored.version != old.version or stored.state == "superseded":
            raise VersionConflict(f"memory {old.id} changed since it was read: read it again, then repeat the change")
        self.insert(replace(new, supersedes=old.id), vector)
        following = replace(stored, state="superseded", superseded_by=new.id, updated_at=new.updated_at)
        self._replace(row, stored, following, None, "superseded")

    def forget(self, scope: Scope, memory_ids: Collection[str]) -> int:
        reached = forget.reach(self._unit.connection, scope, memory_ids)
        if not reached:
            return 0
        forget.bury(self._unit.connection, scope, reached, self._around.clock())
        for one in reached:
            self._drop_terms(one.row)
            self._execute(_FORGET["drop_memory"], {"row": one.row[records.ROW]})
            self._unindex(one.row)
            self._forgo([one.row[records.ROW]])
            self._changed(one.row[records.PARTITION])
        for partition in {one.row[records.PARTITION] for one in reached}:
            self._erase_vectors(partition)
        self._unit.erases = True
        return sum(one.memory.state in ("active", "pending") for one in reached)

    def touch(self, memory_ids: Collection[str], now: datetime) -> None:
        keys = {"ids": records.dumps(list(memory_ids)), "now": now.timestamp()}
        self._execute(_SQL["touch"], keys)
        self._forgo([row for (row,) in self._execute(_SQL["rows_of"], keys).fetchall()])

    def mark_seen(self, seen_scope: str, owner: str, messages: Sequence[Message]) -> None:
        conversations.mark_seen(self._unit.connection, seen_scope, owner, messages, self._around.clock())

    def link_session(self, scope: Scope, link: str, now: datetime, *, head: bool) -> None:
        conversations.link_session(self._unit.connection, scope, [link], now, head=head)

    def end_session(self, scope: Scope, now: datetime) -> bool:
        return conversations.end_session(self._unit.connection, scope, now)

    def journal_done(self, turn_id: str, status: JournalStatus, outcomes: Sequence[Outcome]) -> None:
        journal.close(self._unit.connection, turn_id, status, outcomes)

    # ── one record's rows ──────────────────────────────────────────────────────────────────────────────────────
    def _owned(self, memory: Memory, memory_id: str) -> records.Row:
        owner = records.owner_of(memory).partition("user")
        row: records.Row | None = self._execute(_SQL["owned"], {"id": memory_id, "owner": owner}).fetchone()
        if row is None:
            raise StoreError(f"this user has no memory {memory_id}")
        return row

    def _replace(self, row: records.Row, former: Memory, memory: Memory, vector: Vector | None, change: str) -> None:
        number, was_in = row[records.ROW], row[records.PARTITION]
        self._forgo([number])
        columns = records.memory_to_row(memory)
        packed = pack(vector, self._around.dimension)
        words = lexical.terms(columns["content"])
        self._keep_version(row, former)
        self._execute(_SQL["update"], {**columns, "row": number, "change": change, "term_count": len(words)})
        if packed is not None:
            keys = {"row": number, "fingerprint": self._around.fingerprint, "vector": packed}
            self._execute(_SQL["set_vector"], keys)
        moved = memory.state != former.state or was_in != columns["partition"]
        if moved or memory.content != former.content:
            self._drop_terms(row)
            if memory.state == "active":
                self._add_terms(number, columns["partition"], words)
                self._reword(columns["partition"], number, words)
        if moved:
            self._unindex(row)
        if was_in != columns["partition"]:
            self._erase_vectors(was_in)
            self._unit.after_commit.append(partial(self._around.postings.moved, was_in, columns["partition"]))
        if memory.state == "active":
            entry = _entry(number, memory, len(words), packed or self._stored_vector(number))
            self._index(columns["partition"], entry)
        for partition in {was_in, columns["partition"]}:
            self._changed(partition)

    def _keep_version(self, row: records.Row, former: Memory) -> None:
        state = {"state": records.memory_to_json(former), "at": former.updated_at.timestamp()}
        self._execute(_SQL["add_version"], {"id": former.id, "change": row[records.CHANGE], **state})

    def _know_owner(self, scope: Scope) -> None:
        if scope.owner not in self._around.owners:
            conversations.know_owner(self._unit.connection, scope)
            self._unit.after_commit.append(partial(self._around.owners.add, scope.owner))

    def _pass_tombstones(self, memory: Memory, owner: str) -> None:
        keys = {"owner": owner, **forget.tombstone_keys(memory)}
        if not self._execute(_FORGET["tombstones"], keys).fetchone():
            return
        if memory.source.role != "api":
            raise Forgotten
        self._execute(_FORGET["lift_tombstones"], keys)

    def _stored_vector(self, row: int) -> bytes | None:
        found = self._execute(_SQL["vector"], {"row": row, "fingerprint": self._around.fingerprint}).fetchone()
        return None if found is None else found[0]

    def _add_terms(self, row: int, partition: str, words: Sequence[str]) -> None:
        self._execute(_SQL["add_terms"], {"row": row, "terms": _tokens(partition, words)})
        self._unit.after_commit.append(partial(self._around.postings.maps.added, partition, row, words))

    def _drop_terms(self, row: records.Row) -> None:
        memory = records.row_to_memory(row)
        if memory.state == "active":
            words = lexical.terms(memory.content)
            keys = {"row": row[records.ROW], "terms": _tokens(row[records.PARTITION], words)}
            self._execute(_SQL["drop_terms"], keys)
            removed = partial(self._around.postings.maps.removed, row[records.PARTITION], row[records.ROW], words)
            self._unit.after_commit.append(removed)
            self._reword(row[records.PARTITION], row[records.ROW], ())

    # ── after the commit ───────────────────────────────────────────────────────────────────────────────────────
    def _index(self, partition: str, entry: Entry) -> None:
        self._unit.after_commit.append(partial(self._around.index.put, partition, entry))

    def _unindex(self, row: records.Row) -> None:
        self._unit.after_commit.append(partial(self._around.index.remove, row[records.PARTITION], row[records.ROW]))

    def _reword(self, partition: str, row: int, words: Collection[str]) -> None:
        self._unit.after_commit.append(partial(self._around.postings.changed, partition, row, words))

    def _erase_vectors(self, partition: str) -> None:
        # Before the commit as well: no crash may leave a file with the vector and a store without the record.
        self._around.index.erase(partition, committed=False)
        self._unit.after_commit.append(partial(self._around.index.erase, partition))

    def _forgo(self, rows: Sequence[int]) -> None:
        self._unit.after_commit.append(partial(self._around.kept.drop, rows))

    def _changed(self, partition: str) -> None:
        self._unit.after_commit.append(partial(self._around.generations.bump, partition))


def partitions(scope: Scope) -> dict[str, Any]:
    """The three partitions a scope reads, as the queries name them."""
    agent, user, shared = scope.readable
    return {"agent": agent, "user": user, "shared": shared}


def _tokens(partition: str, words: Sequence[str]) -> str:
    return " ".join(lexical.token(partition, word) for word in words)


def _entry(row: int, memory: Memory, term_count: int, packed: bytes | None) -> Entry:
    expires_at = NEVER if memory.expires_at is None else memory.expires_at.timestamp()
    return Entry(row, term_count, expires_at, packed)
