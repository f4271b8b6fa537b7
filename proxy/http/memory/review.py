"""The door of review: what waits for approval is accepted or rejected, what was archived comes back, and what is named
by a filter is forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aiohttp import web

from proxy.auth import Principal
from proxy.errors import RequestError, StoreError, StoreUnavailable, VersionConflict
from proxy.http.answers import shape_answer
from proxy.http.bodies import Forgetting, Rejection, read_body
from proxy.http.memory.entrance import Entrance, no_record
from proxy.http.memory.preconditions import check_match, check_slot, unchanged
from proxy.http.memory.records import record_answer
from proxy.http.operation import ETAG, IF_MATCH, Answer, Operation, Route
from proxy.http.shapes import DeletedRecord, ForgottenRecords, Record
from proxy.plugs import Filters, Store
from proxy.remember import Remember
from proxy.scope import Scope
from proxy.types import Memory

_ONE = "/memory/records/{id}"
_PAGE = 500
_AT_ONCE = 200
_RECORD = Answer(200, "The record as it is now.", Record, (ETAG,))


@dataclass(frozen=True)
class ReviewDoor:
    """Decisions upon records.

    Args:
        entrance: The way in.
        store: Reads.
        remember: Writes.
        min_confidence: `recall.min_confidence`: what is accepted is at least so sure, or it would never be recalled.
    """

    entrance: Entrance
    store: Store
    remember: Remember
    min_confidence: float

    def routes(self) -> list[Route]:
        """This door's routes."""
        matched, errors = (IF_MATCH,), (409, 412)
        rejected = Answer(200, "The archived record, or with `forget` what is gone.", Record, (ETAG,))
        return [
            Route(
                Operation(
                    "POST", f"{_ONE}/restore", "Bring an archived record back into use", "review", "memory:write",
                    (_RECORD,), headers=matched, errors=errors,
                ),
                self.restore,
            ),
            Route(
                Operation(
                    "POST", f"{_ONE}/accept", "Approve a pending record: it is recalled from now on", "review",
                    "memory:write", (_RECORD,), headers=matched, errors=errors,
                ),
                self.accept,
            ),
            Route(
                Operation(
                    "POST", f"{_ONE}/reject", "Refuse a pending record: it is archived, or forgotten", "review",
                    "memory:write", (rejected, replace(rejected, model=DeletedRecord)), body=Rejection,
                    body_required=False, headers=matched, errors=errors,
                ),
                self.reject,
            ),
            Route(
                Operation(
                    "POST", "/memory/forget", "Forget for good all records that meet a filter", "records",
                    "memory:write", (Answer(200, "How many are gone.", ForgottenRecords),), body=Forgetting,
                ),
                self.forget,
            ),
        ]  # fmt: skip

    async def restore(self, request: web.Request, principal: Principal) -> web.Response:
        """Bring an archived record back into use."""
        scope = self.entrance.owner(request, principal)
        memory = await self.entrance.own_record(request, principal, scope)
        check_match(request, memory)
        try:
            restored = await self.entrance.run(lambda: self.remember.restore(scope, memory.id))
        except (StoreUnavailable, VersionConflict):
            raise
        except StoreError as error:
            raise RequestError(str(error), status=409, code="not_restorable") from error
        if restored is None:
            raise no_record(memory.id)
        return record_answer(restored)

    async def accept(self, request: web.Request, principal: Principal) -> web.Response:
        """Approve a pending record."""
        scope, memory = await self._pending(request, principal)
        sure = max(memory.confidence, self.min_confidence)
        return record_answer(await self._decide(scope, memory, replace(memory, state="active", confidence=sure)))

    async def reject(self, request: web.Request, principal: Principal) -> web.Response:
        """Refuse a pending record."""
        body = await read_body(request, Rejection)
        scope, memory = await self._pending(request, principal)
        if not body.forget:
            return record_answer(await self._decide(scope, memory, replace(memory, state="archived")))
        check = unchanged(self.store, scope, memory)
        count = await self.entrance.run(lambda: self.remember.forget(scope, [memory.id], check=check))
        return shape_answer(DeletedRecord(id=memory.id, forgotten=count))

    async def forget(self, request: web.Request, principal: Principal) -> web.Response:
        """Forget all records that meet a filter."""
        body = await read_body(request, Forgetting)
        scope, every = self.entrance.owners(request, principal, body.user_id, body.agent_id)
        _check_named(body)
        # What all users of the tenant share is no business of a key that may not write it.
        shared = principal.may("shared:write")
        matched, forgotten = await self.entrance.run(lambda: self._forget(scope, body, every=every, shared=shared))
        return shape_answer(ForgottenRecords(forgotten=forgotten, matched=matched, dry_run=body.dry_run))

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────────────────
    async def _pending(self, request: web.Request, principal: Principal) -> tuple[Scope, Memory]:
        scope = self.entrance.owner(request, principal)
        memory = await self.entrance.own_record(request, principal, scope)
        check_match(request, memory)
        if memory.state != "pending":
            raise RequestError(
                f"memory {memory.id} is {memory.state}, not pending: there is nothing to decide",
                status=409,
                code="not_pending",
            )
        return scope, memory

    async def _decide(self, scope: Scope, memory: Memory, decided: Memory) -> Memory:
        def check() -> None:
            unchanged(self.store, scope, memory)()
            check_slot(self.store, scope, memory, decided)

        change = "accepted" if decided.state == "active" else "rejected"
        return await self.entrance.run(
            lambda: self.remember.change(scope, decided, expected_version=memory.version, change=change, check=check)
        )

    def _forget(self, scope: Scope, body: Forgetting, *, every: bool, shared: bool) -> tuple[int, int]:
        meant = self._meant(scope, body, every=every, shared=shared)
        matched = sum(len(ids) for ids in meant.values())
        if body.dry_run:
            return matched, 0
        forgotten = 0
        for agent_id, ids in meant.items():
            owner = replace(scope, agent_id=agent_id)
            for start in range(0, len(ids), _AT_ONCE):
                forgotten += self.remember.forget(owner, ids[start : start + _AT_ONCE])
        if body.takes_all:
            # What a session has noted beside records goes with them.
            agent = None if every else scope.agent_id
            self.remember.forget_notes(scope, session_id=body.session_id, agent_id=agent)
        return matched, forgotten

    def _meant(self, scope: Scope, body: Forgetting, *, every: bool, shared: bool) -> dict[str, list[str]]:
        """The ids that are meant, by the agent that reads them; all are known before the first goes."""
        found: dict[str, list[str]] = defaultdict(list)
        for memory in self._named(scope, body.ids) if body.ids else self._matching(scope, body.filters, every=every):
            if shared or memory.scope != "shared":
                found[memory.agent_id if memory.scope == "agent" else scope.agent_id].append(memory.id)
        return found

    def _named(self, scope: Scope, ids: tuple[str, ...]) -> Iterator[Memory]:
        for memory_id in dict.fromkeys(ids):
            if (memory := self.store.get(scope, memory_id)) is not None:
                yield memory

    def _matching(self, scope: Scope, filters: Filters, *, every: bool) -> Iterator[Memory]:
        cursor: str | None = None
        while True:
            page = self.store.list(scope, filters, limit=_PAGE, cursor=cursor, all_agents=every)
            yield from page.items
            if (cursor := page.next_cursor) is None:
                return


def _check_named(body: Forgetting) -> None:
    if body.ways == 0:
        raise RequestError(
            'the body says nothing about which records: give ids, a field that narrows, or "all": true',
            code="nothing_named",
        )
    if body.ways > 1:
        raise RequestError(
            "the body says in more than one way which records are meant: give ids, or fields that narrow, or all",
            code="ambiguous",
        )
