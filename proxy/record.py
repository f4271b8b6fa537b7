"""While the upstream call runs, and at its end: the journal. Nothing here may hold the call up beyond `HOLD_S`.

In: a `Call` and its `Answer`. Out: a journal turn on disk, handed to the worker; the ledger's first entries.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from proxy import frozen, guard, inject, leftout
from proxy.call import Call, Prepared
from proxy.errors import StoreError, StoreUnavailable
from proxy.metrics import Metrics
from proxy.observe import answer_hash
from proxy.plugs import FROZEN, JournalTurn, Ledger, Store
from proxy.policy.play import LOOKED_BACK, in_play
from proxy.policy.rules import PolicySet
from proxy.prepare import Preparation, trim
from proxy.recall import Hit
from proxy.retrieve import DIGITS
from proxy.scope import Scope
from proxy.types import Answer, Memory, Message, ToolCall

log = structlog.get_logger(__name__)
HOLD_S = 0.045
"""How long an answer's end may be held until its journal entry is on disk."""
_RETRY_S = 1.0
_RETRY_MAX_S = 30.0
_FAILURES_KEPT = 1_000
_MAX_NEW = 100
"""Messages of one call that are worked on, the newest: whatever a client sends at once, others wait for its turn."""
_FORGOTTEN = "what was said was forgotten before the answer came"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that could not be journalled.

    Args:
        ledger: Its account, as far as this process knows it.
        reason: Why.
    """

    ledger: Ledger
    reason: str


class Recorder:
    """Journals calls.

    Args:
        store: Holds the journal and the ledger.
        preparation: Keeps blocks and open sessions.
        policies: Returns the live policy set; its guard stands before the journal.
        placement: `inject.placement`, for the ledger.
        submit: Hands an answered turn to the worker.
        metrics: Counts failures.
        threads: Where guarding runs.
        spawn: Starts a background task that somebody owns.
    """

    def __init__(
        self,
        store: Store,
        preparation: Preparation,
        policies: Callable[[], PolicySet],
        placement: str,
        submit: Callable[[JournalTurn], None],
        metrics: Metrics,
        threads: ThreadPoolExecutor,
        spawn: Callable[[Any], asyncio.Task[Any]],
    ) -> None:
        self._store = store
        self._preparation = preparation
        self._policies = policies
        self._placement = placement
        self._submit = submit
        self._metrics = metrics
        self._threads = threads
        self._spawn = spawn
        self._failures: OrderedDict[str, Failure] = OrderedDict()
        self._ending: set[asyncio.Task[Any]] = set()

    def forwarded(self, call: Call) -> None:
        """The request is on its way: journal what it newly says, meanwhile."""
        if call.prepared is not None:
            call.journalled = self._spawn(self._open(call, call.prepared))

    def _placement_of(self, call: Call) -> str:
        return self._placement if call.takes_system else "user"

    async def complete(self, call: Call, answer: Answer) -> None:
        """The whole answer is here: journal it before its end is relayed, for at most `HOLD_S`.

        What is not on disk by then goes on in the background, and the ledger says ``failed`` until it is.
        """
        if call.journalled is None:
            return
        if call.scope is not None and call.talk is not None and answer.status == "complete":
            self._preparation.link(call.scope, call.talk.answer_link(answer))
        ended = self._end(self._close(call, call.journalled, answer))
        done, _ = await asyncio.wait({ended}, timeout=HOLD_S)
        if not done:
            self._failed(call, TimeoutError(f"not on disk within {HOLD_S * 1000:.0f} ms"))

    def abandon(self, call: Call, answer: Answer) -> None:
        """The client is gone, or the stream broke: hand over what was said so far, without waiting."""
        if call.journalled is not None:
            self._end(self._close(call, call.journalled, answer))

    def void(self, call: Call, reason: str) -> None:
        """The provider did not take the call: nothing of it is remembered, and a retry starts afresh."""
        if call.journalled is not None:
            self._end(self._void(call, call.journalled, reason))

    async def settle(self) -> None:
        """Wait until every call that has ended is in the journal."""
        while self._ending:
            await asyncio.wait(self._ending)

    def _end(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        task = self._spawn(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def failure(self, scope: Scope, request_id: str) -> Failure | None:
        """The account of a call that this process could not journal; None when it could, or the call is another's."""
        found = self._failures.get(request_id)
        return found if found and found.ledger.scope.partition("user") == scope.partition("user") else None

    async def _open(self, call: Call, prepared: asyncio.Future[Prepared]) -> JournalTurn | None:
        try:
            found = await asyncio.shield(prepared)
            loop = asyncio.get_running_loop()
            opened = await loop.run_in_executor(self._threads, self._journal, call, found)
            if opened is None:
                return None
            turn: JournalTurn = await asyncio.wrap_future(opened)
        except Exception as error:  # noqa: BLE001 - the call must not fail with its journal; the ledger says so
            self._failed(call, error)
            return None
        return turn

    def _journal(self, call: Call, found: Prepared) -> Future[JournalTurn] | None:
        assert call.talk is not None
        call.scope = found.scope
        self._preparation.keep(call, found)
        ledger = Ledger(
            id=call.id,
            scope=found.scope,
            at=call.at,
            status=call.status,
            recalled=_accounted(call, found),
            injected={
                "placement": self._placement_of(call),
                "tokens": call.block.tokens,
                "items": list(call.block.items),
                "left_out": [{"id": one, "reason": leftout.BUDGET} for one in call.block.left_out],
                "short": list(call.block.short),
            },
            written_status="queued" if call.caller.writes else "done",
        )
        if not call.caller.writes:
            self._store.ledger_put(ledger)
            return None
        policies, items = self._policies(), set(call.block.items)
        new = tuple(guarded(message, policies) for message in call.talk.new[-_MAX_NEW:])
        newest = call.talk.newest_user
        in_new = next((message.text for message in reversed(new) if message.role == "user"), None)
        user_text = in_new if in_new is not None else guarded(newest, policies).text if newest else ""
        turn = JournalTurn(
            id=call.id,
            scope=found.scope,
            seen_scope=f"{found.scope.owner}/{found.scope.session_id}",
            implicit=call.caller.scope is None or call.caller.scope.session_id is None,
            chain=call.talk.chain,
            at=call.at,
            new=new,
            backfill=tuple(guarded(message, policies) for message in found.backfill),
            context=guarded(call.talk.context, policies) if call.talk.context is not None else None,
            injected=tuple(item for item in call.block.items if not item.startswith("slot:")),
            model=call.model,
            user_text=user_text,
            previous=None if (before := call.talk.asked_before) is None else guarded(before, policies),
            in_play=in_play(
                (message.role, message.text, bool(message.tool_calls)) for message in call.talk.earlier[-LOOKED_BACK:]
            ),
            recalled=_at_hand(found.recalled.hits, items),
        )
        return self._store.journal_open(turn, ledger)

    async def _close(self, call: Call, journalled: asyncio.Task[JournalTurn | None], answer: Answer) -> None:
        turn = await asyncio.shield(journalled)
        if call.scope is None or call.talk is None:
            return
        if answer.status == "complete":
            self._preparation.answered(call.scope, call.talk)
        if turn is None:
            return
        links = [(call.scope, call.talk.answer_link(answer))]
        try:
            safe = guarded_answer(answer, self._policies())
            known = await self._write(call, lambda: self._store.journal_answer(turn.id, call.id, safe, links))
            if not known:
                await self._write(call, lambda: self._store.journal_void(turn.id, call.id, _FORGOTTEN))
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(call, error)
            return
        self._failures.pop(call.id, None)
        if known:
            self._submit(replace(turn, answer=safe, status="answered"))

    async def _void(self, call: Call, journalled: asyncio.Task[JournalTurn | None], reason: str) -> None:
        turn = await asyncio.shield(journalled)
        if turn is None:
            return
        try:
            await self._write(call, lambda: self._store.journal_void(turn.id, call.id, reason))
        except StoreError as error:
            self._failed(call, error)
            return
        self._failures.pop(call.id, None)

    async def _write(self, call: Call, write: Callable[[], Future[T]]) -> T:
        """Write to a turn whose request's part is on disk: while the store is unavailable, again and again, since half
        a turn is worth nothing."""
        pause_s = _RETRY_S
        while True:
            try:
                return await asyncio.wrap_future(write())
            except StoreUnavailable as error:
                self._failed(call, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_MAX_S)

    def _failed(self, call: Call, error: BaseException) -> None:
        log.error("journal_failed", request_id=call.id, error_type=type(error).__name__)
        self._metrics.write_failed(type(error).__name__)
        scope = call.scope or call.caller.scope
        assert scope is not None
        injected = {"placement": self._placement_of(call), "tokens": call.block.tokens, "items": list(call.block.items)}
        ledger = Ledger(call.id, scope, call.at, call.status, injected=injected, written_status="failed")
        self._failures[call.id] = Failure(ledger, str(error))
        trim(self._failures, _FAILURES_KEPT)


