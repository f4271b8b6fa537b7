"""The long-term store on SQLite: `plugs.Store`, put together from its parts.

In: scopes, records, turns. Out: the same, from disk. Reads run on the caller's thread; every write is a job of the
writer's. A damaged file leaves the store standing: each call then raises `StoreUnavailable`, and `health` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from proxy.errors import StoreError, StoreUnavailable
from proxy.glance import GONE, Glance, composed, gathered
from proxy.plugs import (
    Carried,
    Filters,
    Found,
    Glances,
    JournalTurn,
    KeptAnswer,
    Ledger,
    Page,
    Part,
    Piece,
    SearchSource,
    SessionInfo,
    Store,
    Survey,
    Transaction,
    Unembedded,
    Version,
)
from proxy.scope import Scope, TenantScope
from proxy.store import (
    conversations,
    database,
    forget,
    idempotency,
    idle,
    journal,
    listing,
    pieces,
    queries,
    records,
    survey,
    transfer,
    unembedded,
)
from proxy.store.contents import Contents
from proxy.store.generations import Generations
from proxy.store.health import Health
from proxy.store.index_file import IndexFiles
from proxy.store.kept import KeptRecords
from proxy.store.partition import pack
from proxy.store.pieces import Pieces
from proxy.store.postings import Postings, Rows
from proxy.store.readers import HALF_PAIR, Readers
from proxy.store.recents import MOST, Recent, Recents, newest_first
from proxy.store.search import Leg, find
from proxy.store.showing import Showing
from proxy.store.transaction import SqliteTransaction, Surroundings, partitions
from proxy.store.vectors import VectorIndex
from proxy.store.writer import Unit, Writer
from proxy.types import Answer, Memory, State, Vector

T = TypeVar("T")
_SQL = queries.load("memories")
_FORGET = queries.load("forget")


class SqliteStore(Store):
    """The long-term layer in one SQLite file.

    Args:
        path: The file; made when missing, with its directory.
        fingerprint: Of the embedding model whose vectors are searched.
        dimension: Its vectors' length.
        answer_hash: The hash of an answer as the message that the client sends back (`observe.answer_hash`).
        exact_below: Partitions with at most this many vectors are searched exactly, larger ones by an index file in the
            folder ``index`` beside the database.
        clock: The present time, aware UTC.
        shown: Gives a record its short form and its counts; None goes by the shipped settings, and estimates.
    """

    def __init__(
        self,
        path: Path,
        *,
        fingerprint: str,
        dimension: int,
        answer_hash: Callable[[Answer], str],
        exact_below: int = 2000,
        clock: Callable[[], datetime],
        shown: Callable[[Memory], Memory] | None = None,
    ) -> None:
        self._answer_hash = answer_hash
        self._clock = clock
        self._generations = Generations()
        self._searches: Counter[tuple[str, SearchSource]] = Counter()
        self._health = Health(path)
        self._health.examine()
        self._readers = Readers(path, self._health)
        self._contents = Contents(self._readers, fingerprint, dimension)
        files = IndexFiles(path.parent / "index", fingerprint, dimension)
        self._index = VectorIndex(self._contents, files, dimension, exact_below)
        self._postings = Postings(self._readers)
        self._kept = KeptRecords()
        self._recents = Recents()
        self._pieces = Pieces(self._readers)
        self._around = Surroundings(
            fingerprint,
            dimension,
            self._index,
            self._postings,
            self._generations,
            self._kept,
            self._recents,
            self._pieces,
            clock,
            shown or Showing(),
        )
        self._writer = Writer(lambda: database.connect(path), forget.scrub, self._health)
        # What cannot be opened now is told by `health`, and tried again at the next write.
        self._newest_try = self._writer.submit(lambda unit: database.take_up(unit, clock()))
        with suppress(StoreUnavailable):
            self._newest_try.result()

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────
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

    def list_tenant(self, scope: TenantScope, filters: Filters, *, limit: int, cursor: str | None = None) -> Page:
        listing.check_limit(limit)
        return transfer.list_tenant(self._readers, scope, filters, limit=limit, cursor=cursor)

    def carried(self, scope: Scope, *, all_agents: bool) -> Iterator[Carried]:
        return transfer.carried(self._readers, scope, all_agents=all_agents)

    def kept_answer(self, scope: Scope, key: str, *, since: datetime) -> KeptAnswer | None:
        return idempotency.kept(self._readers, scope, key, since)

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

    def search(
        self,
        scope: Scope,
        vector: Vector | None,
        terms: Sequence[str],
        *,
        limit: int,
        filters: Filters | None = None,
        parts: Sequence[Part] | None = None,
    ) -> Found:
        if vector is not None and pack(vector, self._around.dimension) is None:
            vector = None
        self._health.refuse()
        snapshots = {name: self._index.snapshots(name) for name in scope.readable}
        held = [part for of_partition in snapshots.values() for part in of_partition]
        counts = {name: sum(part.count for part in snapshots[name]) for name in snapshots}
        allowed = None
        if filters is not None and listing.narrows(filters):
            sql, keys = listing.narrowed(_SQL["rows_matching"], replace(filters, state=None))
            allowed = np.sort(_rows(self._readers.one(sql, {**keys, **partitions(scope)})))
        by_index = vector is not None and any(part.filed is not None for part in held)
        source: SearchSource = "index" if by_index else "exact"
        self._searches[scope.owner, source] += 1
        rows, dense, lexical, context = find(
            held,
            self._legs(counts, [Part(vector, terms), *(parts or ())]),
            now=self._clock().timestamp(),
            limit=limit,
            fetch=partial(self._contents.vectors, scope),
            allowed=allowed,
            around=parts is not None,
        )
        return Found(rows, dense, lexical, source, context)

    def _legs(self, counts: Mapping[str, int], parts: Sequence[Part]) -> Sequence[Leg]:
        held = self._postings.of(counts, [term for part in parts for term in part.terms])
        return [Leg(part.vector, [held[term] for term in dict.fromkeys(part.terms) if term in held]) for part in parts]

    def holding(self, scope: Scope, terms: Sequence[str], *, limit: int) -> Sequence[Memory]:
        self._health.refuse()
        counts = {name: sum(part.count for part in self._index.snapshots(name)) for name in scope.readable}
        return tuple(self.load(scope, self._postings.holding(counts, terms, limit)).values())

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

    def by_key(self, scope: Scope, key: str) -> Sequence[Memory]:
        return self._memories("by_key", {"key": key, "now": self._clock().timestamp(), **partitions(scope)})

    def from_message(self, scope: Scope, message_hash: str) -> Sequence[Memory]:
        return self._memories("from_message", {"message_hash": message_hash, **partitions(scope)})

    def is_forgotten(self, scope: Scope, message_hash: str) -> bool:
        keys = {"owner": scope.partition("user"), "message": forget.message_key(message_hash)}
        return self._readers.one(_FORGET["is_forgotten"], keys) is not None

    def count(self, scope: Scope) -> int:
        found = self._readers.one(_SQL["count"], {"user": scope.partition("user")})
        return int(found[0]) if found else 0

    def generation(self, scope: Scope) -> str:
        return self._generations.of(scope.readable)

    def stats(self, scope: Scope) -> Mapping[str, Any]:
        types, kinds, states = Counter[str](), Counter[str](), Counter[str]()
        for memory_type, kind, state, number in self._readers.all(_SQL["counts"], partitions(scope)):
            types[memory_type] += number
            kinds[kind] += number
            states[state] += number
        return {
            "by_memory_type": dict(types),
            "by_kind": dict(kinds),
            "by_state": dict(states),
            "total": states.total(),
            "unembedded": unembedded.count_readable(self._readers, self._around.fingerprint, partitions(scope)),
            "exact_searches": self._searches[scope.owner, "exact"],
            "index_searches": self._searches[scope.owner, "index"],
        }

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

    def _memories(self, query: str, keys: Mapping[str, Any]) -> tuple[Memory, ...]:
        return tuple(records.row_to_memory(row) for row in self._readers.all(_SQL[query], keys))

    # ── sweeps ─────────────────────────────────────────────────────────────────────────────────────────────────
    def owners(self) -> Iterator[Scope]:
        return survey.owners(self._readers)

    def survey(self, scope: Scope) -> Survey:
        return survey.survey(self._readers, scope, self._around.fingerprint)

    def note(self, name: str) -> str | None:
        return survey.note(self._readers, name)

    # ── what stands in a session's requests ────────────────────────────────────────────────────────────────────────
    def pieces(self, scope: Scope) -> Mapping[str, Piece]:
        return self._pieces.of(scope)

    def keep_piece(self, scope: Scope, chain: str, piece: Piece) -> Piece:
        standing, is_new = self._pieces.keep(scope, chain, piece)
        if is_new:

            def job(unit: Unit) -> None:
                if not pieces.write(unit.connection, scope, chain, piece):
                    dropped = [(scope.owner, scope.session_id or "", chain)]
                    unit.after_commit.append(partial(self._pieces.drop, dropped))

            # Nobody waits: the turn's journal entry, which is waited for, comes after it and shares its commit.
            self._writer.submit(job, patient=True)
        return standing

    def states(self, scope: Scope, memory_ids: Collection[str]) -> Mapping[str, tuple[State, str | None, int]]:
        kept = self._kept.named(memory_ids, scope.readable)
        found = {one.id: (one.state, one.superseded_by, one.version) for one in kept.values()}
        missing = [one for one in memory_ids if one not in kept]
        if missing:
            keys = {"ids": records.dumps(missing), **partitions(scope)}
            found |= {id_: (state, *more) for id_, state, *more in self._readers.all(_SQL["states"], keys)}
        return found

    # ── conversations ──────────────────────────────────────────────────────────────────────────────────────────
    def session_of(self, scope: Scope, link: str) -> str | None:
        return conversations.session_of(self._readers, scope, link)

    def session(self, scope: Scope) -> SessionInfo | None:
        return conversations.session(self._readers, scope)

    def idle_sessions(self, before: datetime, limit: int) -> Sequence[Scope]:
        return idle.idle_sessions(self._readers, before, limit)

    def seen(self, seen_scope: str, chains: Sequence[str], *, since: datetime | None = None) -> set[str]:
        return conversations.seen(self._readers, seen_scope, chains, since)

    def seen_content(self, owner: str, hashes: Sequence[str]) -> set[str]:
        return conversations.seen_content(self._readers, owner, hashes)

    # ── journal and ledger ─────────────────────────────────────────────────────────────────────────────────────
    def journal_open(self, turn: JournalTurn, ledger: Ledger) -> Future[JournalTurn]:
        boot = self._generations.boot
        return self._writer.submit(lambda unit: journal.open_turn(unit.connection, turn, ledger, boot))

    def journal_answer(
        self, turn_id: str, call_id: str, answer: Answer, links: Sequence[tuple[Scope, str]]
    ) -> Future[None]:
        hashed, now = self._answer_hash(answer), self._clock()
        return self._writer.submit(
            lambda unit: journal.answer_turn(unit.connection, turn_id, call_id, answer, hashed, links, now)
        )

    def journal_void(self, turn_id: str, call_id: str, reason: str) -> Future[None]:
        return self._writer.submit(lambda unit: journal.void_turn(unit.connection, turn_id, call_id, reason))

    def journal_waiting(self) -> Iterator[JournalTurn]:
        return journal.waiting(self._readers, self._generations.boot)

    def ledger_put(self, ledger: Ledger) -> Future[None]:
        return self._writer.submit(lambda unit: journal.put_ledger(unit.connection, ledger))

    def ledger(self, scope: Scope, request_id: str) -> Ledger | None:
        # Who is told that a call's memories are written must find them by any search.
        with self._writer.landed():
            return journal.ledger(self._readers, scope, request_id)

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────
    def transact(self, work: Callable[[Transaction], T], *, patient: bool = False) -> Future[T]:
        def job(unit: Unit) -> T:
            try:
                return work(SqliteTransaction(unit, self._around))
            except UnicodeEncodeError as error:
                raise StoreError(HALF_PAIR) from error

        return self._writer.submit(job, patient=patient)

    def reindex(self) -> Future[int]:
        """Make the lexical postings anew from the records, and the vectors' index files in the background.

        Returns:
            How many records were indexed.
        """
        return self._writer.submit(lambda unit: database.reindex(unit, self._index, self._postings, self._kept))

    # ── vectors of the present model ───────────────────────────────────────────────────────────────────────────
    def unembedded(self, limit: int) -> Sequence[Unembedded]:
        return unembedded.waiting(self._readers, self._around.fingerprint, limit)

    def unembedded_count(self) -> int:
        return unembedded.count(self._readers, self._around.fingerprint)

    def embed(self, embedded: Sequence[tuple[Unembedded, Vector | None]]) -> Future[int]:
        return self._writer.submit(lambda unit: unembedded.embed(unit, self._around, embedded), patient=True)

    def drop_foreign_index(self) -> None:
        self._index.drop_foreign()

    def health(self) -> str | None:
        sick = self._health.sentence()
        if sick is not None and self._newest_try.done():
            # Without a write nobody would learn that the disk has room again, or that the lock is gone.
            self._newest_try = self._writer.submit(database.write_something)
        return sick

    def index_health(self) -> str | None:
        return self._index.trouble()

    def settle(self, timeout_s: float) -> bool:
        """Wait until the index files are as they should be; False when that takes longer."""
        return self._index.settle(timeout_s)

    def close(self) -> None:
        self._index.close()
        self._writer.close()
        self._readers.close()


def _decoded(found: Sequence[records.Row]) -> dict[int, tuple[str, Memory]]:
    """Partition and record, by row."""
    return {row[records.ROW]: (row[records.PARTITION], records.row_to_memory(row)) for row in found}


def _rows(found: Sequence[str | None] | None) -> Rows:
    text = found[0] if found else None
    return np.fromstring(text, dtype=np.int64, sep=",") if text else np.zeros(0, np.int64)
