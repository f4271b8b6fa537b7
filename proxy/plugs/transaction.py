"""What may be done in one transaction of the long-term store: a contract, held by `tests/test_store.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from proxy.plugs.keeping import Carried, Cascade, Derivation, KeptAnswer
from proxy.scope import Scope
from proxy.types import JournalStatus, Memory, Message, Outcome, Source, Vector


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

    def cascade(self, scope: Scope, memory_ids: Collection[str]) -> Cascade:
        """What `forget` of these would touch beside records: messages, sessions, other users."""

    def unfreeze(self, scope: Scope, memory_ids: Collection[str], *, slots: bool = False) -> None:
        """Take these memories out of what stands in the user's sessions, with `slots` all slots as well: nobody knows
        which message filled one that stands there. `forget` does so by itself."""

    def thaw(self, scope: Scope) -> None:
        """Drop all that stands in a session's requests."""

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
