"""A memory as a table row, as JSON, and back.

In: `Memory` values, rows of the `records` view. Out: the other form. Pure; times are Unix seconds in rows and ISO 8601
in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from proxy.errors import StoreError
from proxy.glance import seen
from proxy.scope import Scope
from proxy.types import EARLIEST, LATEST, Memory, Source, iso

COLUMNS = (
    "row", "id", "tenant", "user_id", "agent_id", "scope", "memory_type", "kind", "content", "created_at", "updated_at",
    "valid_from", "session_id", "key", "tags", "entities", "language", "confidence", "strength", "access_count",
    "last_accessed_at", "expires_at", "version", "supersedes", "superseded_by", "parent_id", "state", "source",
    "token_estimate", "short", "line_tokens", "short_tokens", "partition", "owner", "change", "message_hash",
)  # fmt: skip
"""Columns of the `records` view; the first of them up to `short_tokens` make a `Memory`, in its fields' order."""

ROW, PARTITION, OWNER, CHANGE = (COLUMNS.index(name) for name in ("row", "partition", "owner", "change"))
Row = tuple[Any, ...]
_NO_SOURCE = Source()
_EMPTY = "[]"
_FIRST_S, _LAST_S = EARLIEST.timestamp(), LATEST.timestamp()


def owner_of(memory: Memory) -> Scope:
    """The scope that a record belongs to."""
    return _scope(memory.tenant, memory.user_id, memory.agent_id)


@lru_cache(maxsize=4_096)
def _scope(tenant: str, user_id: str, agent_id: str) -> Scope:
    return Scope(tenant, user_id, agent_id)


def partition_of(memory: Memory) -> str:
    """The partition that a record lies in.

    Raises:
        StoreError: It belongs to working memory.
    """
    if memory.scope == "session" or memory.memory_type == "working":
        raise StoreError(f"memory {memory.id} is working memory: put it into its session, not into the long-term store")
    return owner_of(memory).partition(memory.scope)


def memory_to_row(memory: Memory) -> dict[str, Any]:
    """A record's columns by name, as `insert` and `update` take them.

    Raises:
        StoreError: It belongs to working memory.
    """
    content = whole_characters(memory.content)
    bits, speaker = seen(content, memory.source.role)
    return {
        "id": memory.id,
        "partition": partition_of(memory),
        "owner": owner_of(memory).partition("user"),
        "tenant": memory.tenant,
        "user_id": memory.user_id,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "scope": memory.scope,
        "memory_type": memory.memory_type,
        "kind": memory.kind,
        "seen": bits,
        "speaker": speaker,
        "content": content,
        "key": memory.key,
        "tags": dumps(memory.tags) if memory.tags else _EMPTY,
        "entities": dumps(memory.entities) if memory.entities else _EMPTY,
        "language": memory.language,
        "confidence": memory.confidence,
        "strength": memory.strength,
        "access_count": memory.access_count,
        "last_accessed_at": seconds(memory.last_accessed_at),
        "created_at": memory.created_at.timestamp(),
        "updated_at": memory.updated_at.timestamp(),
        "valid_from": memory.valid_from.timestamp(),
        "expires_at": seconds(memory.expires_at),
        "version": memory.version,
        "supersedes": memory.supersedes,
        "superseded_by": memory.superseded_by,
        "parent_id": memory.parent_id,
        "state": memory.state,
        "source": dumps(memory.source),
        "message_hash": memory.source.message_hash,
        "token_estimate": memory.token_estimate,
        "short": memory.short,
        "line_tokens": memory.line_tokens,
        "short_tokens": memory.short_tokens,
    }


def row_to_memory(row: Row) -> Memory:
    """A row of the `records` view as a `Memory`."""
    (
        _, id_, tenant, user_id, agent_id, scope, memory_type, kind, content, created_at, updated_at, valid_from,
        session_id, key, tags, entities, language, confidence, strength, access_count, last_accessed_at, expires_at,
        version, supersedes, superseded_by, parent_id, state, source, token_estimate, short,
        line_tokens, short_tokens, *_,
    ) = row  # fmt: skip
    return Memory(
        id_,
        tenant,
        user_id,
        agent_id,
        scope,
        memory_type,
        kind,
        content,
        moment(created_at),
        moment(updated_at),
        moment(valid_from),
        session_id,
        key,
        () if tags == _EMPTY else tuple(orjson.loads(tags)),
        () if entities == _EMPTY else tuple(orjson.loads(entities)),
        language,
        confidence,
        strength,
        access_count,
        None if last_accessed_at is None else moment(last_accessed_at),
        None if expires_at is None else moment(expires_at),
        version,
        supersedes,
        superseded_by,
        parent_id,
        state,
        Source(**orjson.loads(source)),
        token_estimate,
        short,
        line_tokens,
        short_tokens,
    )


def as_json(memory: Memory) -> dict[str, Any]:
    """A record as the API shows it (design §4): times in ISO 8601 UTC, `source` nested."""
    return {
        "id": memory.id,
        "tenant": memory.tenant,
        "user_id": memory.user_id,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "scope": memory.scope,
        "memory_type": memory.memory_type,
        "kind": memory.kind,
        "content": memory.content,
        "key": memory.key,
        "tags": list(memory.tags),
        "entities": list(memory.entities),
        "language": memory.language,
        "confidence": memory.confidence,
        "strength": memory.strength,
        "access_count": memory.access_count,
        "last_accessed_at": iso(memory.last_accessed_at),
        "created_at": iso(memory.created_at),
        "updated_at": iso(memory.updated_at),
        "valid_from": iso(memory.valid_from),
        "expires_at": iso(memory.expires_at),
        "version": memory.version,
        "supersedes": memory.supersedes,
        "superseded_by": memory.superseded_by,
        "parent_id": memory.parent_id,
        "state": memory.state,
        "source": asdict(memory.source),
        "token_estimate": memory.token_estimate,
        "short": memory.short,
    }


def memory_to_json(memory: Memory) -> str:
    """A record as JSON text, for its history."""
    return dumps(as_json(memory))


def memory_from_json(text: str) -> Memory:
    """The inverse of `memory_to_json`."""
    fields: dict[str, Any] = orjson.loads(text)
    for name in ("last_accessed_at", "created_at", "updated_at", "valid_from", "expires_at"):
        fields[name] = None if fields[name] is None else datetime.fromisoformat(fields[name])
    for name in ("tags", "entities"):
        fields[name] = tuple(fields[name])
    return Memory(**{**fields, "source": Source(**fields["source"])})


def moment(seconds: float) -> datetime:
    """Unix seconds as an aware UTC time; a far-off one as in `within_calendar`.

    >>> moment(0.5).isoformat()
    '1970-01-01T00:00:00.500000+00:00'
    """
    return datetime.fromtimestamp(min(max(seconds, _FIRST_S), _LAST_S), UTC)


def seconds(time: datetime | None) -> float | None:
    """A time as Unix seconds, for a column that may be empty."""
    return None if time is None else time.timestamp()


def dumps(value: Any) -> str:
    """Compact JSON of plain data and dataclasses; half a surrogate pair becomes ``?``, as UTF-8 cannot hold it."""
    try:
        return orjson.dumps(value, default=_plain).decode()
    except TypeError:
        return whole_characters(json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored as JSON")


def whole_characters(text: str) -> str:
    """The text with half surrogate pairs replaced by ``?``: JSON bodies may hold them, UTF-8 may not.

    >>> whole_characters("a" + chr(0xD83D))
    'a?'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
