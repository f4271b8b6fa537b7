"""One call, top to bottom: whose → recall → inject → (the door forwards and relays) → journal → write-back.

In: a dialect's request as bytes and headers. Out: a `Call` whose `body` goes upstream and whose `headers` go back. The
proxied call never fails, waits or changes because of memory: recall has a deadline, journalling a short hold at the
answer's end (`record`), and whatever goes wrong on the way is said in the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from time import perf_counter

import structlog
import uuid_utils

from proxy.auth import Principal
from proxy.call import Call, Prepared
from proxy.errors import RequestError
from proxy.identity import Caller, Headers, identify
from proxy.inject import Block
from proxy.metrics import Metrics
from proxy.observe import Conversation, conversation
from proxy.policy.match import evaluate, request_event
from proxy.policy.rules import PolicySet
from proxy.prepare import Preparation
from proxy.routes import Routes
from proxy.scope import Scope
from proxy.settings import Config
from proxy.wire import chat
from proxy.wire.splice import Edit, JsonText, NotJson, parse

log = structlog.get_logger(__name__)
_SYSTEM = ("system", "developer")


class Pipeline:
    """The way of a call through memory, up to the upstream call.

    Args:
        config: Recall and injection settings.
        preparation: Finds out what a call needs of memory.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
        metrics: Counts.
        threads: Where recall runs.
        routes: Tells where `models:` sends a name.
    """

    def __init__(
        self,
        config: Config,
        preparation: Preparation,
        policies: Callable[[], PolicySet],
        clock: Callable[[], datetime],
        metrics: Metrics,
        threads: ThreadPoolExecutor,
        routes: Routes,
    ) -> None:
        self._routes = routes
        self._deadline_s = config.recall.deadline_ms / 1000
        self._placement: chat.Placement = "user" if config.inject.placement == "user" else "system"
        self._freezes = config.inject.placement == "session"
        self._preparation = preparation
        self._policies = policies
        self._clock = clock
        self._metrics = metrics
        self._threads = threads

    async def begin(
        self,
        data: bytes,
        headers: Headers,
        principal: Principal,
        *,
        default_user: str | None,
        refusal: str | None = None,
    ) -> Call:
        """Work out whose call it is, recall, and place the block.

        Args:
            data: The request's body.
            headers: The request's headers.
            principal: Who asks, as their key tells.
            default_user: The user when the request names none.
            refusal: Why memory must stay out, found by the door; None when it need not.

        Returns:
            The call, ready to be forwarded.

        Raises:
            RequestError: The body is no JSON object (400), or the key is bound to somebody else (403).
        """
        try:
            body = parse(data)
        except NotJson as error:
            raise RequestError(f"{error}; send one JSON object", code="invalid_json") from error
        value = body.value
        caller = identify(
            headers,
            value,
            tenant=principal.tenant or "",
            default_user=principal.user_id or default_user,
            default_agent=principal.agent_id,
        )
        caller = permitted(caller, principal)
        model = value.get("model")
        call = Call(
            id=str(uuid_utils.uuid7()),
            body=data,
            caller=replace(caller, refusal=caller.refusal or refusal),
            at=self._clock(),
            model=model if isinstance(model, str) else "",
            route=self._routes.route(model) if isinstance(model, str) else None,
            stream=value.get("stream") is True,
            has_tools=bool(value.get("tools") or value.get("functions")),
        )
        try:
            call.status = self._admit(call, body)
            if call.status == "ok":
                await self._prepare(call, body)
            placed = self._placed(call, body)
        except Exception as error:
            log.error("memory_failed", error_type=type(error).__name__, request_id=call.id, exc_info=error)
            call.status, call.block, placed = "degraded:memory", Block(), []
        edits = [*placed, *_renamed(call, body)]
        if edits:
            call.body = body.edited(edits)
        self._metrics.memory_status(call.status)
        return call

    def _admit(self, call: Call, body: JsonText) -> str:
        caller = call.caller
        if caller.mode == "off":
            return "off"
        if caller.refusal is not None or caller.scope is None:
            return f"skipped:{caller.refusal or 'no-identity'}"
        messages = chat.messages(body)
        if messages is None:
            return "skipped:no-messages"
        call.talk = conversation(messages)
        dropped_by = self._background(call.talk, caller.scope, call.at)
        return f"skipped:{dropped_by}" if dropped_by else "ok"

    def _background(self, talk: Conversation, scope: Scope, at: datetime) -> str | None:
        """The rule that keeps a chat front end's own call (a title, tags, follow-ups) out of memory."""
        newest = talk.newest_user
        system = "\n".join(message.text for message in talk.messages if message.role in _SYSTEM)
        event = request_event(newest.text if newest else "", system, at, agent_id=scope.agent_id, user_id=scope.user_id)
        found = evaluate(self._policies(), event)
        for one in found.timed_out:
            self._metrics.policy_timed_out(one.pattern)
        return found.dropped_by

    async def _prepare(self, call: Call, body: JsonText) -> None:
        """Recall in a thread; at the deadline, what has arrived is used."""
        assert call.caller.scope is not None
        found = Prepared(call.caller.scope)
        started = perf_counter()
        loop = asyncio.get_running_loop()
        call.prepared = loop.run_in_executor(self._threads, self._preparation.fill, call, found)
        done, _ = await asyncio.wait({call.prepared}, timeout=self._deadline_s)
        call.scope = found.scope if found.session_known else call.caller.scope
        call.block = self._settled(call, found)
        if call.block.text:
            self._metrics.injected(call.block.tokens)
        if done and (error := call.prepared.exception()) is not None:
            log.error("recall_failed", error_type=type(error).__name__, request_id=call.id)
            found.failures.append("recall")
        reasons = ([] if done else ["deadline"]) + found.failures + found.recalled.failures
        if reasons:
            call.status = "degraded:" + ",".join(dict.fromkeys(reasons))
        self._metrics.recall_seconds(perf_counter() - started)

    def _settled(self, call: Call, found: Prepared) -> Block:
        """What goes into the request, of what was found by now."""
        if self._freezes:
            if found.session_known and call.caller.reads:
                call.placed = self._preparation.settle(call, found)
            return call.placed.block if call.placed is not None else Block()
        if found.block is None and (found.recalled.hits or found.recalled.slots):
            return self._preparation.build(call, found.recalled)
        return found.block or Block()

    def _placed(self, call: Call, body: JsonText) -> list[Edit]:
        if call.placed is not None:
            return chat.placed_apart(body, call.placed.system, call.placed.tails, takes_system=call.takes_system)
        at_system = self._placement == "system"
        placement: chat.Placement = self._placement if call.takes_system or not at_system else "first_user"
        return chat.placed(body, call.block.text, placement)


def _renamed(call: Call, body: JsonText) -> list[Edit]:
    """On the same wire the provider reads the client's own bytes, and knows the model by its own name alone."""
    route = call.route
    return [] if route is None or not route.is_same_wire else chat.renamed(body, route.upstream_model)


def permitted(caller: Caller, principal: Principal) -> Caller:
    """What the key allows: nobody else's memory, and reading and writing only as far as it may.

    Args:
        caller: As the request has it.
        principal: As its key has it.

    Returns:
        The caller, with less where the key may less.

    Raises:
        RequestError: 403: the key is bound to another user or agent.
    """
    if caller.scope is None:
        return caller
    principal.check_bounds(caller.scope.user_id, caller.scope.agent_id)
    reads = caller.mode in ("on", "read") and principal.may("memory:read")
    writes = caller.mode in ("on", "write") and principal.may("memory:write")
    if not reads and not writes:
        return replace(caller, refusal=caller.refusal or "not-permitted")
    return replace(caller, mode="on" if reads and writes else "read" if reads else "write")
