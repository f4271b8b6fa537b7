"""What was read, as the lines that a proxy takes in: conversations for its policies, or records as they are.

Pure. Ids of records are made from what they were called where they came from, so that a second import finds the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from proxy.importing.imported import Conversation, Format, Imported, Statement, moment

USER_KINDS = ("preference", "instruction", "correction")
_TURN_CONFIDENCE = 0.3
"""Of raw turns, as the shipped policies have it."""
_ENDLESS_CHARS = 250
"""A session's name may be a little longer than this."""


def as_conversations(found: Imported) -> list[tuple[str, dict[str, Any]]]:
    """Everything as conversations, each with its place. Statements are said by the user, one after another."""
    told = [(one.place, _conversation(one)) for one in found.conversations]
    if found.statements:
        place = found.statements[0].place
        messages = [message for one in found.statements for message in _said(one)]
        told.append((place, {"messages": messages}))
    return told


def as_records(found: Imported, owner: str, *, scope: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Everything as records, each with its place. Of a conversation what the user said is kept, as raw turns.

    Args:
        found: What was read.
        owner: Names whom it is for, where the file does not tell: the same file may be for two.
        scope: Visibility of all of them; None for what each kind has.
    """
    statements = [*found.statements, *(turn for one in found.conversations for turn in _turns(one))]
    return [(one.place, _record(one, found.format, owner, scope)) for one in statements]


def owners(statements: Sequence[Statement]) -> list[str]:
    """Users whose statements these are, as far as they tell."""
    return sorted({one.user_id for one in statements if one.user_id is not None})


def _conversation(one: Conversation) -> dict[str, Any]:
    named = {} if one.id is None else {"id": one.id[:_ENDLESS_CHARS]}
    return {**named, "messages": list(one.messages)}


def _said(one: Statement) -> Iterator[dict[str, Any]]:
    at = {} if one.at is None else {"at": one.at.isoformat()}
    yield {"role": "user", "content": one.content, **at}
    # Each is a turn of its own, to which nobody answered.
    yield {"role": "assistant", "content": "", **at}


def _turns(conversation: Conversation) -> Iterator[Statement]:
    for number, message in enumerate(conversation.messages):
        content = _text(message.get("content"))
        if message.get("role") != "user" or not content:
            continue
        name = f"{conversation.id or conversation.place}/{number}/{content}"
        yield Statement(
            conversation.place,
            content,
            id=name,
            at=moment(message.get("at")),
            session_id=None if conversation.id is None else conversation.id[:_ENDLESS_CHARS],
            kind="turn",
            memory_type="episodic",
            confidence=_TURN_CONFIDENCE,
        )


def _text(content: Any) -> str:
    """The text of a message, whose content may be a list of parts."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "\n".join(text.strip() for text in texts if isinstance(text, str) and text.strip())


def _record(one: Statement, format_: Format, owner: str, scope: str | None) -> dict[str, Any]:
    is_turn = one.kind == "turn"
    source = {
        "role": "user" if is_turn else "api",
        "rule": f"import.{format_}",
        "session": one.session_id,
        "request": None if is_turn else one.id,
    }
    fields: dict[str, Any] = {
        "id": _id(one, format_, owner),
        "content": one.content,
        "kind": one.kind or "fact",
        "memory_type": one.memory_type or "semantic",
        "scope": scope or _scope(one),
        "tags": list(one.tags),
        "source": {name: value for name, value in source.items() if value is not None},
        "user_id": one.user_id,
        "agent_id": one.agent_id,
        "session_id": one.session_id,
        "created_at": _iso(one.at),
        "valid_from": _iso(one.at),
        "updated_at": _iso(one.changed_at),
        "confidence": one.confidence,
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _scope(one: Statement) -> str:
    if one.kind in USER_KINDS:
        return "user"
    return "agent" if one.agent_id is not None or one.kind == "turn" else "user"


def _id(one: Statement, format_: Format, owner: str) -> str:
    """The id that it had, where that can be one here and tells its user; else one made from what it is."""
    if one.id is not None and one.user_id is not None:
        try:
            return str(UUID(one.id))
        except ValueError:
            pass
    name = "\0".join((format_, one.user_id or owner, one.agent_id or "", one.id or one.content))
    return str(uuid5(NAMESPACE_URL, f"sidemirror:{name}"))


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
