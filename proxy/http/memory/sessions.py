"""The door of sessions: working memory and task chain, and a session's end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web

from proxy.auth import Principal
from proxy.errors import RequestError, WorkingMemoryUnavailable
from proxy.http.answers import shape_answer
from proxy.http.house_shapes import EndedSession, SessionShape
from proxy.http.memory.entrance import Entrance
from proxy.http.operation import Answer, Operation, Route
from proxy.plugs import Store, WorkingMemory
from proxy.scope import Scope

_PATH = "/memory/sessions/{id}"
_DRAIN_S = 5.0


@dataclass(frozen=True)
class SessionsDoor:
    """`/memory/sessions`.

    Args:
        entrance: The way in.
        store: Knows sessions.
        working: Holds their slots.
        end: Ends a session because its user says so.
        drain: Waits until what was said so far is written.
    """

    entrance: Entrance
    store: Store
    working: WorkingMemory
    end: Callable[[Scope], bool]
    drain: Callable[[], Awaitable[None]]

    def routes(self) -> list[Route]:
        """This door's routes."""
        shown = Answer(200, "The session.", SessionShape)
        ended = Answer(200, "It is ended.", EndedSession)
        return [
            Route(
                Operation("GET", _PATH, "Working memory and task chain", "sessions", "memory:read", (shown,)), self.get
            ),
            Route(
                Operation(
                    "DELETE",
                    _PATH,
                    "End a session: its working memory goes at once",
                    "sessions",
                    "memory:write",
                    (ended,),
                ),
                self.finish,
            ),
        ]

    async def get(self, request: web.Request, principal: Principal) -> web.Response:
        """Working memory and task chain of a session."""
        scope = self._scope(request, principal)
        return shape_answer(await self.entrance.run(lambda: self._shown(scope)))

    async def finish(self, request: web.Request, principal: Principal) -> web.Response:
        """End a session: its working memory goes at once."""
        scope = self._scope(request, principal)
        # Its summary is to hold what was said last; but nobody waits for a store that cannot be written.
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self.drain()
        if not await self.entrance.run(lambda: self._ended(scope)):
            raise _no_session(scope)
        return shape_answer(EndedSession(session_id=scope.session_id or ""))

    def _scope(self, request: web.Request, principal: Principal) -> Scope:
        scope = self.entrance.owner(request, principal)
        try:
            return scope.in_session(request.match_info["id"])
        except ValueError as error:
            raise RequestError(f"the session id cannot be one: {error}", status=404, code="not_found") from error

    def _shown(self, scope: Scope) -> SessionShape:
        info = self.store.session(scope)
        degraded = None
        try:
            slots, chain = self.working.slots(scope), self.working.steps(scope)
        except WorkingMemoryUnavailable as error:
            slots, chain, degraded = {}, [], str(error)
        if info is None and not slots and not chain:
            raise _no_session(scope)
        return SessionShape.model_validate(
            {
                "session_id": scope.session_id,
                "started_at": info.started_at if info else None,
                "last_at": info.last_at if info else None,
                "ended_at": info.ended_at if info else None,
                "turns": info.turns if info else 0,
                "slots": slots,
                "chain": [dict(step) for step in chain],
                "degraded": degraded,
            }
        )

    def _ended(self, scope: Scope) -> bool:
        try:
            return self.end(scope)
        except WorkingMemoryUnavailable as error:
            raise RequestError(
                f"{error}; the session's slots could not be cleared, try again", status=503, code="working_memory"
            ) from error


def _no_session(scope: Scope) -> RequestError:
    return RequestError(f"there is no session {scope.session_id!r} of this user", status=404, code="not_found")
