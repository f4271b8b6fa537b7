"""The long-term store: a contract, held by the suite in `tests/test_store.py`.

Reads may come from any thread; all writes go through `transact` and the journal's calls, on one writer thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Protocol, TypeVar

from proxy.plugs.finding import Filters, Found, Glances, Page, Part
from proxy.plugs.keeping import (
    Carried,
    JournalTurn,
    KeptAnswer,
    Ledger,
    Piece,
    SessionInfo,
    Survey,
    Unembedded,
    Version,
)
from proxy.plugs.transaction import Transaction
from proxy.scope import Scope, TenantScope
from proxy.types import Answer, Memory, State, Vector

T = TypeVar("T")


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
    ) -> Future[bool]:
        """Fsync the answer's part, and link it to its session in the same transaction.

        Args:
            turn_id: What `journal_open` named the turn.
            call_id: The call that was answered; another id than the turn's when several calls share it.
            answer: What was said.
            links: What later requests will find the session by.

        Returns:
            Whether the turn was there; its words may have been forgotten meanwhile, and are then not to be worked on.
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
