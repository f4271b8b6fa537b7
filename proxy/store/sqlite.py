"""The long-term store on SQLite: `plugs.Store`, put together from its parts.

In: scopes, records, turns. Out: the same, from disk. Reads run on the caller's thread; every write is a job of the
writer's. A damaged file leaves the store standing: each call then raises `StoreUnavailable`, and `health` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from proxy.errors import StoreError, StoreUnavailable
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
    queries,
    survey,
    transfer,
    unembedded,
)
from proxy.store.contents import Contents
from proxy.store.generations import Generations
from proxy.store.health import Health
from proxy.store.index_file import IndexFiles
from proxy.store.kept import KeptRecords
from proxy.store.lookup import Lookup
from proxy.store.pieces import Pieces
from proxy.store.postings import Postings
from proxy.store.readers import HALF_PAIR, Readers
from proxy.store.recents import Recents
from proxy.store.searcher import Searcher
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
        self._health = Health(path)
        self._health.examine()
        self._readers = Readers(path, self._health)
        contents = Contents(self._readers, fingerprint, dimension)
        files = IndexFiles(path.parent / "index", fingerprint, dimension)
        self._index = VectorIndex(contents, files, dimension, exact_below)
        self._postings = Postings(self._readers)
        self._kept = KeptRecords()
        self._pieces = Pieces(self._readers)
        recents = Recents()
        self._lookup = Lookup(self._readers, self._health, self._kept, recents, clock)
        self._searcher = Searcher(self._readers, self._health, contents, self._index, self._postings, dimension, clock)
        self._around = Surroundings(
            fingerprint,
            dimension,
            self._index,
            self._postings,
            self._generations,
            self._kept,
            recents,
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
        return self._lookup.get(scope, memory_id)

    def read(self, scope: Scope, memory_ids: Collection[str]) -> Sequence[Memory]:
        return self._lookup.read(scope, memory_ids)

    def list(
        self, scope: Scope, filters: Filters, *, limit: int, cursor: str | None = None, all_agents: bool = False
    ) -> Page:
        return self._lookup.list(scope, filters, limit=limit, cursor=cursor, all_agents=all_agents)

    def list_tenant(self, scope: TenantScope, filters: Filters, *, limit: int, cursor: str | None = None) -> Page:
        listing.check_limit(limit)
        return transfer.list_tenant(self._readers, scope, filters, limit=limit, cursor=cursor)

    def carried(self, scope: Scope, *, all_agents: bool) -> Iterator[Carried]:
        return transfer.carried(self._readers, scope, all_agents=all_agents)

    def kept_answer(self, scope: Scope, key: str, *, since: datetime) -> KeptAnswer | None:
        return idempotency.kept(self._readers, scope, key, since)

    def history(self, scope: Scope, memory_id: str) -> Sequence[Version]:
        return self._lookup.history(scope, memory_id)

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
        return self._searcher.search(scope, vector, terms, limit=limit, filters=filters, parts=parts)

    def holding(self, scope: Scope, terms: Sequence[str], *, limit: int) -> Sequence[Memory]:
        return tuple(self.load(scope, self._searcher.holding(scope, terms, limit)).values())

    def load(self, scope: Scope, rows: Collection[int]) -> Mapping[int, Memory]:
        return self._lookup.load(scope, rows)

    def glances(self, scope: Scope, rows: Sequence[int]) -> Glances:
        return self._lookup.glances(scope, rows)

    def recent(self, scope: Scope, memory_type: str, limit: int) -> Sequence[Memory]:
        return self._lookup.recent(scope, memory_type, limit)

    def by_key(self, scope: Scope, key: str) -> Sequence[Memory]:
        return self._lookup.by_key(scope, key)

    def from_message(self, scope: Scope, message_hash: str) -> Sequence[Memory]:
        return self._lookup.from_message(scope, message_hash)

    def states(self, scope: Scope, memory_ids: Collection[str]) -> Mapping[str, tuple[State, str | None, int]]:
        return self._lookup.states(scope, memory_ids)

    def is_forgotten(self, scope: Scope, message_hash: str) -> bool:
        keys = {"owner": scope.partition("user"), "message": forget.message_key(message_hash)}
        return self._readers.one(_FORGET["is_forgotten"], keys) is not None

    def count(self, scope: Scope) -> int:
        found = self._readers.one(_SQL["count"], {"user": scope.partition("user")})
        return int(found[0]) if found else 0

    def generation(self, scope: Scope) -> str:
        return self._generations.of(scope.readable)

    def stats(self, scope: Scope) -> Mapping[str, Any]:
        waiting = unembedded.count_readable(self._readers, self._around.fingerprint, partitions(scope))
        return {**self._lookup.counts(scope), "unembedded": waiting, **self._searcher.searched(scope)}

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
            # Nobody waits: the turn's journal entry, which is waited for, comes after it and shares its commit.
            self._writer.submit(lambda unit: self._pieces.write(unit, scope, chain, piece), patient=True)
        return standing

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
    ) -> Future[bool]:
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
