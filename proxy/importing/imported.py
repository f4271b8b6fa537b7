"""What a file of another product holds, whatever its format: conversations, and statements about a user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from math import inf
from typing import Any, Literal

from proxy.errors import Problem

Format = Literal["chatgpt", "transcript", "mem0", "markdown"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation.

    Args:
        place: Where it stands, as people find it.
        messages: As OpenAI's clients send them, oldest first; each may have its time under ``at``.
        id: Its name where it came from; None when it has none.
        title: For people.
    """

    place: str
    messages: tuple[Mapping[str, Any], ...]
    id: str | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that was remembered elsewhere.

    Args:
        place: Where it stands, as people find it.
        content: Its text.
        id: Its name where it came from; None when it has none.
        at: When it was first said.
        changed_at: When it was last changed.
        user_id, agent_id, session_id: Whose it was there; None where the file does not tell.
        kind, memory_type: As ours; None where the file does not tell.
        tags: As ours.
        confidence: As ours.
    """

    place: str
    content: str
    id: str | None = None
    at: datetime | None = None
    changed_at: datetime | None = None
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    kind: str | None = None
    memory_type: str | None = None
    tags: tuple[str, ...] = ()
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """A file read.

    Args:
        format: Which it is.
        conversations: In the order they began, so that what was said last is told last.
        statements: In the order of the file.
        problems: What could not be read.
        left_out: How many entries are nothing that could be remembered.
    """

    format: Format
    conversations: tuple[Conversation, ...] = ()
    statements: tuple[Statement, ...] = ()
    problems: tuple[Problem, ...] = ()
    left_out: int = 0


def moment(value: Any, zone: tzinfo = UTC) -> datetime | None:
    """A time as other products write it: Unix seconds, or ISO 8601.

    Args:
        value: It; whatever is no time is None.
        zone: Of times without an offset.

    >>> moment("2026-11-30T09:00:00Z") == moment(1796029200)
    True
    >>> moment("yesterday") is None
    True
    """
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def began(conversation: Conversation) -> float:
    """When a conversation began, for sorting: Unix seconds; one that tells no time is taken for today's."""
    times = (moment(message.get("at")) for message in conversation.messages)
    return min((at.timestamp() for at in times if at is not None), default=inf)
