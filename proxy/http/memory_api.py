"""The memory API: records, search, sessions, ledger, stats. Every read takes a `Scope`, every write `Remember`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from aiohttp import web

from proxy.auth import Permission, Principal
from proxy.errors import RequestError, StoreUnavailable, WorkingMemoryUnavailable
from proxy.http.answers import json_answer
from proxy.http.bodies import (
    USER_KINDS,
    Listing,
    NewRecord,
    RecordChange,
    Search,
    read_body,
    read_query,
)
from proxy.http.errors import not_supported_yet
from proxy.http.gate import Gate
from proxy.metrics import Metrics
from proxy.plugs import Ledger, Store, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.recall import Hit, Recall
from proxy.record import Failure
from proxy.remember import Remember
from proxy.scope import Scope
from proxy.store.records import as_json
from proxy.types import Draft, Memory, Source, iso

T = TypeVar("T")
Handler = Callable[[web.Request, Principal], Awaitable[web.StreamResponse]]
_RECORD, _REQUEST, _SESSION = (f"/memory/{noun}/{{id:[^/]+}}" for noun in ("records", "requests", "sessions"))
_LATER = (
    ("POST", "/memory/forget"),
    ("GET", "/memory/policies"),
    ("POST", "/memory/policies/explain"),
    ("GET", "/debug/memories"),
    ("*", "/mcp"),
    ("*", "/ui"),
    ("GET", "/openapi.json"),
)
_ALL_AGENTS = "*"


@dataclass(frozen=True)
class MemoryApi:
    """`/memory/*`.

    Args:
        store, working, recall, remember: The parts it hands requests to.
        failure: Returns the account of a call that could not be journalled, by its owner and id.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
        metrics: Knows where recalls were answered.
        threads: Where the parts, which wait, run.
        gate: Tells who asks, and whose memories are meant.
    """

    store: Store
    working: WorkingMemory
    recall: Recall
    remember: Remember
    failure: Callable[[Scope, str], Failure | None]
    policies: Callable[[], PolicySet]
    clock: Callable[[], datetime]
    metrics: Metrics
    threads: ThreadPoolExecutor
    gate: Gate

    def routes(self) -> list[web.RouteDef]:
        """Every route of the memory API, and those that a later version brings."""
        doors: list[tuple[str, str, Permission | None, Handler]] = [
            ("GET", "/memory/records", "memory:read", self.list_records),
            ("POST", "/memory/records", "memory:write", self.create_record),
            ("GET", _RECORD, "memory:read", self.get_record),
            ("PATCH", _RECORD, "memory:write", self.change_record),
            ("DELETE", _RECORD, "memory:write", self.delete_record),
            ("GET", f"{_RECORD}/history", "memory:read", self.record_history),
            ("POST", "/memory/search", "memory:read", self.search),
            ("GET", _REQUEST, "memory:read", self.request_ledger),
            ("GET", _SESSION, "memory:read", self.get_session),
            ("DELETE", _SESSION, "memory:write", self.end_session),
            ("GET", "/memory/stats", "memory:read", self.stats),
            *((method, path, None, self.later) for method, path in _LATER),
        ]
        return [
            web.route(method, path, self._entered(permission, handler)) for method, path, permission, handler in doors
        ]

    # ── records ────────────────────────────────────────────────────────────────────────────────────────────────
    async def list_records(self, request: web.Request, principal: Principal) -> web.Response:
        """Records the caller may read, newest first."""
        query = read_query(request, Listing)
        all_agents = query.agent_id == _ALL_AGENTS
        named = {"user_id": query.user_id, "agent_id": None if all_agents else query.agent_id}
        scope = self.gate.owner(request, principal, named)
        if all_agents:
            principal.check_bounds(scope.user_id, _ALL_AGENTS)
        page = await self._run(
            lambda: self.store.list(scope, query.filters, limit=query.limit, cursor=query.cursor, all_agents=all_agents)
        )
        return json_answer({"data": [as_json(memory) for memory in page.items], "next_cursor": page.next_cursor})

    async def create_record(self, request: web.Request, principal: Principal) -> web.Response:
        """Write one memory on purpose."""
        body = await read_body(request, NewRecord)
        named = body.model_dump(include={"user_id", "agent_id", "session_id"}, exclude_none=True)
        scope = self.gate.owner(request, principal, named)
        if body.scope == "shared":
            principal.require("shared:write")
        draft = Draft(
            rule_id="api",
            policy_hash=self.policies().hash,
            content=body.content,
            memory_type=body.memory_type,
            kind=body.kind,
            scope=body.scope or ("user" if body.kind in USER_KINDS else "agent"),
            confidence=body.confidence,
            language="other",
            key=body.key,
            tags=body.tags,
            on_conflict=body.on_conflict,
        )
        source = Source(role="api", session=scope.session_id, rule="api", policy_hash=draft.policy_hash)
        written = await self._run(
            lambda: self.remember.put(scope, draft, source, valid_from=body.valid_from, expires_at=body.expires_at)
        )
        if written.memory is None:
            raise RequestError(
                f"the record was not stored: {written.outcome.reason}", status=500, code="not_stored", type_="api_error"
            )
        answer = {**as_json(written.memory), "outcome": written.outcome.action}
        return json_answer(answer, status=200 if written.outcome.action == "merged" else 201)

    async def get_record(self, request: web.Request, principal: Principal) -> web.Response:
        """One record, in any state."""
        scope = self.gate.owner(request, principal)
        return json_answer(as_json(await self._record(request, scope)))

    async def change_record(self, request: web.Request, principal: Principal) -> web.Response:
        """Change fields of a record; its former state stays in its history."""
        body = await read_body(request, RecordChange)
        scope = self.gate.owner(request, principal)
        memory = await self._record(request, scope)
        if memory.scope == "shared":
            principal.require("shared:write")
        fields = {name: getattr(body, name) for name in body.model_fields_set}
        if not fields:
            raise RequestError("the body names no field to change", code="invalid_field")
        for name in ("content", "memory_type", "kind", "tags", "confidence", "state"):
            if name in fields and fields[name] is None:
                raise RequestError(f"{name} cannot be null", code="invalid_field", param=name)
        if memory.state == "superseded" and "state" in fields:
            raise RequestError(
                f"the record was superseded by {memory.superseded_by}; change that one", status=409, code="superseded"
            )
        changed = replace(memory, **fields)
        stored = await self._run(
            lambda: self.remember.change(scope, changed, expected_version=memory.version, change="updated")
        )
        return json_answer(as_json(stored))

    async def delete_record(self, request: web.Request, principal: Principal) -> web.Response:
        """Forget a record for good, with all that hangs on it."""
        scope = self.gate.owner(request, principal)
        memory = await self._record(request, scope)
        if memory.scope == "shared":
            principal.require("shared:write")
        count = await self._run(lambda: self.remember.forget(scope, [memory.id]))
        return json_answer({"id": memory.id, "deleted": True, "forgotten": count})

    async def record_history(self, request: web.Request, principal: Principal) -> web.Response:
        """Every version of a record and of those it superseded, oldest first."""
        scope = self.gate.owner(request, principal)
        versions = await self._run(lambda: self.store.history(scope, request.match_info["id"]))
        if not versions:
            raise _no_record(request.match_info["id"])
        data = [{**as_json(one.memory), "change": one.change, "changed_at": iso(one.at)} for one in versions]
        return json_answer({"data": data, "next_cursor": None})

    async def search(self, request: web.Request, principal: Principal) -> web.Response:
        """Search memories on purpose."""
        body = await read_body(request, Search)
        named = body.model_dump(include={"user_id", "agent_id"}, exclude_none=True)
        scope = self.gate.owner(request, principal, named)
        hits = await self._run(
            lambda: self.recall.search(
                scope,
                body.query,
                now=self.clock(),
                policies=self.policies(),
                top_k=body.top_k,
                filters=body.filters,
            )
        )
        return json_answer({"data": [_hit(hit) for hit in hits]})

    # ── calls and sessions ─────────────────────────────────────────────────────────────────────────────────────
    async def request_ledger(self, request: web.Request, principal: Principal) -> web.Response:
        """The account of one call."""
        scope = self.gate.owner(request, principal)
        request_id = request.match_info["id"]
        account = await self._run(lambda: self._account(scope, request_id))
        bound = principal.agent_id
        if account is None or (bound is not None and account["scope"]["agent_id"] != bound):
            raise RequestError(f"there is no call {request_id!r} of this user", status=404, code="not_found")
        return json_answer(account)

    async def get_session(self, request: web.Request, principal: Principal) -> web.Response:
        """Working memory and task chain of a session."""
        scope = self._session_scope(request, principal)
        return json_answer(await self._run(lambda: self._session(scope)))

    async def end_session(self, request: web.Request, principal: Principal) -> web.Response:
        """End a session: its working memory goes at once."""
        scope = self._session_scope(request, principal)
        ended = await self._run(lambda: self._end(scope))
        if not ended:
            raise _no_session(scope)
        return json_answer({"session_id": scope.session_id, "ended": True})

    async def stats(self, request: web.Request, principal: Principal) -> web.Response:
        """Counts over what the caller may read, and where recalls were answered."""
        scope = self.gate.owner(request, principal)
        memories = await self._run(lambda: self.store.stats(scope))
        return json_answer({"memories": memories, "recalls": self.metrics.recall_counts()})

    async def later(self, request: web.Request, principal: Principal) -> web.Response:
        """What a later version brings."""
        raise not_supported_yet(f"{request.method} {request.path}")

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _entered(
        self, permission: Permission | None, handler: Handler
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler that only who may reaches, whatever the request holds: its body is not read before."""

        async def entered(request: web.Request) -> web.StreamResponse:
            return await handler(request, self.gate.enter(request, permission))

        return entered

    def _session_scope(self, request: web.Request, principal: Principal) -> Scope:
        scope = self.gate.owner(request, principal)
        try:
            return scope.in_session(request.match_info["id"])
        except ValueError as error:
            raise RequestError(f"the session id cannot be one: {error}", status=404, code="not_found") from error

    async def _record(self, request: web.Request, scope: Scope) -> Memory:
        memory = await self._run(lambda: self.store.get(scope, request.match_info["id"]))
        if memory is None:
            raise _no_record(request.match_info["id"])
        return memory

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def _account(self, scope: Scope, request_id: str) -> dict[str, Any] | None:
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

    def _told(self, scope: Scope, ledger: Ledger, failure: str | None) -> dict[str, Any]:
        written: dict[str, Any] = {
            "status": "failed" if failure else ledger.written_status,
            "outcomes": [
                {"rule_id": one.rule_id, "action": one.action, "memory_id": one.memory_id, "reason": one.reason}
                for one in ledger.outcomes
            ],
        }
        if failure:
            written["reason"] = failure
        return {
            "id": ledger.id,
            "scope": {
                "tenant": ledger.scope.tenant,
                "user_id": ledger.scope.user_id,
                "agent_id": ledger.scope.agent_id,
                "session_id": ledger.scope.session_id,
            },
            "created_at": iso(ledger.at),
            "status": ledger.status,
            "recalled": [{**entry, "content": self._text(scope, str(entry["id"]))} for entry in ledger.recalled],
            "injected": dict(ledger.injected),
            "written": written,
        }

    def _text(self, scope: Scope, memory_id: str) -> str | None:
        memory = self.store.get(scope, memory_id)
        return memory.content if memory else None

    def _session(self, scope: Scope) -> dict[str, Any]:
        info = self.store.session(scope)
        degraded = None
        try:
            slots, chain = self.working.slots(scope), self.working.steps(scope)
        except WorkingMemoryUnavailable as error:
            slots, chain, degraded = {}, [], str(error)
        if info is None and not slots and not chain:
            raise _no_session(scope)
        answer: dict[str, Any] = {
            "session_id": scope.session_id,
            "started_at": iso(info.started_at) if info else None,
            "last_at": iso(info.last_at) if info else None,
            "ended_at": iso(info.ended_at) if info else None,
            "turns": info.turns if info else 0,
            "slots": {
                name: {"value": slot.value, "updated_at": iso(slot.updated_at), "rule": slot.rule}
                for name, slot in slots.items()
            },
            "chain": [dict(step) for step in chain],
        }
        return {**answer, "degraded": degraded} if degraded else answer

    def _end(self, scope: Scope) -> bool:
        now = self.clock()
        known = self.store.transact(lambda tx: tx.end_session(scope, now)).result()
        try:
            cleared = self.working.end(scope)
        except WorkingMemoryUnavailable as error:
            raise RequestError(
                f"{error}; the session's slots could not be cleared, try again", status=503, code="working_memory"
            ) from error
        return known or cleared


def _hit(hit: Hit) -> dict[str, Any]:
    return {**as_json(hit.memory), "score": hit.score, "parts": dict(hit.parts)}


def _no_record(memory_id: str) -> RequestError:
    return RequestError(f"there is no record {memory_id!r} that this user may read", status=404, code="not_found")


def _no_session(scope: Scope) -> RequestError:
    return RequestError(f"there is no session {scope.session_id!r} of this user", status=404, code="not_found")