def guarded(message: Message, policies: PolicySet) -> Message:
    """A message as the journal may hold it; its hashes stay those of what was said."""
    calls = tuple(_guarded_call(call, policies) for call in message.tool_calls)
    return replace(message, text=_guarded_text(message.text, policies), tool_calls=calls)


def guarded_answer(answer: Answer, policies: PolicySet) -> Answer:
    """An answer as the journal may hold it, with the hash of what was said."""
    calls = tuple(_guarded_call(call, policies) for call in answer.tool_calls)
    return replace(answer, hash=answer_hash(answer), text=_guarded_text(answer.text, policies), tool_calls=calls)


def _guarded_call(call: ToolCall, policies: PolicySet) -> ToolCall:
    return replace(call, arguments=guard.guard(call.arguments, policies.guard_options).text)


def _guarded_text(text: str, policies: PolicySet) -> str:
    """At most `guard.max_chars`, our own block cut out, secrets taken out."""
    own = guard.strip_block(text, inject.OPEN_MARK, inject.CLOSE_MARK)
    return guard.guard(own[: policies.guard.max_chars], policies.guard_options).text


def _at_hand(hits: Sequence[Hit], items: Collection[str]) -> tuple[Memory, ...]:
    """The injected memories, where this call recalled all of them; those of earlier calls must be read."""
    injected = {item for item in items if not item.startswith("slot:")}
    memories = tuple(hit.memory for hit in hits if hit.memory.id in injected)
    return memories if len(memories) == len(injected) else ()


def _accounted(call: Call, found: Prepared) -> tuple[dict[str, Any], ...]:
    """Everything that was recalled, with why it did not get into the request."""
    hits, inside = found.recalled.hits, set(call.block.items)
    begins = found.fresh is None or found.fresh[0] == FROZEN
    worthy = {hit.memory.id for hit in frozen.additions(found.recalled, frozenset(), frozenset(), first=begins)}

    def reason(hit: Hit) -> str | None:
        if hit.left_out is not None or hit.memory.id in inside:
            return hit.left_out
        if call.status.startswith("degraded:"):
            # It came too late, or something went wrong on its way in.
            late = leftout.DEADLINE in call.status.removeprefix("degraded:").split(",")
            return leftout.DEADLINE if late else call.status
        stays = call.placed is None or hit.memory.id in worthy
        return leftout.BUDGET if stays else leftout.BEHIND

    return tuple(_recalled(hit, reason(hit)) for hit in hits)


def _recalled(hit: Hit, left_out: str | None) -> dict[str, Any]:
    return {
        "id": hit.memory.id,
        "score": round(hit.score, DIGITS),
        "parts": hit.parts,
        "left_out": left_out,
    }
