"""The door of the house itself: counts, and for whoever runs it every record of a tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from proxy.auth import Principal
from proxy.errors import RequestError
from proxy.http.answers import shape_answer
from proxy.http.bodies import TenantListing, read_query
from proxy.http.house_shapes import MemoryCounts, RecallCounts, StatsAnswer
from proxy.http.memory.entrance import ALL_AGENTS, Entrance
from proxy.http.operation import Answer, Operation, Route
from proxy.http.shapes import RecordPage
from proxy.plugs import Store
from proxy.scope import Scope, TenantScope


@dataclass(frozen=True)
class HouseDoor:
    """`/memory/stats` and `/debug/memories`.

    Args:
        entrance: The way in.
        store: Reads.
        recalls: Returns how many of an owner's recalls each source answered.
        debug: Whether `/debug/memories` is there at all.
        keyed: Whether keys are on: it then takes one with `admin`.
    """

    entrance: Entrance
    store: Store
    recalls: Callable[[Scope], Mapping[str, int]]
    debug: bool
    keyed: bool

    def routes(self) -> list[Route]:
        """This door's routes."""
        counted = Answer(200, "Counts.", StatsAnswer)
        stats = Operation(
            "GET", "/memory/stats", "Counts over what the caller reads, and where their recalls were answered", "house",
            "memory:read", (counted,),
        )  # fmt: skip
        listing = Operation(
            "GET", "/debug/memories", "Every record of the tenant, whoever's, the newest written first (`debug: true`)",
            "house", None, (Answer(200, "One page.", RecordPage),), query=TenantListing, errors=(404,), scoped=False,
        )  # fmt: skip
        return [Route(stats, self.stats), Route(listing, self.memories)]

    async def stats(self, request: web.Request, principal: Principal) -> web.Response:
        """Counts over what the caller may read, and where recalls were answered."""
        scope = self.entrance.owner(request, principal)
        memories = MemoryCounts.model_validate(await self.entrance.run(lambda: self.store.stats(scope)))
        return shape_answer(
            StatsAnswer(memories=memories, recalls=RecallCounts.model_validate(dict(self.recalls(scope))))
        )

    async def memories(self, request: web.Request, principal: Principal) -> web.Response:
        """Every record of the tenant, the newest written first."""
        if not self.debug:
            raise RequestError(
                "/debug/memories is closed; 'debug: true' in config.yaml opens it", status=404, code="not_found"
            )
        if self.keyed:
            principal.require("admin")
        query = read_query(request, TenantListing)
        agent_id = None if query.agent_id == ALL_AGENTS else query.agent_id
        # A key that is bound to a user or an agent sees no others here either.
        scope = TenantScope(
            principal.tenant or "",
            user_id=query.user_id or principal.user_id,
            agent_id=agent_id or principal.agent_id,
        )
        principal.check_bounds(scope.user_id or "", scope.agent_id or "")
        page = await self.entrance.run(
            lambda: self.store.list_tenant(scope, query.filters, limit=query.limit, cursor=query.cursor)
        )
        return shape_answer(RecordPage.of(page))
