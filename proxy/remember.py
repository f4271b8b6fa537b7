"""Write-back: a journalled turn, an event, or an explicit write → memories. It waits: it runs in threads of its own.

In: a `JournalTurn`, an `Event`, or a `Draft` from the API. Out: records in the store, slots in working memory,
`Outcome`s in the ledger. What is written was drafted (`drafting`: policies, wording), planned (`undertaking`: guard,
conflict step, what is to be forgotten), applied in one transaction and read back (`writing`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from proxy import writing
from proxy.conflict import Judge
from proxy.drafting import Drafting
from proxy.extractor import Extractor
from proxy.forgetting import Forgetting
from proxy.language import detect
from proxy.metrics import Metrics
from proxy.notes import Notes
from proxy.plan import Plan, Planner, outcome_of
from proxy.plugs import Embedder, JournalTurn, Store, Transaction, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.recent_vectors import RecentVectors
from proxy.scope import Scope
from proxy.sweeps.restore import restore
from proxy.types import Draft, Event, Memory, Message, Outcome, Source
from proxy.undertaking import Undertaking, Undertakings
from proxy.used import used
from proxy.value import ValueModel
from proxy.writing import Written

_LOCKS = 64


@dataclass(frozen=True, slots=True)
class Helpers:
    """What write-back may use beside the stores; all of it may be missing.

    Args:
        value: The value classifier; None keeps nothing for its worth alone.
        extractor: Asks models; None leaves it to the rules.
        judge: A model's verdict on two texts, for the conflict step.
        zone: `identity.timezone`.
    """

    value: ValueModel | None = None
    extractor: Extractor | None = None
    judge: Callable[[Scope], Judge | None] = lambda _scope: None
    zone: tzinfo = UTC


_ALONE = Helpers()


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
        helpers: What else may be used.
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
        helpers: Helpers = _ALONE,
    ) -> None:
        self._idle_s = idle_s
        self._store = store
        self._policies = policies
        self._count = count_tokens
        self._clock = clock
        self._metrics = metrics
        embedder = RecentVectors(embedder)
        self._planner = Planner(store, embedder, policies, count_tokens, clock, helpers.judge)
        self._drafting = Drafting(store, embedder, helpers.value, helpers.extractor, helpers.zone, metrics)
        self._notes = Notes(working, self._planner.safe_value)
        forgetting = Forgetting(store, embedder, clock)
        self._undertakings = Undertakings(store, self._planner, forgetting, self._notes, policies, clock)
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._sum_up_again: Callable[[Scope], object] = lambda _scope: None

    def on_forgotten(self, sum_up_again: Callable[[Scope], object]) -> None:
        """Name what makes a session's summary anew, after something that was said in it was forgotten."""
        self._sum_up_again = sum_up_again

    def turn(self, turn: JournalTurn) -> tuple[Outcome, ...]:
        """Write the memories of one turn, and close it in the same transaction.

        Args:
            turn: Answered, from the journal.

        Returns:
            The outcomes, as the ledger has them.

        Raises:
            StoreError: Nothing was written; the turn stays in the journal.
        """
        fresh = not self._seen(turn)
        if fresh and _answered(turn) and not turn.recalled:
            # Once for both who ask: whether the answer only echoes them, and which of them it used.
            turn = replace(turn, recalled=tuple(self._store.read(turn.scope, turn.injected)))
        # Outside the lock: a model may be asked, and whoever writes on purpose must not wait for it.
        drafted = self._drafting.turn(turn, self._policies(), fresh=fresh)
        with self.lock(turn.scope):
            # Slots first: writing them again after a failed transaction does no harm, and the ledger has them.
            buried = self._undertakings.buried(turn.scope, [event for _, event in drafted.slots])
            slots = [(slot, event) for slot, event in drafted.slots if event.message_hash not in buried]
            noted = [*drafted.notes, *self._notes.fill(turn.scope, slots)]
            work = self._undertakings.of(turn.scope, drafted, turn)
            # The same question sent again, or answered anew, is no second use.
            written = self._write_turn(turn, work, noted, self._drawn_on(turn) if fresh else [])
        if fresh:
            self._notes.add_steps(turn, [one.memory for one in written if one.memory])
        for choice in work.choices:
            said_in = {one.source.message_hash for one in choice.memories if one.source.message_hash}
            if not choice.request.restore and (said_in or choice.messages):
                self._notes.clear(turn.scope, {*choice.messages, *said_in}, for_good=False)
        for scope in work.summaries:
            self._sum_up_again(scope)
        outcomes = [*noted, *(one.outcome for one in written)]
        for outcome in outcomes:
            self._metrics.written(outcome.action)
        return tuple(outcomes)

    def happened(self, scope: Scope, event: Event, *, policies: PolicySet | None = None) -> tuple[Outcome, ...]:
        """Put an event that no turn brought (a session's end, a schedule) before the policies, and write what comes.

        Args:
            scope: Whose.
            event: What happened.
            policies: The set to go by; the live one by default.

        Returns:
            The outcomes.

        Raises:
            StoreError: Nothing was written.
        """
        drafted = self._drafting.event(scope, event, policies or self._policies())
        with self.lock(scope):
            noted = [*drafted.notes, *self._notes.fill(scope, drafted.slots)]
            work = self._undertakings.of(scope, drafted, None)
            kept, others = self._store.transact(lambda tx: work.apply(tx, scope, self._clock())).result()
            written = [writing.read_back(self._store, scope, plan.memory.source.rule or "", plan) for plan in kept]
        outcomes = [*noted, *(one.outcome for one in written), *others]
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
            The record and its outcome; no record when the policies' rate is reached, or its text was forgotten.

        Raises:
            StoreError: Nothing was written.
        """
        now = self._clock()
        with self.lock(scope):
            if (refusal := self._undertakings.refusal(scope)) is not None:
                return Written(None, Outcome(draft.rule_id, "dropped", None, refusal))
            plan = self._planner.plan(scope, draft, source, valid_from or now, said=draft.content, earlier=[])
            if expires_at is not None:
                plan = replace(plan, memory=replace(plan.memory, expires_at=expires_at))
            kept = self._store.transact(lambda tx: writing.apply(tx, [plan], now)).result()
            if not kept:
                return Written(None, writing.forgotten(source))
            written = writing.read_back(self._store, scope, draft.rule_id, plan)
        self._metrics.written(written.outcome.action)
        return written

    def change(
        self,
        scope: Scope,
        memory: Memory,
        *,
        expected_version: int | None,
        change: str = "updated",
        check: Callable[[], None] = lambda: None,
    ) -> Memory:
        """Replace a record by its next state.

        Args:
            scope: Whose.
            memory: The new state, with `version` still the former one.
            expected_version: The version that the caller read; None to write over any.
            change: Name of the change, for the history.
            check: Called under the user's lock before anything is written; raises what stands against it.

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
        with self.lock(scope):
            check()
            self._store.transact(
                lambda tx: tx.update(following, vector, change=change, expected_version=expected_version)
            ).result()
        return following

    def restore(self, scope: Scope, memory_id: str) -> Memory | None:
        """Bring an archived record back into use.

        Args:
            scope: Whose.
            memory_id: Which.

        Returns:
            The record as it is now; None when there is none to read.

        Raises:
            StoreError: It is not archived, or its slot holds a newer answer.
        """
        with self.lock(scope):
            restored = restore(self._store, scope, memory_id, now=self._clock())
        if restored is not None:
            self._metrics.written("restored")
        return restored

    def forget(self, scope: Scope, memory_ids: Sequence[str], *, check: Callable[[], None] = lambda: None) -> int:
        """Erase records for good, with all that hangs on them (design §4), from both layers.

        Args:
            scope: Whose.
            memory_ids: Which.
            check: As for `change`.

        Returns:
            How many records are gone.

        Raises:
            StoreError: Nothing was erased.
        """
        with self.lock(scope):
            check()
            reached, count = self._store.transact(
                lambda tx: (tx.cascade(scope, memory_ids), tx.forget(scope, memory_ids))
            ).result()
            self._notes.clear(scope, reached.messages, for_good=True, shared=reached.shared)
        self._metrics.written("forgotten")
        # Who forgets a summary does not want it again: those sessions are not named.
        for session_id, agent_id in sorted(reached.sessions):
            self._sum_up_again(Scope(scope.tenant, scope.user_id, agent_id, session_id))
        return count

    def forget_notes(self, scope: Scope, *, session_id: str | None, agent_id: str | None) -> None:
        """Erase what sessions hold beside records: slots, task chains, and what of them stands in requests.

        Args:
            scope: Whose.
            session_id: Of this session only.
            agent_id: Of this agent only.

        Raises:
            StoreError: What stands in requests is still there.
        """
        with self.lock(scope):
            self._store.transact(lambda tx: tx.unfreeze(scope, [], slots=True)).result()
            self._notes.clear_all(scope, session_id=session_id, agent_id=agent_id)

    # ── the parts of a turn ────────────────────────────────────────────────────────────────────────────────────
    def _seen(self, turn: JournalTurn) -> bool:
        """Whether these words were worked on before: in this session, or in one that the client did not name."""
        if self._store.seen(turn.seen_scope, [turn.chain]):
            return True
        # The same words after the same exchange are an old thread sent again, whenever that is; of an opening alone,
        # which may come anew any day, that is only sure for a while.
        since = None if turn.context is not None else turn.at - timedelta(seconds=self._idle_s)
        return turn.implicit and bool(self._store.seen(turn.scope.owner, [turn.chain], since=since))

    def _write_turn(
        self, turn: JournalTurn, work: Undertaking, noted: Sequence[Outcome], drawn_on: Sequence[str]
    ) -> list[Written]:
        messages: list[Message] = [*turn.backfill, *turn.new]

        def commit(tx: Transaction) -> tuple[list[Plan], list[Outcome]]:
            now = self._clock()
            kept, outcomes = work.apply(tx, turn.scope, now)
            if drawn_on:
                tx.touch(turn.scope, drawn_on, now)
            tx.mark_seen(turn.seen_scope, turn.scope.owner, messages)
            if turn.implicit:
                tx.mark_seen(turn.scope.owner, turn.scope.owner, messages)
            told = [*noted, *(outcome_of(plan) for plan in kept), *outcomes]
            tx.journal_done(turn.id, "done", told, worked_on=turn.answered_as)
            return kept, outcomes

        # Nobody's call waits for it.
        kept, outcomes = self._store.transact(commit, patient=True).result()
        read = [writing.read_back(self._store, turn.scope, plan.memory.source.rule or "", plan) for plan in kept]
        return [*read, *(Written(None, outcome) for outcome in outcomes)]

    def _drawn_on(self, turn: JournalTurn) -> list[str]:
        """The injected memories that the answer used."""
        return used(turn.answer.text, turn.user_text, turn.recalled) if turn.answer and _answered(turn) else []

    def lock(self, scope: Scope) -> threading.Lock:
        """What a user's writes follow one another by; whoever else decides upon that user's memories holds it too."""
        return self._locks[hash((scope.tenant, scope.user_id)) % _LOCKS]


def _answered(turn: JournalTurn) -> bool:
    """Whether there is an answer that memories were given for."""
    return bool(turn.injected and turn.answer and turn.answer.status == "complete" and turn.answer.text)
