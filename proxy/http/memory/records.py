"""The door of records: list, write, read, change, delete, history.

In: requests. Out: records as `shapes.Record`. Writes go through `Remember`: guard, conflict step, read-back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from aiohttp import web

from proxy.auth import Principal
from proxy.chain import walk
from proxy.errors import RequestError, WorkingMemoryUnavailable
from proxy.http.answers import shape_answer
from proxy.http.bodies import USER_KINDS, Listing, NewRecord, RecordChange, read_body, read_query
from proxy.http.memory.entrance import Entrance, no_record
from proxy.http.memory.idempotency import Idempotency, Reply, fingerprint, key_of
from proxy.http.memory.preconditions import check_match, check_slot, etag, unchanged
from proxy.http.operation import ETAG, IDEMPOTENCY_KEY, IF_MATCH, REPLAYED, Answer, Operation, Route
from proxy.http.shapes import DeletedRecord, History, Record, RecordPage, RecordVersion, TakenStep, WrittenRecord
from proxy.plugs import Store, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.remember import Remember
from proxy.scope import Scope
from proxy.types import Draft, Memory, Source
from proxy.writing import Written

_PATH = "/memory/records"
_ONE = f"{_PATH}/{{id}}"
_NEVER_NULL = ("content", "memory_type", "kind", "tags", "confidence", "state")

_OPERATIONS = (
    Operation(
        "GET", _PATH, "Records, newest first", "records", "memory:read", (Answer(200, "One page.", RecordPage),),
        query=Listing,
    ),
    Operation(
        "POST", _PATH, "Write one memory on purpose", "records", "memory:write",
        (
            Answer(201, "It was written.", WrittenRecord, (ETAG, REPLAYED)),
            Answer(200, "The same is known already: merged.", WrittenRecord, (ETAG, REPLAYED)),
        ),
        body=NewRecord, headers=(IDEMPOTENCY_KEY,), errors=(409, 410, 422, 429),
    ),
    Operation(
        "GET", _ONE, "One record, in any state", "records", "memory:read",
        (Answer(200, "The record.", Record, (ETAG,)),),
    ),
    Operation(
        "PATCH", _ONE, "Change fields; the former state stays in the history", "records", "memory:write",
        (Answer(200, "The record as it is now.", Record, (ETAG,)),),
        body=RecordChange, headers=(IF_MATCH,), errors=(409, 412),
    ),
    Operation(
        "DELETE", _ONE, "Forget for good, with all that hangs on it", "records", "memory:write",
        (Answer(200, "It is gone.", DeletedRecord),), headers=(IF_MATCH,), errors=(412,),
    ),
    Operation(
        "GET", f"{_ONE}/history", "Every state that it and what it superseded were in, and the steps that led to it",
        "records", "memory:read", (Answer(200, "Oldest first.", History),),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class RecordsDoor:
    """`/memory/records`.

    Args:
        entrance: The way in.
        store: Reads.
        working: Knows the calls of a session that made no memory.
        remember: Writes.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
        idempotency: Keeps answers for repeated requests.
    """

    entrance: Entrance
    store: Store
    working: WorkingMemory
    remember: Remember
    policies: Callable[[], PolicySet]
    clock: Callable[[], datetime]
    idempotency: Idempotency

    def routes(self) -> list[Route]:
        """This door's routes."""
        handlers = (self.list, self.create, self.get, self.change, self.delete, self.history)
        return [Route(operation, handler) for operation, handler in zip(_OPERATIONS, handlers, strict=True)]

    async def list(self, request: web.Request, principal: Principal) -> web.Response:
        """Records the caller may read, newest first."""
        query = read_query(request, Listing)
        scope, every = self.entrance.owners(request, principal, query.user_id, query.agent_id)
        page = await self.entrance.run(
            lambda: self.store.list(scope, query.filters, limit=query.limit, cursor=query.cursor, all_agents=every)
        )
        return shape_answer(RecordPage.of(page))

    async def create(self, request: web.Request, principal: Principal) -> web.Response:
        """Write one memory on purpose."""
        body = await read_body(request, NewRecord)
        named = body.model_dump(include={"user_id", "agent_id", "session_id"}, exclude_none=True)
        scope = self.entrance.owner(request, principal, named)
        if body.scope == "shared":
            principal.require("shared:write")
        asked = fingerprint(request, scope, await request.read())
        key = key_of(request)
        reply = await self.entrance.run(
            lambda: self.idempotency.once(scope, key, asked, lambda: self._written(scope, body))
        )
        return reply.response()

    async def get(self, request: web.Request, principal: Principal) -> web.Response:
        """One record, in any state."""
        memory = await self.entrance.record(request, self.entrance.owner(request, principal))
        return record_answer(memory)

    async def change(self, request: web.Request, principal: Principal) -> web.Response:
        """Change fields of a record; its former state stays in its history."""
        body = await read_body(request, RecordChange)
        scope = self.entrance.owner(request, principal)
        memory = await self.entrance.own_record(request, principal, scope)
        check_match(request, memory)
        changed = replace(memory, **_changes(body, memory))

        def check() -> None:
            unchanged(self.store, scope, memory)()
            check_slot(self.store, scope, memory, changed)

        stored = await self.entrance.run(
            lambda: self.remember.change(scope, changed, expected_version=memory.version, check=check)
        )
        return record_answer(stored)

    async def delete(self, request: web.Request, principal: Principal) -> web.Response:
        """Forget a record for good, with all that hangs on it."""
        scope = self.entrance.owner(request, principal)
        memory = await self.entrance.own_record(request, principal, scope)
        check_match(request, memory)
        check = unchanged(self.store, scope, memory) if IF_MATCH.name in request.headers else _nothing
        count = await self.entrance.run(lambda: self.remember.forget(scope, [memory.id], check=check))
        return shape_answer(DeletedRecord(id=memory.id, forgotten=count))

    async def history(self, request: web.Request, principal: Principal) -> web.Response:
        """Every version of a record and of those it superseded, and the steps that led to it; oldest first."""
        scope, memory_id = self.entrance.owner(request, principal), request.match_info["id"]
        history = await self.entrance.run(lambda: self._history(scope, memory_id))
        if not history.data:
            raise no_record(memory_id)
        return shape_answer(history)

    def _history(self, scope: Scope, memory_id: str) -> History:
        versions = self.store.history(scope, memory_id)
        session_id = versions[-1].memory.session_id if versions else None
        steps: Sequence[Mapping[str, Any]] = ()
        if session_id is not None:
            with suppress(WorkingMemoryUnavailable):
                steps = self.working.steps(scope.in_session(session_id))
        way = walk(self.store, scope, memory_id, steps)
        return History(
            data=tuple(RecordVersion.at(version) for version in versions),
            steps=tuple(TakenStep.model_validate(step) for step in way) if len(way) > 1 else (),
        )

    def _written(self, scope: Scope, body: NewRecord) -> Reply:
        draft = _draft(body, self.policies().hash)
        source = Source(role="api", session=scope.session_id, rule="api", policy_hash=draft.policy_hash)
        written = self.remember.put(scope, draft, source, valid_from=body.valid_from, expires_at=body.expires_at)
        memory = _stored(written)
        shape = WrittenRecord.written(memory, written.outcome.action)
        status = 200 if written.outcome.action == "merged" else 201
        return Reply(status, shape.model_dump_json(), memory.id, etag(memory))


