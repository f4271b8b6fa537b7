"""ETag and If-Match: a change is made only to the record that its sender saw.

In: records and request headers. Out: ETags, and refusals. An ETag is a record's version and the time of its last
change: whatever a person, a rule or a sweep changes makes another one; being recalled does not.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from aiohttp import web

from proxy.errors import RequestError, VersionConflict
from proxy.http.operation import IF_MATCH
from proxy.plugs import Store
from proxy.scope import Scope
from proxy.types import Memory

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def etag(memory: Memory) -> str:
    """The strong ETag of a record."""
    return f'"{memory.version}-{(memory.updated_at - _EPOCH) // _MICROSECOND:x}"'


def check_match(request: web.Request, memory: Memory) -> None:
    """Refuse a change to a record that is not as its sender saw it.

    Raises:
        RequestError: 412, when If-Match names other states only.
    """
    named = [tag.strip() for value in request.headers.getall(IF_MATCH.name, ()) for tag in value.split(",")]
    if named and "*" not in named and etag(memory) not in named:
        raise RequestError(
            f"memory {memory.id} is at {etag(memory)}, not at {', '.join(named)!a}: read it again, then repeat the "
            "change",
            status=412,
            code="version_conflict",
            param=IF_MATCH.name,
        )


def unchanged(store: Store, scope: Scope, seen: Memory) -> Callable[[], None]:
    """A check, to be made under the owner's lock, that a record is still as it was seen.

    Returns:
        What raises `VersionConflict` when it is not.
    """

    def check() -> None:
        present = store.get(scope, seen.id)
        if present is None or etag(present) != etag(seen):
            raise VersionConflict(f"memory {seen.id} changed meanwhile: read it again, then repeat the change")

    return check


def check_slot(store: Store, scope: Scope, before: Memory, after: Memory) -> None:
    """Refuse a change that would put a second answer into a slot.

    A slot holds one answer at a time. A new answer is written as a new record, which supersedes the old one; putting an
    existing record into a slot that is taken would leave two, or silently decide which of them was meant.

    Args:
        store: Where the slot is looked up.
        scope: Whose.
        before, after: The record as it is, and as it is to be.

    Raises:
        RequestError: 409, naming the record that holds the slot.
    """
    enters = after.state == "active" and after.key is not None
    if not enters or (before.state == "active" and before.key == after.key):
        return
    for other in store.by_key(scope, after.key or ""):
        if other.scope == after.scope and other.id != after.id:
            raise RequestError(
                f"the slot '{after.key}' holds {other.id}: archive or forget that one first, or write the new answer "
                "as a new record, which supersedes it",
                status=409,
                code="slot_taken",
                param="key",
            )
