"""The door of search: the best memories for a query, with every score and its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from aiohttp import web

from proxy.auth import Principal
from proxy.http.answers import shape_answer
from proxy.http.bodies import Search, read_body
from proxy.http.memory.entrance import Entrance
from proxy.http.operation import Answer, Operation, Route
from proxy.http.shapes import SearchAnswer
from proxy.policy.rules import PolicySet
from proxy.recall import Recall


@dataclass(frozen=True)
class SearchDoor:
    """`POST /memory/search`.

    Args:
        entrance: The way in.
        recall: Searches.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
    """

    entrance: Entrance
    recall: Recall
    policies: Callable[[], PolicySet]
    clock: Callable[[], datetime]

    def routes(self) -> list[Route]:
        """This door's route."""
        found = Answer(200, "Best first.", SearchAnswer)
        operation = Operation(
            "POST", "/memory/search", "Search on purpose", "records", "memory:read", (found,), body=Search
        )
        return [Route(operation, self.search)]

    async def search(self, request: web.Request, principal: Principal) -> web.Response:
        """Search memories on purpose."""
        body = await read_body(request, Search)
        named = body.model_dump(include={"user_id", "agent_id"}, exclude_none=True)
        scope = self.entrance.owner(request, principal, named)
        hits = await self.entrance.run(
            lambda: self.recall.considered(
                scope,
                body.query,
                now=self.clock(),
                policies=self.policies(),
                top_k=body.top_k,
                filters=body.filters,
            )
        )
        return shape_answer(SearchAnswer.of(hits, explain=body.explain))
