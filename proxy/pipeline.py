"""One call, top to bottom: whose → recall → inject → (the door forwards and relays) → journal → write-back.

In: a dialect's request as bytes and headers. Out: a `Call` whose `body` goes upstream and whose `headers` go back. The
proxied call never fails, waits or changes because of memory: recall has a deadline, journalling has a short hold at the
answer's end, and whatever goes wrong on the way is said in the status.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import perf_counter
from typing import Any

import orjson
import structlog
import uuid_utils

from proxy import guard, inject
from proxy.errors import RequestError, StoreError, WorkingMemoryUnavailable
from proxy.identity import Caller, Headers, identify
from proxy.inject import Block, Item
from proxy.language import detect
from proxy.metrics import Metrics
from proxy.observe import Conversation, answer_hash, conversation, question
from proxy.plugs import JournalTurn, Ledger, Store, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.policy.match import evaluate, request_event
from proxy.recall import Question, Recall, Recalled
from proxy.scope import Scope
from proxy.settings import Config
from proxy.store.session_keys import cache_name
from proxy.tokens import TokenCounter, count_for, window
from proxy.types import Answer, Message, ToolCall
from proxy.wire import chat
from proxy.wire.splice import JsonText, NotJson, parse

log = structlog.get_logger(__name__)
HOLD_S = 0.05
"""How long an answer's end may be held until its journal entry is on disk."""
_BLOCK_TTL_S = 3_600.0
_MAX_BACKFILL = 200
_FAILURES_KEPT = 1_000
_UNANSWERED_KEPT = 10_000


