"""One proxied call on its way through the house, and what is found out for it.

Made by the pipeline, filled by the recall thread, read by the doors. The only mutable values of a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from proxy.frozen import Placed
from proxy.identity import Caller
from proxy.inject import Block
from proxy.observe import Conversation
from proxy.plugs import JournalTurn, Piece
from proxy.recall import Recalled
from proxy.routes import Route
from proxy.scope import Scope
from proxy.types import Message


@dataclass(slots=True)
class Prepared:
    """What the recall thread finds out, filled as it goes; what is there at the deadline is used.

    Args:
        scope: With its session, once `session_known`.
        session_known: Whether the session was looked up.
        backfill: Earlier messages not seen before.
        recalled: Hits and slots.
        block: The finished block; None while recall is not done.
        pieces: What stands in the session's requests so far; None until it was looked up, and where nothing is frozen.
        begun: When the session was; what was learnt since is news to it.
        fresh: The piece that this request adds to them, and the chain hash that it was made for.
        left_out: Ids that found no room in it.
        reused: The block is the one that this tool loop began with.
        failures: Layers that failed besides those in `recalled`.
    """

    scope: Scope
    session_known: bool = False
    backfill: tuple[Message, ...] = ()
    recalled: Recalled = field(default_factory=Recalled)
    block: Block | None = None
    pieces: Mapping[str, Piece] | None = None
    begun: datetime | None = None
    fresh: tuple[str, Piece] | None = None
    left_out: tuple[str, ...] = ()
    reused: bool = False
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """One proxied call.

    Args:
        id: Request id.
        body: What goes upstream.
        caller: Whose call it is.
        at: When it came.
        status: For ``X-Memory-Status``.
        model: As the client named it.
        route: Where `models:` sends it; None for `upstream`.
        stream: Whether the client asked for a stream.
        has_tools: Whether the model may call tools, so that a tool loop may follow.
        talk: Its conversation; None when its messages cannot be read.
        scope: Whose, with its session; None while memory stays out.
        block: What was injected.
        placed: Where its pieces go, with `inject.placement: session`; None where it is one block at one place.
        settled: Whether its own piece is kept.
        prepared: What the recall thread finds out; None when it was not asked.
        journalled: Opens the journal; None when nothing is to be written.
    """

    id: str
    body: bytes
    caller: Caller
    at: datetime
    status: str = "ok"
    model: str = ""
    route: Route | None = None
    stream: bool = False
    has_tools: bool = False
    talk: Conversation | None = None
    scope: Scope | None = None
    block: Block = field(default_factory=Block)
    placed: Placed | None = None
    settled: bool = False
    prepared: asyncio.Future[Prepared] | None = None
    journalled: asyncio.Task[JournalTurn | None] | None = None

    @property
    def known_as(self) -> str:
        """The model's name for token counts and windows: the client's may be an alias that nobody else knows."""
        return self.model if self.route is None else self.route.model

    @property
    def takes_system(self) -> bool:
        """Whether its model takes a system message."""
        return self.route is None or self.route.entry.system_role == "system"

    @property
    def headers(self) -> dict[str, str]:
        """What is said about memory in the response."""
        said = {
            "X-Memory-Request-Id": self.id,
            "X-Memory-Status": self.status,
            "X-Memory-Injected": str(len(self.block.items)),
            "X-Memory-Tokens": str(self.block.tokens),
        }
        if self.scope is not None and self.scope.session_id is not None:
            said["X-Memory-Session"] = self.scope.session_id
        return said
