"""What may be done inside one transaction: `plugs.Transaction` on SQLite.

In: records and the writer's unit. Out: rows, lexical postings and versions, and what to change in memory after the
commit. Nothing here commits by itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from proxy.errors import Forgotten, StoreError, VersionConflict
from proxy.plugs import Carried, Cascade, Derivation, KeptAnswer, Transaction
from proxy.scope import Scope
from proxy.store import conversations, forget, idempotency, journal, lexical, pieces, queries, records, survey, transfer
from proxy.store.generations import Generations
from proxy.store.kept import KeptRecords
from proxy.store.partition import NEVER, Entry, pack, thread_of
from proxy.store.pieces import Pieces
from proxy.store.postings import Postings
from proxy.store.recents import Recents
from proxy.store.vectors import VectorIndex
from proxy.store.writer import Unit
from proxy.types import JournalStatus, Memory, Message, Outcome, Source, Vector

_SQL = queries.load("memories")
_FORGET = queries.load("forget")
_SURVEY = queries.load("survey")


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
        recents: Likewise.
        pieces: Likewise.
        clock: The present time.
        shown: Gives a record what a block shows of it, and what that costs: whatever is stored passes it.
        owners: Those known to be in the `owners` table.
    """

    fingerprint: str
    dimension: int
    index: VectorIndex
    postings: Postings
    generations: Generations
    kept: KeptRecords
    recents: Recents
    pieces: Pieces
    clock: Callable[[], datetime]
    shown: Callable[[Memory], Memory]
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
        memory = self._around.shown(memory)
        columns = records.memory_to_row(memory)
        self._pass_tombstones(memory, columns["owner"])
        self._insert(memory, columns, vector, "created")

    def take_in(self, carried: Carried, vector: Vector | None) -> bool:
        shown = self._around.shown
        memory = shown(carried.memory)
        columns = records.memory_to_row(memory)
        if transfer.is_known(self._unit.connection, memory):
            return False
        owner = columns["owner"]
        if self._is_buried(memory, owner) or self._was_erased(memory, owner):
            raise Forgotten
        self._insert(memory, columns, vector, carried.change)
        former = [one for one in carried.history if not self._is_buried(one.memory, owner)]
        history = tuple(replace(version, memory=shown(version.memory)) for version in former)
        transfer.add_belongings(self._unit.connection, replace(carried, history=history))
        return True

    def keep_answer(self, scope: Scope, key: str, answer: KeptAnswer, now: datetime, since: datetime) -> None:
        idempotency.keep(self._unit.connection, scope, key, answer, now, since)

    def _insert(self, memory: Memory, columns: dict[str, Any], vector: Vector | None, change: str) -> None:
        packed = pack(vector, self._around.dimension)
        words = lexical.terms(columns["content"])
        fingerprint = self._around.fingerprint if packed is not None else None
        columns |= {"change": change, "term_count": len(words), "fingerprint": fingerprint, "vector": packed}
        try:
            row = self._execute(_SQL["insert"], columns).lastrowid
        except sqlite3.IntegrityError as error:
            raise StoreError(f"memory {memory.id} cannot be stored ({error}): update it, or take a new id") from error
        assert row is not None
        self._know_owner(records.owner_of(memory))
        if memory.state == "active":
            self._add_terms(row, columns["partition"], words)
            self._reword(columns["partition"], row, words)
            self._index(columns["partition"], _entry(row, memory, len(words), packed))
            self._newly(row, columns, memory)
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
        unfolded = forget.left_over(self._unit.connection, reached)
        forget.bury(self._unit.connection, scope, reached, self._around.clock())
        self.unfreeze(scope, [one.memory.id for one in reached], slots=True)
        self._erase([one.row for one in reached])
        for row in unfolded:
            member = records.row_to_memory(row)
            active = replace(member, state="active", updated_at=self._around.clock())
            self._replace(row, member, active, None, "restored")
        return sum(one.memory.state in ("active", "pending") for one in reached)

    def discard(self, scope: Scope, memory_ids: Collection[str]) -> int:
        rows = forget.past(self._unit.connection, scope, memory_ids)
        forget.clear(self._unit.connection, rows)
        self.unfreeze(scope, [records.row_to_memory(row).id for row in rows])
        self._erase(rows)
        return sum(records.row_to_memory(row).state == "archived" for row in rows)

    def link(self, derived: Memory, evidence: Collection[str], how: Derivation) -> None:
        survey.link(self._unit.connection, derived, evidence, how)

    def unlink(self, derived: Memory) -> None:
        survey.unlink(self._unit.connection, derived)

    def witness(self, memory: Memory, source: Source, now: datetime) -> bool:
        row = self._owned(memory, memory.id)
        elsewhere = survey.sight(self._unit.connection, memory, source, now)
        if elsewhere:
            self._execute(_SURVEY["strengthen"], {"row": row[records.ROW]})
            self._forgo([row[records.ROW]])
            self._unit.after_commit.append(partial(self._around.recents.changed, row[records.PARTITION]))
        return elsewhere

    def keep_note(self, name: str, text: str) -> None:
        survey.keep_note(self._unit.connection, name, text)

    def cascade(self, scope: Scope, memory_ids: Collection[str]) -> Cascade:
        return forget.cascade(self._unit.connection, forget.reach(self._unit.connection, scope, memory_ids))

    def thaw(self, scope: Scope) -> None:
        dropped = pieces.drop_session(self._unit.connection, scope)
        self._unit.after_commit.append(partial(self._around.pieces.drop, dropped))

    def unfreeze(self, scope: Scope, memory_ids: Collection[str], *, slots: bool = False) -> None:
        dropped = pieces.drop_holding(self._unit.connection, scope, memory_ids, slots=slots)
        if dropped:
            self._unit.after_commit.append(partial(self._around.pieces.drop, dropped))

    def touch(self, scope: Scope, memory_ids: Collection[str], now: datetime) -> None:
        keys = {"ids": records.dumps(list(memory_ids)), "now": now.timestamp(), **partitions(scope)}
        self._execute(_SQL["touch"], keys)
        touched = self._execute(_SQL["rows_of"], keys).fetchall()
        self._forgo([row for row, _ in touched])
        for partition in {partition for _, partition in touched}:
            self._unit.after_commit.append(partial(self._around.recents.changed, partition))

    def mark_seen(self, seen_scope: str, owner: str, messages: Sequence[Message]) -> None:
        conversations.mark_seen(self._unit.connection, seen_scope, owner, messages, self._around.clock())

    def link_session(self, scope: Scope, link: str, now: datetime, *, head: bool) -> None:
        conversations.link_session(self._unit.connection, scope, [link], now, head=head)

    def end_session(self, scope: Scope, now: datetime) -> bool:
        return conversations.end_session(self._unit.connection, scope, now)

    def journal_done(
        self, turn_id: str, status: JournalStatus, outcomes: Sequence[Outcome], *, worked_on: str | None = None
    ) -> None:
        journal.close(self._unit.connection, turn_id, status, outcomes, worked_on)

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
        memory = self._around.shown(memory)
        columns = records.memory_to_row(memory)
        packed = pack(vector, self._around.dimension)
        words = lexical.terms(columns["content"])
        self._keep_version(row, former)
        self._execute(_SQL["update"], {**columns, "row": number, "change": change, "term_count": len(words)})
        if packed is not None or memory.content != former.content:
            # A vector of the former words would stand for what is no longer said.
            fingerprint = self._around.fingerprint if packed is not None else None
            self._execute(_SQL["set_vector"], {"row": number, "fingerprint": fingerprint, "vector": packed})
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
            self._unit.after_commit.append(partial(self._around.recents.changed, partition))
            self._changed(partition)

    def _erase(self, rows: Sequence[records.Row]) -> None:
        for row in rows:
            self._drop_terms(row)
            self._execute(_FORGET["drop_memory"], {"row": row[records.ROW]})
            self._unindex(row)
            self._forgo([row[records.ROW]])
            self._unit.after_commit.append(partial(self._around.recents.changed, row[records.PARTITION]))
            self._changed(row[records.PARTITION])
        for partition in {row[records.PARTITION] for row in rows}:
            self._erase_vectors(partition)
        self._unit.erases = self._unit.erases or bool(rows)

    def _keep_version(self, row: records.Row, former: Memory) -> None:
        state = {"state": records.memory_to_json(former), "at": former.updated_at.timestamp()}
        self._execute(_SQL["add_version"], {"id": former.id, "change": row[records.CHANGE], **state})

    def _know_owner(self, scope: Scope) -> None:
        if scope.owner not in self._around.owners:
            conversations.know_owner(self._unit.connection, scope)
            self._unit.after_commit.append(partial(self._around.owners.add, scope.owner))

    def _pass_tombstones(self, memory: Memory, owner: str) -> None:
        if not self._is_buried(memory, owner):
            return
        if memory.source.role != "api":
            raise Forgotten
        self._execute(_FORGET["lift_tombstones"], {"owner": owner, **forget.tombstone_keys(memory)})

    def _is_buried(self, memory: Memory, owner: str) -> bool:
        keys = {"owner": owner, **forget.tombstone_keys(memory)}
        return self._execute(_FORGET["tombstones"], keys).fetchone() is not None

    def _was_erased(self, memory: Memory, owner: str) -> bool:
        keys = {"owner": owner, "message": forget.record_key(memory.id)}
        return self._execute(_FORGET["is_forgotten"], keys).fetchone() is not None

    def _stored_vector(self, row: int) -> bytes | None:
        found = self._execute(_SQL["vector"], {"row": row, "fingerprint": self._around.fingerprint}).fetchone()
        return None if found is None else found[0]

    def _add_terms(self, row: int, partition: str, words: Sequence[str]) -> None:
        tokens = _tokens(partition, words)
        self._execute(_SQL["add_terms"], {"row": row, "terms": " ".join(tokens)})
        self._unit.after_commit.append(partial(self._around.postings.maps.added, partition, row, tokens))

    def _drop_terms(self, row: records.Row) -> None:
        memory = records.row_to_memory(row)
        if memory.state == "active":
            tokens = _tokens(row[records.PARTITION], lexical.terms(memory.content))
            self._execute(_SQL["drop_terms"], {"row": row[records.ROW], "terms": " ".join(tokens)})
            removed = partial(self._around.postings.maps.removed, row[records.PARTITION], row[records.ROW], tokens)
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

    def _newly(self, row: int, columns: Mapping[str, Any], memory: Memory) -> None:
        if columns["content"] == memory.content:  # else it is not quite what was stored
            self._unit.after_commit.append(partial(self._around.kept.put, row, columns["partition"], memory))
            self._unit.after_commit.append(partial(self._around.recents.inserted, columns["partition"], row, memory))
        else:
            self._unit.after_commit.append(partial(self._around.recents.changed, columns["partition"]))

    def _forgo(self, rows: Sequence[int]) -> None:
        self._unit.after_commit.append(partial(self._around.kept.drop, rows))

    def _changed(self, partition: str) -> None:
        self._unit.after_commit.append(partial(self._around.generations.bump, partition))


def partitions(scope: Scope) -> dict[str, Any]:
    """The three partitions a scope reads, as the queries name them."""
    agent, user, shared = scope.readable
    return {"agent": agent, "user": user, "shared": shared}


def _tokens(partition: str, words: Sequence[str]) -> list[str]:
    return [lexical.token(partition, word) for word in words]


def _entry(row: int, memory: Memory, term_count: int, packed: bytes | None) -> Entry:
    expires_at = NEVER if memory.expires_at is None else memory.expires_at.timestamp()
    thread = thread_of(memory.session_id, memory.created_at.timestamp())
    return Entry(row, term_count, expires_at, packed, thread)
