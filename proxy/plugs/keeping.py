"""What a store keeps beside the records: journal and ledger, sessions and what stands in them, evidence.

Plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from proxy.scope import Scope
from proxy.types import Answer, JournalStatus, Memory, Message, Outcome, Vector


@dataclass(frozen=True, slots=True)
class Cascade:
    """What erasing records touches beside them.

    Args:
        messages: Hashes of the messages that said what they hold.
        sessions: Session and agent of each.
        shared: Whether other users of the tenant could read one of them.
    """

    messages: frozenset[str]
    sessions: frozenset[tuple[str, str]]
    shared: bool


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
