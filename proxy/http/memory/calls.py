"""The door of calls: what one call recalled, injected and wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from proxy.auth import Principal
from proxy.errors import RequestError, StoreUnavailable
from proxy.http.answers import shape_answer
from proxy.http.house_shapes import CallLedger
from proxy.http.memory.entrance import Entrance
from proxy.http.operation import Answer, Operation, Route
from proxy.plugs import Ledger, Store
from proxy.record import Failure
from proxy.scope import Scope


@dataclass(frozen=True)
class CallsDoor:
    """`/memory/requests`.

    Args:
        entrance: The way in.
        store: Holds the ledger.
        failure: Returns the account of a call that could not be journalled, by its owner and id.
    """

    entrance: Entrance
    store: Store
    failure: Callable[[Scope, str], Failure | None]

    def routes(self) -> list[Route]:
        """This door's route."""
        told = Answer(200, "Its ledger.", CallLedger)
        operation = Operation(
            "GET",
            "/memory/requests/{id}",
            "What one call recalled, injected and wrote",
            "calls",
            "memory:read",
            (told,),
        )
        return [Route(operation, self.ledger)]

    async def ledger(self, request: web.Request, principal: Principal) -> web.Response:
        """The account of one call."""
        scope = self.entrance.owner(request, principal)
        request_id = request.match_info["id"]
        account = await self.entrance.run(lambda: self._account(scope, request_id))
        bound = principal.agent_id
        if account is None or (bound is not None and account.scope.agent_id != bound):
            raise RequestError(f"there is no call {request_id!r} of this user", status=404, code="not_found")
        return shape_answer(account)

    def _account(self, scope: Scope, request_id: str) -> CallLedger | None:
        failure = self.failure(scope, request_id)
        try:
            ledger = self.store.ledger(scope, request_id)
        except StoreUnavailable:
            if failure is None:
                raise
            ledger = None
        # What could not be written has no entry in the store, and must be told all the same.
        known = ledger or (failure.ledger if failure else None)
        return None if known is None else self._told(scope, known, failure.reason if failure else None)

    def _told(self, scope: Scope, ledger: Ledger, failure: str | None) -> CallLedger:
        written = {"status": "failed" if failure else ledger.written_status, "outcomes": ledger.outcomes}
        return CallLedger.model_validate(
            {
                "id": ledger.id,
                "scope": ledger.scope,
                "created_at": ledger.at,
                "status": ledger.status,
                "recalled": [{**entry, "content": self._text(scope, str(entry["id"]))} for entry in ledger.recalled],
                "injected": dict(ledger.injected),
                "written": {**written, "reason": failure} if failure else written,
            }
        )

    def _text(self, scope: Scope, memory_id: str) -> str | None:
        memory = self.store.get(scope, memory_id)
        return memory.content if memory else None
