"""The plugs: what the house asks of a store, a working memory and an embedder.

Each has one contract suite in tests/ that every implementation passes. All methods are synchronous and safe to call
from any thread; writes to the long-term store go through `Store.transact`, on its one writer thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from proxy.scope import Scope, TenantScope
from proxy.types import Answer, JournalStatus, Memory, MemoryType, Message, Outcome, Slot, Source, State, Vector

T = TypeVar("T")


class Candidate(NamedTuple):
    """One record that a search leg found.

    Args:
        row: The store's own integer for the record; valid within this process only.
        dense: Cosine to the query, −1…1; None when the dense leg was skipped or the record has no vector yet.
        lexical: BM25 over the scope, ≥ 0; 0 when no term matched.
    """

    row: int
    dense: float | None
    lexical: float


GLANCED = ("confidence", "strength", "at", "assistant", "asks", "times", "standing", "preference", "changed")
"""What `Glances` has a column for: confidence and strength; `at`, Unix seconds, since when it holds; the rest 0 or 1:
whether an assistant said it, and its traits."""


@dataclass(frozen=True, slots=True)
class Glances:
    """What ranking must know of some records, a line for each.

    Args:
        table: float64 (n, len(GLANCED)); NaN where a record has gone.
        speakers: Who says it, in lower case; empty where it names nobody.
        sorts: Type and kind.
    """

    table: npt.NDArray[np.float64]
    speakers: Sequence[str]
    sorts: Sequence[tuple[MemoryType, str]]

    def __len__(self) -> int:
        return len(self.table)

    def of(self, name: str) -> npt.NDArray[np.float64]:
        """One column, float64 (n,)."""
        column: npt.NDArray[np.float64] = self.table[:, GLANCED.index(name)]
        return column

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """Which records are still there, (n,)."""
        return ~np.isnan(self.table[:, 0])

    def at(self, places: npt.NDArray[np.int64]) -> Glances:
        """Some of the lines."""
        wanted = places.tolist()
        return Glances(self.table[places], [self.speakers[one] for one in wanted], [self.sorts[one] for one in wanted])


SearchSource = Literal["exact", "index"]
"""Whether every vector was compared, or an index said which to compare."""


AROUND = (-2, -1, 0, 1, 2)
"""The places whose scores a `Context` has: the candidate's own, and those told just before and after it."""


@dataclass(frozen=True, slots=True)
class Context:
    """What stands around the candidates of a search, for ranking: arrays with one line per candidate.

    Args:
        cosines: float64 (n, 5), by `AROUND`; NaN where there is no vector, or no such neighbour in the conversation.
        words: float64 (n, 5), BM25 likewise; 0 where no term matched.
        part_cosines: float64 (n, parts), of each part of the question; NaN where there is no vector.
        part_words: float64 (n, parts).
        threads: int64 (n,), above zero where it was told in a conversation, the same for all of one.
        before: int64 (n,), which candidate was told just before it; −1 where that one is none.
    """

    cosines: npt.NDArray[np.float64]
    words: npt.NDArray[np.float64]
    part_cosines: npt.NDArray[np.float64]
    part_words: npt.NDArray[np.float64]
    threads: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]


