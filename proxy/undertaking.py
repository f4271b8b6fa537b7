"""What was drafted, made into one transaction's worth of writing: planned memories, what is to be forgotten, what not
to be written at all.

In: `Drafted`, and whose it is. Out: `Undertaking`, which knows how to carry itself out. The caller holds the user's
lock: what is planned stands until it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from proxy import forgetting, observe, writing
from proxy.allotment import Allotment
from proxy.chain import parent_of
from proxy.drafting import Drafted
from proxy.forgetting import Choice, Forgetting, Spoken
from proxy.notes import Notes
from proxy.plan import Plan, Planner, outcome_of
from proxy.plugs import JournalTurn, Store, Transaction
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.types import Draft, Event, Memory, Outcome, Source


@dataclass(slots=True)
class Undertaking:
    """One transaction's worth of writing.

    Args:
        plans: To be applied.
        choices: What was asked to be forgotten or restored.
        replaced: The memories of an answer that another one has replaced.
        refused: Drafts that are not written, with the reason.
    """

    plans: list[Plan] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    replaced: list[Memory] = field(default_factory=list)
    refused: list[Outcome] = field(default_factory=list)

    @property
    def summaries(self) -> set[Scope]:
        """The sessions whose summaries are put away, since they repeat what was asked to be forgotten."""
        return {
            Scope(one.tenant, one.user_id, one.agent_id, one.session_id)
            for choice in self.choices
            for one in choice.memories
            if one.kind == "summary" and not choice.request.restore
        }

    def apply(self, tx: Transaction, scope: Scope, now: datetime) -> tuple[list[Plan], list[Outcome]]:
        """Carry it out.

        Args:
            tx: The transaction.
            scope: Whose.
            now: The present time.

        Returns:
            The plans that were carried out, and the outcomes of all else.
        """
        for old in self.replaced:
            tx.update(replace(old, state="archived", updated_at=now), None, change="answer replaced")
        chosen = [one for choice in self.choices for one in forgetting.apply(tx, scope, choice, now)]
        kept = writing.apply(tx, self.plans, now)
        stored = {plan.memory.id for plan in kept}
        lost = [writing.forgotten(plan.memory.source) for plan in self.plans if plan.memory.id not in stored]
        return kept, [*chosen, *self.refused, *lost]


class Undertakings:
    """Makes them. Thread-safe, one user's lock at a time.

    Args:
        store: Long-term layer.
        planner: Guards a draft and finds what it stands against.
        forgetting: Finds what is meant to be forgotten.
        notes: Of the session: which calls led to which.
        policies: Returns the live policy set; its guard has the rates.
        clock: Returns now, aware UTC.
    """

    def __init__(
        self,
        store: Store,
        planner: Planner,
        forgetting: Forgetting,
        notes: Notes,
        policies: Callable[[], PolicySet],
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._planner = planner
        self._forgetting = forgetting
        self._notes = notes
        self._policies = policies
        self._clock = clock
        self._allotment = Allotment()

    def of(self, scope: Scope, drafted: Drafted, turn: JournalTurn | None) -> Undertaking:
        """What is to be done about what was drafted.

        Args:
            scope: Whose.
            drafted: From one turn, or one event.
            turn: The turn, if it was one.
        """
        work = Undertaking()
        if turn is not None:
            work.choices, work.replaced = self._choices(scope, drafted, turn), self._replaced(turn)
        gone = {one.id for one in work.replaced}
        gone |= {one.id for choice in work.choices if not choice.request.restore for one in choice.memories}
        asked_in = {event.message_hash for _, event in drafted.forgets}
        steps = self._notes.steps(scope) if any(draft.link_parent for draft, _ in drafted.drafts) else ()
        buried = self.buried(scope, [event for _, event in drafted.drafts])
        made: list[tuple[Event, str]] = []
        for draft, event in drafted.drafts:
            source = _source(scope, draft, event, turn)
            if event.message_hash in buried:
                work.refused.append(writing.forgotten(source))
                continue
            if _silenced(work.choices, draft, event, asked_in):
                continue
            if (refusal := self.refusal(scope)) is not None:
                work.refused.append(Outcome(draft.rule_id, "dropped", None, refusal))
                continue
            plan = self._planner.plan(
                scope,
                draft,
                source,
                event.at,
                said=event.text,
                earlier=work.plans,
                without=gone,
                parent_id=parent_of(draft, event, steps, made),
            )
            work.plans.append(plan)
            if event.type == "tool_result":
                made.append((event, outcome_of(plan).memory_id or plan.memory.id))
        return work

    def buried(self, scope: Scope, events: Sequence[Event]) -> set[str]:
        """The messages of these events that a tombstone covers; each is looked up once, whatever was made of it."""
        hashes = {event.message_hash for event in events if event.message_hash is not None}
        return {one for one in hashes if self._store.is_forgotten(scope, one)}

    def refusal(self, scope: Scope) -> str | None:
        """Why one more memory of this user's must not be written now, or None; then it is counted."""
        rate = self._policies().guard.rate
        owner = scope.partition("user")
        return self._allotment.refusal(owner, rate, self._clock(), lambda: self._store.count(scope))

    def _choices(self, scope: Scope, drafted: Drafted, turn: JournalTurn) -> list[Choice]:
        said = [message.hash for message in turn.new if message.role == "user"]
        answer = turn.context.hash if turn.context is not None else None
        found = []
        for request, event in drafted.forgets:
            at = said.index(event.message_hash) if event.message_hash in said else 0
            before = turn.previous.hash if turn.previous is not None else None
            spoken = Spoken(event.message_hash, tuple(said[:at]), answer, before)
            choice = self._forgetting.plan(scope, request, spoken)
            if not request.restore:  # in a talk that is told late, what came after it was not meant
                meant = tuple(memory for memory in choice.memories if memory.valid_from <= event.at)
                choice = replace(choice, memories=meant)
            found.append(choice)
        return found

    def _replaced(self, turn: JournalTurn) -> list[Memory]:
        if turn.replaces is None or (turn.answer and observe.answer_hash(turn.answer) == turn.replaces):
            return []
        return list(self._store.from_message(turn.scope, turn.replaces))


def _source(scope: Scope, draft: Draft, event: Event, turn: JournalTurn | None) -> Source:
    return Source(
        role=event.role,
        session=scope.session_id,
        request=turn.id if turn else None,
        message_hash=event.message_hash,
        tool=event.tool or None,
        rule=draft.rule_id,
        policy_hash=draft.policy_hash,
    )


def _silenced(choices: Sequence[Choice], draft: Draft, event: Event, asked_in: set[str | None]) -> bool:
    asking = event.message_hash if event.message_hash in asked_in else None
    return any(forgetting.silences(choice, draft, event.message_hash, asking) for choice in choices)
