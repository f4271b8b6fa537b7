"""Write-back: one journalled turn, or one explicit write, → memories. It waits, so it runs in the worker's thread.

In: a `JournalTurn`, or a `Draft` from the API. Out: records in the store, slots in working memory, `Outcome`s in the
ledger. Every new memory is planned (`plan`: guard, conflict step), applied in one transaction and read back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from proxy import observe
from proxy.conflict import Decision, normal
from proxy.errors import Forgotten, WorkingMemoryUnavailable
from proxy.language import detect
from proxy.metrics import Metrics
from proxy.plan import Plan, Planner, outcome_of
from proxy.plugs import Embedder, JournalTurn, Store, Transaction, WorkingMemory
from proxy.policy.match import evaluate
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.types import Answer, Draft, Event, Memory, Message, Outcome, Slot, SlotWrite, Source, iso

log = structlog.get_logger(__name__)
_BACKFILL_CONFIDENCE = 0.3
_LOCKS = 64


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one draft.

    Args:
        memory: The record that now holds it; None when it was dropped.
        outcome: For the ledger.
    """

    memory: Memory | None
    outcome: Outcome


class Remember:
    """Writes memories. Thread-safe; one user's writes follow one another, so that the conflict step sees them all.

    Args:
        store: Long-term layer.
        working: Working layer.
        embedder: For stored text.
        policies: Returns the live policy set.
        count_tokens: Tokens of a text.
        clock: Returns now, aware UTC.
        metrics: Counts what was written.
        idle_s: `session.idle_s`.
    """

    def __init__(
        self,
        store: Store,
        working: WorkingMemory,
        embedder: Embedder,
        policies: Callable[[], PolicySet],
        count_tokens: Callable[[str], int],
        clock: Callable[[], datetime],
        metrics: Metrics,
        *,
        idle_s: float = 1800,
    ) -> None:
        self._idle_s = idle_s
        self._store = store
        self._working = working
        self._policies = policies
        self._count = count_tokens
        self._clock = clock
        self._metrics = metrics
        self._planner = Planner(store, embedder, policies, count_tokens, clock)
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def turn(self, turn: JournalTurn) -> tuple[Outcome, ...]:
        """Write the memories of one turn, and close it in the same transaction.

        Args:
            turn: Answered, from the journal.

        Returns:
            The outcomes, as the ledger has them.

        Raises:
            StoreError: Nothing was written; the turn stays in the journal.
        """
        policies = self._policies()
        with self._lock(turn.scope):
            fresh = not self._seen(turn)
            drafts, slots = self._drafts(turn, policies, fresh=fresh)
            # Slots first: writing them again after a failed transaction does no harm, and the ledger has them.
            filled = [*_of_answer(turn.answer), *self._fill_slots(turn.scope, slots)]
            written = self._write(turn, drafts, filled)
        if fresh:
            self._append_steps(turn, written)
        outcomes = [*filled, *(one.outcome for one in written)]
        for outcome in outcomes:
            self._metrics.written(outcome.action)
        return tuple(outcomes)

    def put(
        self,
        scope: Scope,
        draft: Draft,
        source: Source,
        *,
        valid_from: datetime | None = None,
        expires_at: datetime | None = None,
    ) -> Written:
        """Write one memory on purpose (API, tools): the same guard, conflict step and read-back as everything else.

        Args:
            scope: Whose.
            draft: The memory; `rule_id` names the door it came through.
            source: Where it came from.
            valid_from: Since when it holds; now by default.
            expires_at: Until when, to the instant; the draft's `ttl_s` counts when it is None.

        Returns:
            The record and its outcome.

        Raises:
            StoreError: Nothing was written.
        """
        now = self._clock()
        with self._lock(scope):
            plan = self._planner.plan(scope, draft, source, valid_from or now, said=draft.content, earlier=[])
            if expires_at is not None:
                plan = replace(plan, memory=replace(plan.memory, expires_at=expires_at))
            self._store.transact(lambda tx: self._apply(tx, [plan])).result()
            written = self._read_back(scope, draft.rule_id, plan)
        self._metrics.written(written.outcome.action)
        return written

    def change(self, scope: Scope, memory: Memory, *, expected_version: int | None, change: str = "updated") -> Memory:
        """Replace a record by its next state.

        Args:
            scope: Whose.
            memory: The new state, with `version` still the former one.
            expected_version: The version that the caller read; None to write over any.
            change: Name of the change, for the history.

        Returns:
            The record as stored.

        Raises:
            VersionConflict: It changed meanwhile.
            StoreError: Nothing was written.
        """
        safe = self._planner.safe(memory.content)
        former = self._store.get(scope, memory.id)
        # Another text is a new thing to approve, whatever was approved before.
        rewritten = former is None or former.content != safe
        following = replace(
            memory,
            content=safe,
            state="pending" if rewritten and self._planner.quarantined(safe) else memory.state,
            language=detect(safe),
            token_estimate=self._count(safe),
            version=memory.version + 1,
            updated_at=self._clock(),
        )
        vector = self._planner.vector(safe)
        with self._lock(scope):
            self._store.transact(
                lambda tx: tx.update(following, vector, change=change, expected_version=expected_version)
            ).result()
        return following

    def forget(self, scope: Scope, memory_ids: Sequence[str]) -> int:
        """Erase records for good, with all that hangs on them (design §4), from both layers.

        Args:
            scope: Whose.
            memory_ids: Which.

        Returns:
            How many records are gone.

        Raises:
            StoreError: Nothing was erased.
        """
        with self._lock(scope):
            versions = [one.memory for memory_id in memory_ids for one in self._store.history(scope, memory_id)]
            hashes = {memory.source.message_hash for memory in versions if memory.source.message_hash}
            count = self._store.transact(lambda tx: tx.forget(scope, memory_ids)).result()
            try:
                self._working.forget(scope, hashes)
                self._working.rewrite()
            except WorkingMemoryUnavailable as error:
                # What is left there is bound to its TTL; the long-term layer, the source of truth, is clean.
                log.warning("working_memory_not_cleared", error_type=type(error).__name__)
        self._metrics.written("forgotten")
        return count

    def _seen(self, turn: JournalTurn) -> bool:
        """Whether these words were worked on before: in this session, or in one that the client did not name."""
        if self._store.seen(turn.seen_scope, [turn.chain]):
            return True
        since = turn.at - timedelta(seconds=self._idle_s)
        return turn.implicit and bool(self._store.seen(turn.scope.owner, [turn.chain], since=since))

    # ── drafts ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _drafts(
        self, turn: JournalTurn, policies: PolicySet, *, fresh: bool
    ) -> tuple[list[tuple[Draft, Event]], list[tuple[SlotWrite, Event]]]:
        info = self._store.session(turn.scope)
        happened = observe.events(
            turn.new if fresh else (),
            turn.context,
            turn.answer,
            at=turn.at,
            user_id=turn.scope.user_id,
            agent_id=turn.scope.agent_id,
            turn=info.turns if info else 1,
            user_text=turn.user_text,
        )
        drafts: list[tuple[Draft, Event]] = []
        slots: list[tuple[SlotWrite, Event]] = []
        for event in self._backfill_events(turn) if fresh else ():
            found = evaluate(policies, event)
            drafts += [
                (replace(draft, confidence=min(draft.confidence, _BACKFILL_CONFIDENCE)), event)
                for draft in found.drafts
                if draft.kind == "turn"
            ]
        echoes: frozenset[str] | None = None
        for event in happened:
            found = evaluate(policies, event)
            if found.drafts and event.role != "user" and echoes is None:
                echoes = self._injected_texts(turn)
            drafts += [(draft, event) for draft in found.drafts if not _is_echo(event, draft, echoes or frozenset())]
            if found.slots and not self._is_forgotten(turn.scope, event.message_hash):
                slots += [(slot, event) for slot in found.slots]
        return drafts, slots

    def _backfill_events(self, turn: JournalTurn) -> Iterable[Event]:
        users = [message for message in turn.backfill if message.role == "user"]
        return observe.events(
            users,
            None,
            None,
            at=turn.at,
            user_id=turn.scope.user_id,
            agent_id=turn.scope.agent_id,
            turn=0,
            user_text="",
        )

    def _injected_texts(self, turn: JournalTurn) -> frozenset[str]:
        found = (self._store.get(turn.scope, memory_id) for memory_id in turn.injected)
        return frozenset(normal(memory.content) for memory in found if memory is not None)

    def _of_replaced_answer(self, turn: JournalTurn) -> list[Memory]:
        if turn.replaces is None or (turn.answer and observe.answer_hash(turn.answer) == turn.replaces):
            return []
        return list(self._store.from_message(turn.scope, turn.replaces))

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────
    def _write(
        self, turn: JournalTurn, drafts: Sequence[tuple[Draft, Event]], filled: Sequence[Outcome]
    ) -> list[Written]:
        gone = self._of_replaced_answer(turn)
        plans: list[Plan] = []
        refused: list[Written] = []
        for draft, event in drafts:
            source = Source(
                role=event.role,
                session=turn.scope.session_id,
                request=turn.id,
                message_hash=event.message_hash,
                tool=event.tool or None,
                rule=draft.rule_id,
                policy_hash=draft.policy_hash,
            )
            if self._is_forgotten(turn.scope, source.message_hash):
                refused.append(Written(None, _forgotten(source)))
                continue
            plans.append(
                self._planner.plan(turn.scope, draft, source, turn.at, said=event.text, earlier=plans, without=gone)
            )
        messages: list[Message] = [*turn.backfill, *turn.new]

        def work(tx: Transaction) -> list[Plan]:
            now = self._clock()
            for old in gone:
                tx.update(replace(old, state="archived", updated_at=now), None, change="answer replaced")
            kept = self._apply(tx, plans)
            tx.mark_seen(turn.seen_scope, turn.scope.owner, messages)
            if turn.implicit:
                tx.mark_seen(turn.scope.owner, turn.scope.owner, messages)
            stored = {plan.memory.id for plan in kept}
            outcomes = [
                outcome_of(plan) if plan.memory.id in stored else _forgotten(plan.memory.source) for plan in plans
            ]
            tx.journal_done(turn.id, "done", [*filled, *outcomes, *(one.outcome for one in refused)])
            return kept

        kept = self._store.transact(work).result()
        stored = {plan.memory.id for plan in kept}
        refused += [Written(None, _forgotten(plan.memory.source)) for plan in plans if plan.memory.id not in stored]
        return [self._read_back(turn.scope, plan.memory.source.rule or "", plan) for plan in kept] + refused

    def _is_forgotten(self, scope: Scope, message_hash: str | None) -> bool:
        """Whether a tombstone covers what was made from this message."""
        return message_hash is not None and self._store.is_forgotten(scope, message_hash)

    def _apply(self, tx: Transaction, plans: Sequence[Plan]) -> list[Plan]:
        """Write the plans; those whose text was forgotten are left out, and the others go on.

        Returns:
            What was written or merged.
        """
        kept: list[Plan] = []
        refused: set[str] = set()
        for plan in plans:
            target = plan.decision.target
            # What would join or replace a memory of this very turn that was refused stands alone, or goes with it.
            alone = target is not None and target.id in refused
            try:
                if plan.decision.action == "supersede" and target is not None and not alone:
                    tx.supersede(target, plan.memory, plan.vector)
                elif plan.decision.action != "merge" or alone:
                    tx.insert(plan.memory, plan.vector)
            except Forgotten:
                refused.add(plan.memory.id)
                continue
            kept.append(replace(plan, decision=Decision("create", None, "new")) if alone else plan)
        return kept

    def _read_back(self, scope: Scope, rule_id: str, plan: Plan) -> Written:
        """A write counts when it can be read (trap 36)."""
        wanted = plan.decision.target if plan.decision.action == "merge" else plan.memory
        stored = self._store.get(scope, wanted.id) if wanted else None
        if stored is None or (plan.decision.action != "merge" and stored.content != plan.memory.content):
            log.error("write_not_read_back", rule_id=rule_id)
            return Written(None, Outcome(rule_id, "failed", None, "the record could not be read back"))
        return Written(stored, replace(outcome_of(plan), rule_id=rule_id))

    def _fill_slots(self, scope: Scope, slots: Sequence[tuple[SlotWrite, Event]]) -> list[Outcome]:
        if not slots:
            return []
        filled = [
            Slot(one.name, self._planner.safe_value(one.value), event.at, one.rule_id, event.message_hash)
            for one, event in slots
        ]
        ttl_s = next((one.ttl_s for one, _ in slots if one.ttl_s is not None), None)
        try:
            self._working.put(scope, filled, ttl_s=ttl_s)
        except WorkingMemoryUnavailable as error:
            return [Outcome(one.rule_id, "failed", one.name, str(error)) for one, _ in slots]
        return [Outcome(one.rule_id, "slot", one.name, "filled") for one, _ in slots]

    def _append_steps(self, turn: JournalTurn, written: Sequence[Written]) -> None:
        """The task chain: which tools ran, how they ended, and which memories came of it."""
        made = {one.memory.source.message_hash: one.memory.id for one in written if one.memory}
        calls = {call.id: call for call in (turn.context.tool_calls if turn.context else ())}
        try:
            for message in turn.new:
                if message.role == "tool":
                    call = calls.get(message.tool_call_id or "")
                    step = {
                        "tool": call.name if call else message.name,
                        "tool_call_id": message.tool_call_id,
                        "status": observe.tool_status(message.text, observe.parsed(message.text)),
                        "request_id": turn.id,
                        "memory_id": made.get(message.hash),
                        "message_hash": message.hash,
                        "at": iso(turn.at),
                    }
                    self._working.append_step(turn.scope, step)
        except WorkingMemoryUnavailable as error:
            log.warning("task_chain_not_kept", error_type=type(error).__name__)

    def _lock(self, scope: Scope) -> threading.Lock:
        return self._locks[hash((scope.tenant, scope.user_id)) % _LOCKS]


def _of_answer(answer: Answer | None) -> list[Outcome]:
    """The ledger says when an answer was not whole: nothing is then remembered of it."""
    reasons = {
        "aborted": "the answer was cut short: the client went away, or the provider broke off",
        "failed": "the provider reported an error in its answer",
    }
    if answer is None or answer.status not in reasons:
        return []
    return [Outcome("", answer.status, None, reasons[answer.status])]


def _forgotten(source: Source) -> Outcome:
    return Outcome(source.rule or "", "dropped", None, "it was forgotten")


def _is_echo(event: Event, draft: Draft, injected: frozenset[str]) -> bool:
    """Whether a draft only says again what was recalled (traps 13, 14); a user's own words are never an echo."""
    if event.role == "user" or not injected:
        return False
    said = normal(draft.content)
    return any(text in said or said in text for text in injected if text)
