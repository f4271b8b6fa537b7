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
from proxy.rehearsal import Rehearsal
from proxy.scope import Scope


@dataclass(frozen=True)
class SearchDoor:
    """`POST /memory/search`.

    Args:
        entrance: The way in.
        recall: Searches.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
        rehearsal: Tells what a call would do with what is found.
    """

    entrance: Entrance
    recall: Recall
    policies: Callable[[], PolicySet]
    clock: Callable[[], datetime]
    rehearsal: Rehearsal

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
        return shape_answer(await self.entrance.run(lambda: self._found(scope, body)))

    def _found(self, scope: Scope, body: Search) -> SearchAnswer:
        now = self.clock()
        hits = self.recall.considered(
            scope, body.query, now=now, policies=self.policies(), top_k=body.top_k, filters=body.filters
        )
        return SearchAnswer.of(hits, self.rehearsal.of(scope, body.query, hits, now) if body.explain else None)
