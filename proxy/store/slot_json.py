"""A working-memory slot as Redis holds it: one JSON object per hash field.

In: a `Slot`; out: `{"value", "updated_at", "rule", "message_hash"}`, and back. What is
none of ours reads as None. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from proxy.types import Slot


def encode_slot(slot: Slot, ttl_ms: int | None) -> bytes:
    """The slot's field value; `ttl_ms` stands in it only where the write asked for a TTL of its own.

    >>> encode_slot(Slot("city", "北京", datetime(2026, 11, 2, tzinfo=UTC)), None).decode()
    '{"value":"北京","updated_at":"2026-11-02T00:00:00.000000Z","rule":null,"message_hash":null}'

    Raises:
        TypeError: The value is not JSON.
    """
    # Always six digits of microseconds: put_slots.lua compares these as text.
    at = slot.updated_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    entry = {"value": slot.value, "updated_at": at, "rule": slot.rule, "message_hash": slot.message_hash}
    return orjson.dumps(entry if ttl_ms is None else entry | {"ttl_ms": ttl_ms})


def decode_slot(name: bytes, text: bytes) -> tuple[Slot, int | None] | None:
    """The slot and the TTL it was written with, if any; None when a stranger wrote it."""
    entry = decode_object(text)
    try:
        if entry is None or "value" not in entry:
            return None
        at = datetime.fromisoformat(entry["updated_at"])
        label = name.decode()
    except (KeyError, TypeError, ValueError):
        return None
    rule, message_hash, ttl_ms = entry.get("rule"), entry.get("message_hash"), entry.get("ttl_ms")
    slot = Slot(
        label,
        entry["value"],
        at if at.tzinfo else at.replace(tzinfo=UTC),
        rule if isinstance(rule, str) else None,
        message_hash if isinstance(message_hash, str) else None,
    )
    return slot, ttl_ms if isinstance(ttl_ms, int) and ttl_ms > 0 else None


def decode_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None
