"""Filters and cursors as SQL conditions.

In: `Filters`, an opaque cursor. Out: a query with the conditions that are in use, and what it binds. Pure.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import Any

import orjson

from proxy.errors import RequestError
from proxy.plugs import Filters
from proxy.store import queries, records
from proxy.types import Memory

MAX_LIMIT = 500
_SQL = queries.load("listing")
_OPEN = Filters(state=None)


def check_limit(limit: int) -> None:
    """Refuse a page that is empty or too large.

    Raises:
        RequestError: It is.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise RequestError(f"limit is {limit}; give 1 to {MAX_LIMIT}", code="invalid_limit", param="limit")


def narrowed(sql: str, filters: Filters, cursor: str | None = None) -> tuple[str, dict[str, Any]]:
    """A query with the conditions of the filters in use.

    Args:
        sql: With ``{and}`` where they go.
        filters: What to narrow to.
        cursor: The page to go on after.

    Returns:
        The query, and its parameters.

    Raises:
        RequestError: The cursor is not one of ours.
    """
    bound = {name: value for name, value in _bound(filters).items() if value is not None}
    names = [*bound]
    if cursor is not None:
        bound |= _cursor_keys(cursor)
        names.append("cursor")
    return sql.replace("{and}", " ".join(_SQL[name] for name in names)), bound


def _bound(filters: Filters) -> dict[str, Any]:
    return {
        "state": filters.state,
        "memory_type": filters.memory_type,
        "kind": filters.kind,
        "key": filters.key,
        "session_id": filters.session_id,
        "scope": filters.scope,
        "language": filters.language,
        "tags": records.dumps(filters.tags) if filters.tags else None,
        "created_after": records.seconds(filters.created_after),
        "created_before": records.seconds(filters.created_before),
        "text": filters.text.casefold() if filters.text else None,
    }


def narrows(filters: Filters) -> bool:
    """Whether the filters leave out any active record."""
    return replace(filters, state=None) != _OPEN


def cursor_after(memory: Memory) -> str:
    """The cursor of the page that follows a record."""
    return base64.urlsafe_b64encode(orjson.dumps([memory.created_at.timestamp(), memory.id])).decode().rstrip("=")


def _cursor_keys(cursor: str) -> dict[str, Any]:
    try:
        at, id_ = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return {"before_at": float(at), "before_id": str(id_)}
    except (ValueError, TypeError, binascii.Error) as error:
        raise foreign_cursor() from error


def foreign_cursor() -> RequestError:
    """What is answered to a cursor that is none of ours."""
    return RequestError(
        "cursor is not one of ours; take next_cursor of the page before, or leave it out",
        code="invalid_cursor",
        param="cursor",
    )
