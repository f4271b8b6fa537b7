"""An endpoint of our own as data: what it takes, what it answers, and who may call it.

In: nothing. Out: `Operation`s, which the OpenAPI document is made from, and `Route`s, which add the handler that really
runs. A door names the pydantic models that its handler reads and answers with, so that the document cannot drift.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from aiohttp import web
from pydantic import BaseModel

from proxy.auth import Permission, Principal

Handler = Callable[[web.Request, Principal], Awaitable[web.StreamResponse]]
Method = Literal["GET", "POST", "PATCH", "DELETE"]
JSON = "application/json"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a request or an answer."""

    name: str
    description: str
    example: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One way in which an endpoint answers when all goes well.

    Args:
        status: HTTP status.
        description: When it is given.
        model: Its body; for NDJSON each of its lines; None for a body that is not JSON.
        headers: Beside those that every answer has.
        media: Content type.
    """

    status: int
    description: str
    model: type[BaseModel] | None = None
    headers: tuple[Header, ...] = ()
    media: str = JSON


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint.

    Args:
        method: HTTP method.
        path: With ``{id}`` where an id stands.
        summary: What it does, in one line.
        tag: Its group in the document.
        permission: What a key needs in keys mode; None where every key will do.
        answers: When all goes well.
        query: Its parameters.
        body: Its body; for NDJSON each of its lines.
        body_media: Content type of the body.
        body_required: Whether there must be one.
        headers: Request headers beside those that name the owner.
        errors: Statuses of its own kind beside those that every endpoint may answer with.
        scoped: Whether it is about one user's memories.
        public: Whether it answers without a key.
    """

    method: Method
    path: str
    summary: str
    tag: str
    permission: Permission | None
    answers: tuple[Answer, ...]
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    body_media: str = JSON
    body_required: bool = True
    headers: tuple[Header, ...] = ()
    errors: tuple[int, ...] = ()
    scoped: bool = True
    public: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """An operation and what runs."""

    operation: Operation
    handler: Handler


ETAG = Header("ETag", "The state of the record, for If-Match.", '"3-63f0c2a1b2c3d"')
IF_MATCH = Header("If-Match", "Do it only while the record is as this ETag says; 412 otherwise.", '"3-63f0c2a1b2c3d"')
IDEMPOTENCY_KEY = Header(
    "Idempotency-Key",
    "Any text of 1 to 255 characters. The same key with the same request within 24 hours is answered as the first "
    "time, and nothing is done again; with another request it is 422.",
    "3f1c9a52-import-1",
)
REPLAYED = Header("Idempotency-Replayed", "`true` when the answer is that of an earlier request.", "true")