@dataclass(slots=True)
class Call:
    """One proxied call on its way through the house.

    Args:
        id: Request id.
        body: What goes upstream.
        caller: Whose call it is.
        status: For ``X-Memory-Status``.
        model: As the client named it.
        stream: Whether the client asked for a stream.
        at: When it came.
        talk: Its conversation; None when its messages cannot be read.
        scope: Whose, with its session; None while memory stays out.
        block: What was injected.
    """

    id: str
    body: bytes
    caller: Caller
    at: datetime
    status: str = "ok"
    model: str = ""
    stream: bool = False
    talk: Conversation | None = None
    scope: Scope | None = None
    block: Block = field(default_factory=Block)
    prepared: asyncio.Future[_Prepared] | None = None
    journalled: asyncio.Task[JournalTurn | None] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What is said about memory in the response."""
        said = {
            "X-Memory-Request-Id": self.id,
            "X-Memory-Status": self.status,
            "X-Memory-Injected": str(len(self.block.items)),
            "X-Memory-Tokens": str(self.block.tokens),
        }
        if self.scope is not None and self.scope.session_id is not None:
            said["X-Memory-Session"] = self.scope.session_id
        return said


@dataclass(slots=True)
class _Prepared:
    """What the recall thread finds out, filled as it goes.

    Args:
        scope: With its session, once that is known.
        backfill: Earlier messages not seen before.
        recalled: Hits and slots.
        block: The finished block; None while recall is not done.
        reused: The block is the one this tool loop began with.
        failures: Layers that failed besides those in `recalled`.
    """

    scope: Scope
    backfill: tuple[Message, ...] = ()
    recalled: Recalled = field(default_factory=Recalled)
    block: Block | None = None
    reused: bool = False
    failures: list[str] = field(default_factory=list)
    session_known: bool = False


class Pipeline:
    """The way of a call through memory.

    Args:
        config: Recall and injection settings.
        store: Long-term layer.
        working: Working layer.
        recall: Looks memories up.
        policies: Returns the live policy set.
        tokens: Counts tokens.
        submit: Hands an answered turn to the worker, from any thread.
        clock: Returns now, aware UTC.
        metrics: Counts.
        threads: Where recall and journalling run.
    """

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        working: WorkingMemory,
        recall: Recall,
        policies: Callable[[], PolicySet],
        tokens: TokenCounter,
        submit: Callable[[JournalTurn], None],
        clock: Callable[[], datetime],
        metrics: Metrics,
        threads: ThreadPoolExecutor,
        spawn: Callable[[Any], asyncio.Task[Any]],
    ) -> None:
        self._config = config
        self._store = store
        self._working = working
        self._recall = recall
        self._policies = policies
        self._tokens = tokens
        self._submit = submit
        self._clock = clock
        self._metrics = metrics
        self._threads = threads
        self._spawn = spawn
        self._failures: OrderedDict[str, str] = OrderedDict()
        # Sessions of calls that have no whole answer yet: a retry belongs to them, a new thread with the same words
        # does not.
        self._unanswered: OrderedDict[tuple[str, str], str] = OrderedDict()

    # ── before the upstream call ───────────────────────────────────────────────────────────────────────────────
    async def begin(self, data: bytes, headers: Headers, *, tenant: str, refusal: str | None = None) -> Call:
        """Work out whose call it is, recall, and place the block.

        Args:
            data: The request's body.
            headers: The request's headers.
            tenant: The tenant its key belongs to.
            refusal: Why memory must stay out, found by the door; None when it need not.

        Returns:
            The call, ready to be forwarded.

        Raises:
            RequestError: The body is no JSON object.
        """
        try:
            body = parse(data)
        except NotJson as error:
            raise RequestError(f"{error}; send one JSON object", code="invalid_json") from error
        value = body.value
        caller = identify(headers, value, tenant=tenant, default_user=self._config.identity.default_user)
        model = value.get("model")
        call = Call(
            id=str(uuid_utils.uuid7()),
            body=data,
            caller=replace(caller, refusal=caller.refusal or refusal),
            at=self._clock(),
            model=model if isinstance(model, str) else "",
            stream=value.get("stream") is True,
        )
        call.status = self._admit(call, body)
        if call.status == "ok":
            await self._prepare(call, body)
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
        newest = talk.newest_user
        system = "\n".join(message.text for message in talk.messages if message.role in ("system", "developer"))
        user = newest.text if newest else ""
        event = request_event(user, system, at, agent_id=scope.agent_id, user_id=scope.user_id)
        return evaluate(self._policies(), event).dropped_by

    async def _prepare(self, call: Call, body: JsonText) -> None:
        assert call.caller.scope is not None
        assert call.talk is not None
        found = _Prepared(call.caller.scope)
        started = perf_counter()
        loop = asyncio.get_running_loop()
        call.prepared = loop.run_in_executor(self._threads, self._find, call, found)
        done, _ = await asyncio.wait({call.prepared}, timeout=self._config.recall.deadline_ms / 1000)
        late = not done
        if done and (error := call.prepared.exception()) is not None:
            log.error("recall_failed", error_type=type(error).__name__, request_id=call.id)
            found.failures.append("recall")
        call.scope = found.scope if found.session_known else call.caller.scope
        block = found.block
        if block is None and call.caller.reads and (found.recalled.hits or found.recalled.slots):
            block = self._build(call, found.recalled)
        if block is not None and block.text:
            call.body = chat.place(body, block.text, self._placement())
            call.block = block
        reasons = (["deadline"] if late else []) + found.failures + found.recalled.failures
        if reasons:
            call.status = "degraded:" + ",".join(dict.fromkeys(reasons))
        self._metrics.recall_seconds(perf_counter() - started)

    def _placement(self) -> chat.Placement:
        return "user" if self._config.inject.placement == "user" else "system"

    # ── in the recall thread ───────────────────────────────────────────────────────────────────────────────────
    def _find(self, call: Call, found: _Prepared) -> _Prepared:
        assert call.talk is not None
        try:
            self._find_session(call, found)
        except StoreError:
            found.failures.append("store")
        if not call.caller.reads:
            return found
        text = question(call.talk)
        if text is None:
            self._same_block(call, found)
        else:
            in_request = frozenset(message.hash for message in call.talk.messages)
            self._recall.fill(found.recalled, found.scope, Question(text, call.at, in_request), self._policies())
            found.block = self._build(call, found.recalled)
        return found

    def _find_session(self, call: Call, found: _Prepared) -> None:
        """The session that the request names, or the one in which its last assistant message was relayed."""
        assert call.talk is not None
        talk, scope = call.talk, found.scope
        link = talk.link
        linked = self._store.session_of(scope, link) if link is not None else None
        if scope.session_id is None:
            known = linked or self._unanswered.get(_retry_key(scope, talk))
            found.scope = scope.in_session(known or str(uuid_utils.uuid7()))
        self._unanswered[_retry_key(scope, talk)] = found.scope.session_id or ""
        found.session_known = True
        if talk.earlier and linked is None and call.caller.writes:
            earlier = talk.earlier[-_MAX_BACKFILL:]
            seen = self._store.seen_content(scope.owner, [message.hash for message in earlier])
            found.backfill = tuple(message for message in earlier if message.hash not in seen)

    def _same_block(self, call: Call, found: _Prepared) -> None:
        """In a tool loop nothing new is said to the model: it gets the block that the loop began with, byte for byte."""
        try:
            kept = self._working.cache_get(_block_key(found.scope, call))
        except WorkingMemoryUnavailable:
            found.failures.append("working-memory")
            return
        if kept is not None:
            text, tokens, items = orjson.loads(kept)
            found.block, found.reused = Block(text, tokens, tuple(items)), True

    def _build(self, call: Call, recalled: Recalled) -> Block:
        limit = self._config.recall.quotas.limit("working")
        slots = sorted(recalled.slots.values(), key=lambda slot: slot.updated_at, reverse=True)[:limit]
        items = [Item(f"slot:{slot.name}", "working", f"{slot.name}: {_shown(slot.value)}") for slot in slots]
        items += [
            Item(
                hit.memory.id,
                hit.memory.kind,
                hit.memory.content,
                hit.memory.valid_from,
                recalled.replaced.get(hit.memory.id),
            )
            for hit in recalled.hits
            if hit.left_out is None
        ]
        newest = call.talk.newest_user if call.talk else None
        return inject.build(
            items,
            budget_tokens=self._budget(call),
            count=lambda text: count_for(call.model, self._tokens.count(text)),
            language=detect(newest.text if newest else ""),
            max_item_chars=self._config.inject.max_item_chars,
        )

    def _budget(self, call: Call) -> int:
        budget = self._config.inject.budget_tokens
        if call.caller.budget_tokens is not None:
            budget = min(budget, call.caller.budget_tokens)
        limit = window(call.model)
        if limit is not None:
            # Two bytes are hardly ever more than a token: what is left of the window is at least about this.
            room = limit - len(call.body) // 2
            budget = min(budget, int(limit * self._config.inject.share_of_context), max(room, 0))
        return budget

    # ── while the upstream call runs ───────────────────────────────────────────────────────────────────────────
    def forwarded(self, call: Call) -> None:
        """The request is on its way: journal what it newly says, meanwhile."""
        if call.prepared is not None:
            call.journalled = self._spawn(self._open_journal(call))

    async def _open_journal(self, call: Call) -> JournalTurn | None:
        assert call.prepared is not None
        try:
            found = await asyncio.shield(call.prepared)
            loop = asyncio.get_running_loop()
            opened = await loop.run_in_executor(self._threads, self._journal, call, found)
            return None if opened is None else await asyncio.wrap_future(opened)
        except Exception as error:  # noqa: BLE001 - the call must not fail with its journal; the ledger says so
            self._failed(call.id, error)
            return None

    def _journal(self, call: Call, found: _Prepared) -> Future[JournalTurn] | None:
        assert call.talk is not None
        call.scope = found.scope
        if not found.reused and found.block is not None and found.block.text and call.talk.newest_user is not None:
            self._keep_block(call, found)
        ledger = Ledger(
            id=call.id,
            scope=found.scope,
            at=call.at,
            status=call.status,
            recalled=tuple(_recalled_entry(hit) for hit in found.recalled.hits),
            injected={
                "placement": self._placement(),
                "tokens": call.block.tokens,
                "items": list(call.block.items),
                "left_out": [{"id": one, "reason": "budget"} for one in call.block.left_out],
            },
            written_status="queued" if call.caller.writes else "done",
        )
        if not call.caller.writes:
            self._store.ledger_put(ledger)
            return None
        newest, policies = call.talk.newest_user, self._policies()
        turn = JournalTurn(
            id=call.id,
            scope=found.scope,
            seen_scope=f"{found.scope.owner}/{found.scope.session_id}",
            implicit=call.caller.scope is None or call.caller.scope.session_id is None,
            chain=call.talk.chain,
            at=call.at,
            new=tuple(_guarded(message, policies) for message in call.talk.new),
            backfill=tuple(_guarded(message, policies) for message in found.backfill),
            context=_guarded(call.talk.context, policies) if call.talk.context is not None else None,
            injected=tuple(item for item in call.block.items if not item.startswith("slot:")),
            model=call.model,
            user_text=_guarded(newest, policies).text if newest else "",
        )
        return self._store.journal_open(turn, ledger)

    def _keep_block(self, call: Call, found: _Prepared) -> None:
        assert found.block is not None
        value = orjson.dumps([found.block.text, found.block.tokens, list(found.block.items)])
        try:
            self._working.cache_put(_block_key(found.scope, call), value, _BLOCK_TTL_S)
        except WorkingMemoryUnavailable:
            log.warning("block_not_kept", request_id=call.id)

    # ── at the answer's end ────────────────────────────────────────────────────────────────────────────────────
    async def complete(self, call: Call, answer: Answer) -> None:
        """The whole answer is here: journal it before its end is relayed, for at most `HOLD_S`.

        What is not on disk by then goes on in the background, and the ledger says ``failed`` until it is.
        """
        if call.journalled is None:
            return
        ended = self._spawn(self._close_journal(call, answer))
        done, _ = await asyncio.wait({ended}, timeout=HOLD_S)
        if not done:
            self._failed(call.id, TimeoutError(f"not on disk within {HOLD_S * 1000:.0f} ms"))

    def abandon(self, call: Call, answer: Answer) -> None:
        """The client is gone, or the stream broke: hand over what was said so far, without waiting."""
        if call.journalled is not None:
            self._spawn(self._close_journal(call, answer))

    def void(self, call: Call, reason: str) -> None:
        """The provider did not take the call: nothing of it is remembered, and a retry starts afresh."""
        if call.journalled is not None:
            self._spawn(self._void_journal(call, reason))

    async def _close_journal(self, call: Call, answer: Answer) -> None:
        assert call.journalled is not None
        assert call.talk is not None
        turn = await asyncio.shield(call.journalled)
        if turn is None or call.scope is None:
            return
        safe = _guarded_answer(answer, self._policies())
        links = [(call.scope, call.talk.answer_link(answer))]
        if answer.status == "complete":
            self._unanswered.pop(_retry_key(call.scope, call.talk), None)
        trim(self._unanswered, _UNANSWERED_KEPT)
        try:
            await asyncio.wrap_future(self._store.journal_answer(turn.id, safe, links))
        except StoreError as error:
            self._failed(call.id, error)
            return
        self._failures.pop(call.id, None)
        self._submit(replace(turn, answer=safe, status="answered"))

    async def _void_journal(self, call: Call, reason: str) -> None:
        assert call.journalled is not None
        turn = await asyncio.shield(call.journalled)
        if turn is None or turn.id != call.id:
            return
        try:
            await asyncio.wrap_future(self._store.journal_void(turn.id, reason))
        except StoreError as error:
            self._failed(call.id, error)

    # ── failures, for the ledger ───────────────────────────────────────────────────────────────────────────────
    def _failed(self, request_id: str, error: BaseException) -> None:
        log.error("journal_failed", request_id=request_id, error_type=type(error).__name__)
        self._metrics.write_failed(type(error).__name__)
        self._failures[request_id] = str(error)
        trim(self._failures, _FAILURES_KEPT)

    def failure(self, request_id: str) -> str | None:
        """Why a call of this process could not be journalled; None when it could."""
        return self._failures.get(request_id)


def _retry_key(scope: Scope, talk: Conversation) -> tuple[str, str]:
    return scope.owner, talk.chain


def trim(entries: OrderedDict[Any, Any], keep: int) -> None:
    """Drop the oldest entries past `keep`."""
    while len(entries) > keep:
        entries.popitem(last=False)


def _block_key(scope: Scope, call: Call) -> str:
    newest = call.talk.newest_user if call.talk else None
    return cache_name(scope, f"block:{scope.session_id}:{newest.chain if newest else ''}")


def _guarded(message: Message, policies: PolicySet) -> Message:
    calls = tuple(_guarded_call(call, policies) for call in message.tool_calls)
    return replace(message, text=_guarded_text(message.text, policies), tool_calls=calls)


def _guarded_answer(answer: Answer, policies: PolicySet) -> Answer:
    calls = tuple(_guarded_call(call, policies) for call in answer.tool_calls)
    return replace(answer, hash=answer_hash(answer), text=_guarded_text(answer.text, policies), tool_calls=calls)


def _guarded_call(call: ToolCall, policies: PolicySet) -> ToolCall:
    return replace(call, arguments=guard.guard(call.arguments, policies.guard_options).text)


def _guarded_text(text: str, policies: PolicySet) -> str:
    """What the journal may hold: at most `guard.max_chars`, our own block cut out, secrets taken out."""
    own = guard.strip_block(text, inject.OPEN_MARK, inject.CLOSE_MARK)
    return guard.guard(own[: policies.guard.max_chars], policies.guard_options).text


def _recalled_entry(hit: Any) -> dict[str, Any]:
    parts = {key: value for key, value in hit.parts.items() if key not in ("row", "score")}
    return {"id": hit.memory.id, "score": hit.score, "parts": parts, "left_out": hit.left_out}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
