"""What the doors of the memory API share: who may come in, whose memories are meant, and where the work is done.

In: a request. Out: its principal and owner, and the result of work that waits, done on the API's own threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from proxy.auth import Principal
from proxy.errors import RequestError
from proxy.http.gate import Gate
from proxy.http.operation import Route
from proxy.plugs import Store
from proxy.scope import Scope
from proxy.types import Memory

T = TypeVar("T")
ALL_AGENTS = "*"


@dataclass(frozen=True)
class Entrance:
    """The way in.

    Args:
        gate: Tells who asks, and whose memories are meant.
        store: Where records are looked up.
        threads: Where the parts, which wait, run.
    """

    gate: Gate
    store: Store
    threads: ThreadPoolExecutor

    def open(self, route: Route) -> web.RouteDef:
        """A route that only who may reaches, whatever the request holds: its body is not read before."""
        operation, handler = route.operation, route.handler

        async def entered(request: web.Request) -> web.StreamResponse:
            return await handler(request, self.gate.enter(request, operation.permission))

        # By default an id could hold no braces.
        return web.route(operation.method, operation.path.replace("{id}", "{id:[^/]+}"), entered)

    def owner(self, request: web.Request, principal: Principal, named: Mapping[str, Any] | None = None) -> Scope:
        """The owner of a call; see `Gate.owner`."""
        return self.gate.owner(request, principal, named)

    def owners(
        self, request: web.Request, principal: Principal, user_id: str | None, agent_id: str | None
    ) -> tuple[Scope, bool]:
        """The owner of a call that may mean all of the user's agents.

        Args:
            request: The call.
            principal: Who asks.
            user_id, agent_id: As the call names them; ``*`` is every agent.

        Returns:
            The owner, and whether every agent is meant.

        Raises:
            RequestError: As for `owner`; 403 when the key is bound to one agent and every agent is asked for.
        """
        every = agent_id == ALL_AGENTS
        scope = self.owner(request, principal, {"user_id": user_id, "agent_id": None if every else agent_id})
        if every:
            principal.check_bounds(scope.user_id, ALL_AGENTS)
        return scope, every

    async def run(self, work: Callable[[], T]) -> T:
        """The result of work that waits."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def record(self, request: web.Request, scope: Scope) -> Memory:
        """The record that the path names.

        Raises:
            RequestError: 404, when this owner may read none of that id.
        """
        memory_id = request.match_info["id"]
        memory = await self.run(lambda: self.store.get(scope, memory_id))
        if memory is None:
            raise no_record(memory_id)
        return memory

    async def own_record(self, request: web.Request, principal: Principal, scope: Scope) -> Memory:
        """As `record`, for a change: 403 for a shared record and a key that may not write those."""
        memory = await self.record(request, scope)
        if memory.scope == "shared":
            principal.require("shared:write")
        return memory


def no_record(memory_id: str) -> RequestError:
    """What is answered for an id that nobody, or somebody else, has: the same."""
    return RequestError(f"there is no record {memory_id!r} that this user may read", status=404, code="not_found")