def record_answer(memory: Memory) -> web.Response:
    """A record with its ETag."""
    return shape_answer(Record.of(memory), headers={ETAG.name: etag(memory)})


def _nothing() -> None:
    """No precondition."""


def _draft(body: NewRecord, policy_hash: str) -> Draft:
    return Draft(
        rule_id="api",
        policy_hash=policy_hash,
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


def _stored(written: Written) -> Memory:
    if written.memory is not None:
        return written.memory
    reason = written.outcome.reason
    if written.outcome.action == "dropped":
        raise RequestError(f"the record was not stored: {reason}; it is in the policies", status=429, code="rate")
    raise RequestError(f"the record was not stored: {reason}", status=500, code="not_stored", type_="api_error")


def _changes(body: RecordChange, memory: Memory) -> dict[str, Any]:
    fields = {name: getattr(body, name) for name in body.model_fields_set}
    if not fields:
        raise RequestError("the body names no field to change", code="invalid_field")
    for name in _NEVER_NULL:
        if name in fields and fields[name] is None:
            raise RequestError(f"{name} cannot be null", code="invalid_field", param=name)
    if memory.state == "superseded" and "state" in fields:
        raise RequestError(
            f"the record was superseded by {memory.superseded_by}; change that one", status=409, code="superseded"
        )
    return fields