class Part(NamedTuple):
    """One part of a question that asks for several things.

    Args:
        vector: Of the part; None skips its dense leg.
        terms: Its lexical terms.
    """

    vector: Vector | None
    terms: Sequence[str]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Args:
        rows: int64 (n,), the store's own integers for the records; valid within this process only.
        dense: float64 (n,), cosines to the query, −1…1; NaN where the dense leg was skipped or there is no vector yet.
        lexical: float64 (n,), BM25 over the scope, ≥ 0; 0 where no term matched.
        source: Which path answered.
        context: What stands around them; None where it was not asked for, or nothing was found.
    """

    rows: npt.NDArray[np.int64]
    dense: npt.NDArray[np.float64]
    lexical: npt.NDArray[np.float64]
    source: SearchSource
    context: Context | None = None

    @property
    def candidates(self) -> list[Candidate]:
        """What was found, one by one."""
        columns = self.rows.tolist(), self.dense.tolist(), self.lexical.tolist()
        return [
            Candidate(row, None if dense != dense else dense, lexical)
            for row, dense, lexical in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a listing or search is narrowed to; None leaves a field open.

    Args:
        state: One state, or None for all.
        memory_type, kind, key, session_id, scope, language: Equality.
        tags: Every one must be present.
        created_after, created_before: Half-open interval [after, before) on `created_at`.
        text: Case-insensitive substring of the content.
    """

    state: str | None = "active"
    memory_type: str | None = None
    kind: str | None = None
    key: str | None = None
    session_id: str | None = None
    scope: str | None = None
    language: str | None = None
    tags: tuple[str, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing, newest first.

    Args:
        items: Records.
        next_cursor: Opaque; None at the end.
    """

    items: tuple[Memory, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class JournalTurn:
    """What one call newly said: fsynced before it is worked on, so that nothing is lost.

    Args:
        id: Request id.
        scope: With its session.
        seen_scope: What the chain hash is unique in: owner and session.
        implicit: The client named no session; the same words again within `session.idle_s` are then a resend.
        chain: Rolling hash up to the newest message of the request.
        at: When the request came.
        new: Messages after the last assistant message, guarded.
        backfill: Earlier messages not seen before, guarded; empty for a thread we relayed ourselves.
        context: The last assistant message before `new`, for pairing tool results; None at a thread's start.
        injected: Ids of the memories that were put into the request.
        model: Model name as the client gave it.
        status: ``open`` until the answer is in, ``answered`` until its memories are written, then ``done``.
        answer: Set with ``answered``.
        replaces: Hash of the answer message that this one replaces (a regenerated answer); None otherwise.
        user_text: The newest user text, which in a tool loop lies before `new`; guarded.
        previous: The user's message before `context`, guarded; None at a thread's start.
        in_play: Whether the messages before `new` have opened a play that still goes on.
        recalled: The memories of `injected`, while this process has them at hand; never stored.
    """

    id: str
    scope: Scope
    seen_scope: str
    chain: str
    at: datetime
    new: tuple[Message, ...]
    backfill: tuple[Message, ...] = ()
    context: Message | None = None
    injected: tuple[str, ...] = ()
    model: str = ""
    status: JournalStatus = "open"
    answer: Answer | None = None
    replaces: str | None = None
    user_text: str = ""
    implicit: bool = False
    previous: Message | None = None
    in_play: bool = False
    recalled: tuple[Memory, ...] = ()

    @property
    def answered_as(self) -> str | None:
        """Hash of the answer; None while there is none that has one."""
        return (self.answer.hash or None) if self.answer is not None else None


@dataclass(frozen=True, slots=True)
class Version:
    """One state that a memory was in.

    Args:
        memory: The record as it was.
        change: ``created``, ``updated``, ``superseded``, ``archived``, ``restored`` …
        at: When it came to be so.
    """

    memory: Memory
    change: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One conversation as the store knows it."""

    session_id: str
    started_at: datetime
    last_at: datetime
    turns: int
    ended_at: datetime | None


FROZEN = ""
"""In place of a chain hash: the block in the system prompt."""
SHORT_MARK = "short:"
"""Before a memory's id, among a piece's mentions: a short form stands in for it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What was put into a session's requests at one place; it never changes.

    Args:
        text: As it stands there; empty where nothing was added.
        tokens: Its cost.
        items: Ids of the memories in it, and ``slot:<name>`` for slots.
        mentions: Ids of memories whose former words stand in it, and marks (`slot:…`, `version:…`, `short:…`) of what
            was told.
    """

    text: str = ""
    tokens: int = 0
    items: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The account of one call; holds ids, never text (text is looked up when it is read)."""

    id: str
    scope: Scope
    at: datetime
    status: str
    recalled: tuple[Mapping[str, Any], ...] = ()
    injected: Mapping[str, Any] = field(default_factory=dict)
    written_status: str = "queued"
    outcomes: tuple[Outcome, ...] = ()


Derivation = Literal["merged", "compressed", "promoted", "reflected"]
"""How a record came of others: it stands for duplicates or for members that are archived, it lifts a fact out of
episodes, or it was concluded from them."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One link between two of a user's records.

    Args:
        derived: Id of the record that was made, or stands for the other.
        evidence: Id of the record it was made from.
        how: In what way.
    """

    derived: str
    evidence: str
    how: Derivation


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One record as a sweep looks at it.

    Args:
        memory: The record, in any state.
        vector: Of the present model; None where there is none.
        change: What led to its state, e.g. ``created``, ``merged``, ``expired``.
        again: Session and time of each later message that said the same, oldest first.
    """

    memory: Memory
    vector: Vector | None
    change: str
    again: tuple[tuple[str, datetime], ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """All that one user has, whatever the agent, the visibility and the state, in the order it was written.

    Args:
        scope: The user's, with one of the agents.
        records: Each once; also what the user shares with the tenant.
        links: Between them.
    """

    scope: Scope
    records: tuple[Surveyed, ...]
    links: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where the words of a record were said again.

    Args:
        session: In which session.
        message: Hash of the message; empty when it is not known.
        at: When.
    """

    session: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Carried:
    """One record with all that belongs to it but its vector, which is made anew: what is exported and imported.

    Args:
        memory: The record, in any state.
        change: What led to that state.
        history: Its former states, oldest first.
        links: The records that it was made from, or stands for, and how.
        said_again: Where else the same was said.
    """

    memory: Memory
    change: str
    history: tuple[Version, ...] = ()
    links: tuple[tuple[str, Derivation], ...] = ()
    said_again: tuple[Sighting, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer to a request with an ``Idempotency-Key``.

    Args:
        fingerprint: Names that request.
        status: HTTP status.
        body: JSON; None once the record in it was forgotten.
        memory_id: The record whose text is in it, if any.
        etag: That record's.
    """

    fingerprint: str
    status: int
    body: str | None
    memory_id: str | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A record that has no vector of the present model yet.

    Args:
        row: The store's own integer for it.
        content: The text to embed.
    """

    row: int
    content: str


class Transaction(Protocol):
    """What may be done inside one transaction, on the writer thread. Nothing here commits by itself."""

    def get(self, scope: Scope, memory_id: str) -> Memory | None:
        """Like `Store.get`, but sees this transaction's own writes."""

    def insert(self, memory: Memory, vector: Vector | None) -> None:
        """Store a new record with its vector, lexical terms and first version.

        Raises:
            StoreError: The id exists, or a tombstone covers its content or its source message.
        """

    def update(
        self, memory: Memory, vector: Vector | None, *, change: str, expected_version: int | None = None
    ) -> None:
        """Replace a record by its next state, keeping the former one in its history.

        Args:
            memory: The new state; `version` is already the next one where the content changed.
            vector: New vector; None keeps the old one if the content is the same, and else leaves the record
                without, to be embedded in the background.
            change: Name of the change, for the history.
            expected_version: Version that the caller read.

        Raises:
            VersionConflict: The stored version is another one.
            StoreError: There is no such record in this tenant and user.
        """

    def supersede(self, old: Memory, new: Memory, vector: Vector | None) -> None:
        """Insert `new`, mark `old` superseded by it, and link both ways."""

    def forget(self, scope: Scope, memory_ids: Collection[str]) -> int:
        """Erase records for good with all that hangs on them, leaving a tombstone without text.

        Erased with each: its versions and its chain of superseded ones, other records and journal turns made from the
        same messages, duplicates merged into it, what was made from it (summaries, lessons, promoted facts; sweeps make
        these anew from what is left), ledger text (there is none), vectors and lexical rows. The other members of a
        summary that goes are active again.

        Returns:
            How many active or pending records are gone that the caller named or the cascade reached.
        """

    def discard(self, scope: Scope, memory_ids: Collection[str]) -> int:
        """Erase archived records whose time is up, with their versions and what they superseded; nothing else goes with
        them, and they may be learnt again.

        Returns:
            How many archived records are gone; those in another state stay.
        """

    def take_in(self, carried: Carried, vector: Vector | None) -> bool:
        """Store a record that was exported, as it was, with its history and links.

        Returns:
            False when this user has a record of that id already; nothing is written then.

        Raises:
            Forgotten: A tombstone covers its content or its source message.
            StoreError: The id is somebody else's.
        """

    def keep_answer(self, scope: Scope, key: str, answer: KeptAnswer, now: datetime, since: datetime) -> None:
        """Remember the answer to a request of this user's, in place of an older one with the same key, and drop
        whatever was kept before `since`."""

    def link(self, derived: Memory, evidence: Collection[str], how: Derivation) -> None:
        """Remember that `derived` was made from, or stands for, these records of the same user."""

    def unlink(self, derived: Memory) -> None:
        """Drop every link from `derived` to its evidence."""

    def witness(self, memory: Memory, source: Source, now: datetime) -> bool:
        """Note that a record's words were said again: another session raises its strength by 0.1, up to 2.0; the same
        session raises nothing.

        Returns:
            Whether it was said in a session of its own.
        """

    def keep_note(self, name: str, text: str) -> None:
        """Remember a word of our own housekeeping, such as when a schedule last ran."""

    def unfreeze(self, scope: Scope, memory_ids: Collection[str]) -> None:
        """Take these memories out of what stands in the user's sessions; `forget` does so by itself."""

    def touch(self, scope: Scope, memory_ids: Collection[str], now: datetime) -> None:
        """Count one use of records that the scope may read: access_count + 1, last_accessed_at = now, and
        strength + 0.1, at most 2.0."""

    def mark_seen(self, seen_scope: str, owner: str, messages: Sequence[Message]) -> None:
        """Remember chain hashes (within `seen_scope`) and content hashes (within `owner`), without expiry."""

    def link_session(self, scope: Scope, link: str, now: datetime, *, head: bool) -> None:
        """Remember that `link` (see `observe.session_link`) belongs to the scope's session.

        Args:
            head: True when it is the session's newest point.
        """

    def end_session(self, scope: Scope, now: datetime) -> bool:
        """Mark the scope's session ended; False when it is not known."""

    def journal_done(
        self, turn_id: str, status: JournalStatus, outcomes: Sequence[Outcome], *, worked_on: str | None = None
    ) -> None:
        """Close a journal turn and write its outcomes to the ledger, in the transaction that writes its memories.

        Args:
            turn_id: The turn.
            status: ``done`` or ``failed``.
            outcomes: What became of it.
            worked_on: Hash of the answer that was worked on (`JournalTurn.answered_as`). When another call has
                answered the turn anew meanwhile it stays open for that answer, and so do the accounts.
        """


class Store(Protocol):
    """The long-term layer: the source of truth."""

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────
    def get(self, scope: Scope, memory_id: str) -> Memory | None:
        """One record the scope may read, in any state; None when there is none."""

    def read(self, scope: Scope, memory_ids: Collection[str]) -> Sequence[Memory]:
        """Those of the records that the scope may read, in any state; one query for all."""

    def list(
        self, scope: Scope, filters: Filters, *, limit: int, cursor: str | None = None, all_agents: bool = False
    ) -> Page:
        """Records the scope may read, newest first.

        Args:
            limit: 1–500.
            cursor: From the page before.
            all_agents: Also the user's records of other agents.

        Raises:
            RequestError: The cursor is not one of ours.
        """

    def list_tenant(self, scope: TenantScope, filters: Filters, *, limit: int, cursor: str | None = None) -> Page:
        """Records of all users of a tenant, the newest written first: for its administrator only.

        Args:
            limit: 1–500.
            cursor: From the page before.

        Raises:
            RequestError: The cursor is not one of ours.
        """

    def carried(self, scope: Scope, *, all_agents: bool) -> Iterator[Carried]:
        """Every record that the scope's user owns, in every state, in the order it was written; read in pages.

        Args:
            all_agents: Of every agent; else what the scope's agent reads of them.
        """

    def kept_answer(self, scope: Scope, key: str, *, since: datetime) -> KeptAnswer | None:
        """The answer to this user's request with a key, when it was kept at `since` or later."""

    def history(self, scope: Scope, memory_id: str) -> Sequence[Version]:
        """Every version of the record and of those it superseded, oldest first; empty when unknown."""

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
        """Both search legs over the scope's active records.

        Args:
            vector: Query vector; None skips the dense leg.
            terms: Lexical terms (`lexical.terms`); empty skips the lexical leg.
            limit: Candidates per leg. Every one returned carries both scores where it has them.
            filters: Narrow the candidates (memory_type, kind, tags, created_*); `state` is always active.
            parts: Of a question that asks for several things: the best of each are candidates too. Not None, it also
                asks for the neighbours of the best, and for the `Context`.
        """

    def holding(self, scope: Scope, terms: Sequence[str], *, limit: int) -> Sequence[Memory]:
        """Active records that hold every one of these terms (`lexical.terms`), such as those with the very same text.

        Args:
            limit: At most so many, ≥ 1.
        """

    def load(self, scope: Scope, rows: Collection[int]) -> Mapping[int, Memory]:
        """Records by row; those that the scope may not read are absent."""

    def glances(self, scope: Scope, rows: Sequence[int]) -> Glances:
        """What ranking must know of some records, in the order of `rows`; NaN for those that the scope may not read."""

    def recent(self, scope: Scope, memory_type: str, limit: int) -> Sequence[Memory]:
        """The newest active records of a type by `valid_from`, newest first."""

    def by_key(self, scope: Scope, key: str) -> Sequence[Memory]:
        """Active records in the slot `key`, newest first."""

    def from_message(self, scope: Scope, message_hash: str) -> Sequence[Memory]:
        """Active or pending records made from one message."""

    def is_forgotten(self, scope: Scope, message_hash: str) -> bool:
        """Whether a tombstone covers what was made from this message."""

    def count(self, scope: Scope) -> int:
        """How many active and pending records the user has, of any agent."""

    def generation(self, scope: Scope) -> str:
        """Changes whenever a record the scope may read changes; part of the recall cache's key."""

    def stats(self, scope: Scope) -> Mapping[str, Any]:
        """Counts by memory_type, kind and state, plus how many searches each path answered."""

    # ── what stands in a session's requests ────────────────────────────────────────────────────────────────────────
    def pieces(self, scope: Scope) -> Mapping[str, Piece]:
        """The session's pieces by the chain hash of the user message they stand behind; `FROZEN` for the block."""

    def keep_piece(self, scope: Scope, chain: str, piece: Piece) -> Piece:
        """Keep a piece where none is kept yet; it is written in the background.

        Returns:
            The piece that stands there from now on: the first one.
        """

    def states(self, scope: Scope, memory_ids: Collection[str]) -> Mapping[str, tuple[State, str | None, int]]:
        """State, successor and version of those of the records that the scope may read."""

    # ── sweeps ─────────────────────────────────────────────────────────────────────────────────────────────────
    def owners(self) -> Iterator[Scope]:
        """One scope per tenant and user that has records, each with one of the user's agents; read in pages."""

    def survey(self, scope: Scope) -> Survey:
        """All records that the scope's user owns, of every agent and in every state, with their links."""

    def note(self, name: str) -> str | None:
        """What `Transaction.keep_note` remembered; None when nothing."""

    # ── conversations ──────────────────────────────────────────────────────────────────────────────────────────
    def session_of(self, scope: Scope, link: str) -> str | None:
        """The session in which `link` was relayed; one whose newest point it is comes first, then the latest."""

    def session(self, scope: Scope) -> SessionInfo | None:
        """What is known of the scope's session."""

    def idle_sessions(self, before: datetime, limit: int) -> Sequence[Scope]:
        """Sessions last active before `before` with something said since they last ended, the longest idle first."""

    def seen(self, seen_scope: str, chains: Sequence[str], *, since: datetime | None = None) -> set[str]:
        """Those of `chains` that were marked seen in `seen_scope`, last at `since` or later."""

    def seen_content(self, owner: str, hashes: Sequence[str]) -> set[str]:
        """Those message content hashes that were marked seen under `owner`, or that a tombstone covers."""

    # ── journal and ledger ─────────────────────────────────────────────────────────────────────────────────────
    def journal_open(self, turn: JournalTurn, ledger: Ledger) -> Future[JournalTurn]:
        """Fsync the request's part. On a known (seen_scope, chain) nothing is written twice: the turn comes back with
        the id it already has; if that one was answered or done, `replaces` names its answer's hash."""

    def journal_answer(
        self, turn_id: str, call_id: str, answer: Answer, links: Sequence[tuple[Scope, str]]
    ) -> Future[None]:
        """Fsync the answer's part, and link it to its session in the same transaction.

        Args:
            turn_id: What `journal_open` named the turn.
            call_id: The call that was answered; another id than the turn's when several calls share it.
            answer: What was said.
            links: What later requests will find the session by.
        """

    def journal_void(self, turn_id: str, call_id: str, reason: str) -> Future[None]:
        """The call failed upstream: drop the turn unless other calls share it, keep the ledger's entry with the
        reason."""

    def journal_waiting(self) -> Iterator[JournalTurn]:
        """Turns to be worked on, oldest first: answered ones, and open ones from before this process started
        (their answer is ``aborted`` and empty)."""

    def ledger_put(self, ledger: Ledger) -> Future[None]:
        """Write the account of a call that has no journal turn."""

    def ledger(self, scope: Scope, request_id: str) -> Ledger | None:
        """The account of one call of this tenant and user; None when unknown or another's."""

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────
    def transact(self, work: Callable[[Transaction], T], *, patient: bool = False) -> Future[T]:
        """Run `work` on the writer thread, in a savepoint of the next group commit.

        Args:
            work: What it does.
            patient: Nobody's call waits for it: it may be held for a moment, to share a commit with others.

        Returns:
            A future that resolves after the commit is on disk; `work`'s exception when it raised (only its own
            writes are rolled back); `StoreUnavailable` when the commit failed.
        """

    # ── vectors of the present model ───────────────────────────────────────────────────────────────────────────
    def unembedded(self, limit: int) -> Sequence[Unembedded]:
        """Records, whoever's and in any state, that the present model was not asked about: it was another then, or it
        failed.

        Args:
            limit: At most so many, ≥ 1.
        """

    def unembedded_count(self) -> int:
        """How many there are of them."""

    def embed(self, embedded: Sequence[tuple[Unembedded, Vector | None]]) -> Future[int]:
        """Give records the vectors of their texts; None marks one for which the present model has none. A record that
        changed since it was read is left as it is.

        Returns:
            How many were given what was made of their text.
        """

    def drop_foreign_index(self) -> None:
        """Remove index files of other models."""

    def health(self) -> str | None:
        """None when well; else what is wrong and how to restore, in one sentence."""

    def index_health(self) -> str | None:
        """None when large scopes are searched by their index; else why they are searched exactly, in one sentence."""

    def close(self) -> None:
        """Commit what is queued, then close."""


class WorkingMemory(Protocol):
    """The working layer: slots of a session, and a small cache. Lost data here is never the only copy."""

    def slots(self, scope: Scope) -> Mapping[str, Slot]:
        """The session's slots; reading slides the TTL.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
        """

    def put(self, scope: Scope, slots: Sequence[Slot], *, ttl_s: float | None = None) -> None:
        """Write slots and slide the TTL; past the limit the oldest slots go."""

    def end(self, scope: Scope) -> bool:
        """Delete the session's hash; False when there was none."""

    def idle_sessions(self, before: datetime, limit: int = 100) -> Sequence[Scope]:
        """Sessions last active before `before`, the longest idle first; they stay listed until ended or claimed."""

    def claim_idle(self, scope: Scope) -> bool:
        """Take a session off that list, and leave its data to the TTL; True for the one caller that took it."""

    def append_step(self, scope: Scope, step: Mapping[str, Any]) -> None:
        """Add one step to the session's task chain."""

    def steps(self, scope: Scope) -> Sequence[Mapping[str, Any]]:
        """The session's task chain, oldest first."""

    def forget(self, scope: Scope, message_hashes: Collection[str]) -> object:
        """Delete the slots of the user's sessions that came from these messages, and the user's cached recalls."""

    def rewrite(self) -> bool:
        """Rewrite what is on disk, so that deleted text is gone there too; False when that must be tried again."""

    def cache_get(self, key: str) -> bytes | None:
        """A cached value, or None."""

    def cache_put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Cache a value for `ttl_s` seconds."""

    def healthy(self) -> bool:
        """Whether Redis answered the last time it was asked; asks again when it had not."""

    def close(self) -> None:
        """Drop connections."""


class Embedder(Protocol):
    """Text to vectors."""

    @property
    def fingerprint(self) -> str:
        """Names the vector space: model, its bytes' hash, dimension."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def documents(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """Vectors of stored text; None where no content token remains (the dense leg is then skipped).

        Raises:
            EmbedderError: The model cannot be used.
        """

    def query(self, text: str) -> Vector | None:
        """Vector of a question (own token weights); None as above."""
