"""The nouns that travel through the house, each made once: messages → events → drafts → memories.

Bottom of the import order. Times are aware UTC datetimes; similarity is cosine, higher is closer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

MemoryType = Literal["working", "episodic", "semantic", "reflective"]
Visibility = Literal["session", "agent", "user", "shared"]
State = Literal["active", "pending", "superseded", "archived", "forgotten"]
Language = Literal["zh", "en", "other"]
OnConflict = Literal["supersede", "version", "merge", "keep_both"]
EventType = Literal[
    "request", "user_message", "assistant_message", "tool_result", "turn_end", "session_end", "schedule"
]
ToolStatus = Literal["ok", "error"]
AnswerStatus = Literal["complete", "aborted", "failed"]
JournalStatus = Literal["open", "answered", "done", "failed"]
Vector = npt.NDArray[np.float32]
"""Shape (dimension,), unit length or all zero."""


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC with a Z, as the API shows times.

    >>> iso(datetime(2026, 11, 2, 8, 30, tzinfo=UTC))
    '2026-11-02T08:30:00Z'
    """
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


EARLIEST = datetime(1, 1, 3, tzinfo=UTC)
LATEST = datetime(9999, 12, 29, tzinfo=UTC)
"""The first and last moment that every zone, and a float of Unix seconds, can tell."""


def within_calendar(moment: datetime) -> datetime:
    """A moment that can be stored and shown anywhere: far-off ones, which some clients write for "never", come closer.

    >>> within_calendar(datetime.max.replace(tzinfo=UTC)).year, within_calendar(datetime(2026, 1, 1, tzinfo=UTC)).year
    (9999, 2026)
    """
    return min(max(moment, EARLIEST), LATEST)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a memory came from; every field may be unknown.

    Args:
        role: ``user``, ``assistant``, ``tool`` or ``api``.
        session: Session id.
        request: Request id (the ledger's).
        message_hash: Hash of the message it was made from.
        tool: Tool name.
        rule: Trigger id.
        policy_hash: Hash of the policy set that was live.
    """

    role: str | None = None
    session: str | None = None
    request: str | None = None
    message_hash: str | None = None
    tool: str | None = None
    rule: str | None = None
    policy_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """One long-term memory record (design §4). Immutable: a change is a new value with the next version.

    The last three fields are the store's: it makes them anew from `content` whenever that is written, whatever they
    are.

    Args:
        token_estimate: Of `content`.
        short: What is injected instead of a long `content`, or where that would take too much; None for a short one.
        line_tokens: Of `content` as it stands in a block's line; None where it is too long to be said in full.
        short_tokens: Of `short`, likewise.
    """

    id: str
    tenant: str
    user_id: str
    agent_id: str
    scope: Visibility
    memory_type: MemoryType
    kind: str
    content: str
    created_at: datetime
    updated_at: datetime
    valid_from: datetime
    session_id: str | None = None
    key: str | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    language: Language = "other"
    confidence: float = 0.8
    strength: float = 1.0
    access_count: int = 0
    last_accessed_at: datetime | None = None
    expires_at: datetime | None = None
    version: int = 1
    supersedes: str | None = None
    superseded_by: str | None = None
    parent_id: str | None = None
    state: State = "active"
    source: Source = field(default_factory=Source)
    token_estimate: int = 0
    short: str | None = None
    line_tokens: int | None = field(default=None, compare=False)
    short_tokens: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the assistant asked for; `arguments` is the raw JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, whatever the dialect.

    Args:
        role: ``system``, ``developer``, ``user``, ``assistant`` or ``tool``.
        text: All text parts joined; images and audio leave none.
        hash: Content hash of this message alone (role, text, tool calls).
        chain: Rolling hash of this message and all non-system ones before it.
        tool_calls: Calls of an assistant message.
        tool_call_id: The call that a tool message answers.
        name: Tool name of a tool message, when it could be paired with its call.
    """

    role: str
    text: str
    hash: str
    chain: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model answered (choice 0).

    Args:
        text: Visible text; reasoning is left out.
        tool_calls: Calls asked for.
        finish_reason: As the provider gave it; None when the stream was cut.
        status: ``complete``; ``aborted`` when the client went away or the stream broke; ``failed`` on an error event.
        usage: The provider's usage object, untouched.
        hash: Hash of the answer as the message that the client will send back, taken before anything was redacted;
            empty until then.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    status: AnswerStatus = "complete"
    usage: Mapping[str, Any] | None = None
    hash: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, put before the trigger policies.

    Args:
        type: What happened.
        text: The message's text (already guarded: secrets redacted, our own block cut out).
        language: Of `text`.
        role: Role of the message the event came from.
        at: When.
        message_hash: Hash of that message.
        tool: Tool name, for ``tool_result``.
        arguments: The tool call's arguments as raw JSON text.
        data: The tool result parsed as JSON; None when it is not JSON.
        status: Tool status.
        finish_reason: Of the answer, for ``assistant_message`` and ``turn_end``.
        user_text: The newest user text of the turn (``turn_end`` and ``tool_result`` know what was asked).
        agent_id: For `agent:` conditions.
        user_id: For `user:` conditions.
        turn: 1-based number of this turn in its session, for `turn_end: {every: n}`.
        tool_call_id: For the task chain.
        in_play: Whether earlier messages have opened a play (a part, a story) that still goes on.
    """

    type: EventType
    text: str
    language: Language
    role: str
    at: datetime
    message_hash: str | None = None
    tool: str | None = None
    arguments: str | None = None
    data: Any = None
    status: ToolStatus | None = None
    finish_reason: str | None = None
    user_text: str = ""
    agent_id: str = "default"
    user_id: str = ""
    turn: int = 1
    tool_call_id: str | None = None
    in_play: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """A memory that a rule proposes, before guard, value check and conflict step.

    `as_said` is for words that are to stay as they were said.
    """

    rule_id: str
    policy_hash: str
    content: str
    memory_type: MemoryType
    kind: str
    scope: Visibility
    confidence: float
    language: Language
    key: str | None = None
    tags: tuple[str, ...] = ()
    ttl_s: float | None = None
    on_conflict: OnConflict = "keep_both"
    link_parent: bool = False
    as_said: bool = False


@dataclass(frozen=True, slots=True)
class SlotWrite:
    """A working-memory slot that a rule fills.

    Args:
        rule_id: Trigger id.
        name: Slot name, e.g. ``destination``.
        value: Any JSON value.
        ttl_s: Time to live of the whole session hash, seconds; None keeps the layer's.
    """

    rule_id: str
    name: str
    value: Any
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """One working-memory slot as stored.

    Args:
        name: Slot name.
        value: Any JSON value.
        rule: Trigger id that wrote it, if any.
        message_hash: Hash of the message it came from, if any.
        updated_at: When it was last written.
    """

    name: str
    value: Any
    updated_at: datetime
    rule: str | None = None
    message_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one draft, for the ledger.

    Args:
        rule_id: Trigger id, or ``api``.
        action: ``created``, ``merged``, ``superseded``, ``versioned``, ``pending``, ``slot``, ``dropped``, ``failed``;
            ``aborted`` for an answer that was cut short.
        memory_id: The record concerned; the slot's name for ``slot``; None when nothing was stored.
        reason: Why, in a few words.
    """

    rule_id: str
    action: str
    memory_id: str | None
    reason: str
