"""From events to drafts: what the policies propose to remember, worded so that it stands alone.

In: a journalled turn, or one event. Out: `Drafted`: drafts, slots and requests to forget, each with the event it came
from. It reads the store (is it known, what was injected) and may ask a model, so it runs where write-back does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo

import structlog

from proxy import observe
from proxy.clip import one_line
from proxy.conflict import normal
from proxy.ending import BACKFILL_TAG
from proxy.extractor import Extractor
from proxy.fragments import worth_keeping
from proxy.knowing import Knowing
from proxy.metrics import Metrics
from proxy.plugs import Embedder, JournalTurn, Store
from proxy.policy.evaluation import Evaluation, ForgetRequest
from proxy.policy.match import evaluate
from proxy.policy.matcher import TimedOut
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.standalone import standing
from proxy.types import Answer, Draft, Event, Outcome, SlotWrite
from proxy.value import ValueModel

log = structlog.get_logger(__name__)
_BACKFILL_CONFIDENCE = 0.3
_PATTERN_CHARS = 80


@dataclass(slots=True)
class Drafted:
    """What events came to.

    Args:
        drafts: Proposed memories.
        slots: Working-memory slots to fill.
        forgets: What the user asked to forget, or to have back.
        notes: For the ledger: that the answer was cut short, what a model was asked in vain, which patterns
            took too long.
    """

    drafts: list[tuple[Draft, Event]] = field(default_factory=list)
    slots: list[tuple[SlotWrite, Event]] = field(default_factory=list)
    forgets: list[tuple[ForgetRequest, Event]] = field(default_factory=list)
    notes: list[Outcome] = field(default_factory=list)


class Drafting:
    """Puts events before the policies. Thread-safe.

    Args:
        store: Long-term layer.
        embedder: For `similar_to_existing` and the value classifier.
        value: The classifier; None keeps nothing for its worth alone.
        extractor: Asks models; None where the caller has none, and rules write their fallback.
        zone: `identity.timezone`, for relative dates.
        metrics: Counts patterns that ran out of time, and what shadow rules matched.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        value: ValueModel | None,
        extractor: Extractor | None,
        zone: tzinfo,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._value = value
        self._extractor = extractor
        self._zone = zone
        self._metrics = metrics

    def turn(self, turn: JournalTurn, policies: PolicySet, *, fresh: bool) -> Drafted:
        """What a turn comes to.

        Args:
            turn: Answered.
            policies: The set in force.
            fresh: Whether its words are new; of others only the answer is.
        """
        result = Drafted(notes=_of_answer(turn.answer))
        for event in self._backfill(turn) if fresh else ():
            found = evaluate(policies, event)
            self._count(found.timed_out)
            # What asked to forget something must not stand for it again.
            kept = [draft for draft in found.drafts if draft.kind == "turn" and not found.forgets]
            result.drafts += [(_backfilled(draft), event) for draft in kept]
        info = self._store.session(turn.scope) if policies.counts_turns else None
        happened = observe.events(
            turn.new if fresh else (),
            turn.context,
            turn.answer,
            at=turn.at,
            user_id=turn.scope.user_id,
            agent_id=turn.scope.agent_id,
            turn=info.turns if info else 1,
            user_text=turn.user_text,
            in_play=turn.in_play,
        )
        echoes: frozenset[str] | None = None
        for event in happened:
            made = self.event(turn.scope, event, policies, before=_before(turn))
            if made.drafts and event.role != "user":
                echoes = self._injected(turn) if echoes is None else echoes
                made.drafts = [one for one in made.drafts if not _is_echo(one[0], echoes)]
            _join(result, made)
        return result

    def event(self, scope: Scope, event: Event, policies: PolicySet, *, before: Sequence[str] = ()) -> Drafted:
        """What one event comes to.

        Args:
            scope: Whose.
            event: What happened.
            policies: The set in force.
            before: What was said before it, the nearest last, for pronouns.
        """
        found = evaluate(policies, event, knowledge=Knowing(self._store, self._embedder, self._value, scope))
        self._count(found.timed_out)
        for rule_id in found.shadow:
            log.info("shadow_rule_matched", rule_id=rule_id)
            self._metrics.shadowed(rule_id)
        result = Drafted(slots=[(slot, event) for slot in found.slots], forgets=[(one, event) for one in found.forgets])
        on_trial = {rule.id for rule in policies.triggers if rule.mode == "shadow"} if found.timed_out else set()
        result.notes += [_late(one) for one in dict.fromkeys(found.timed_out) if one.rule_id not in on_trial]
        for draft in [*found.drafts, *self._asked(scope, found, result.notes)]:
            worded = standing(draft, event, self._zone, before)
            if event.role != "user" or worth_keeping(worded):
                result.drafts.append((worded, event))
        return result

    def _count(self, timed_out: Iterable[TimedOut]) -> None:
        for one in timed_out:
            self._metrics.policy_timed_out(one.pattern)

    def _asked(self, scope: Scope, found: Evaluation, notes: list[Outcome]) -> Iterator[Draft]:
        for task in found.llm:
            if self._extractor is None:
                yield from task.fallback
                continue
            answer = self._extractor.extraction(task, scope)
            if answer.fell_back is not None:
                notes.append(Outcome(task.rule_id, "fallback", None, f"the model gave no answer: {answer.fell_back}"))
            yield from answer.drafts

    def _backfill(self, turn: JournalTurn) -> Iterable[Event]:
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

    def _injected(self, turn: JournalTurn) -> frozenset[str]:
        found = turn.recalled or self._store.read(turn.scope, turn.injected)
        return frozenset(normal(memory.content) for memory in found)


def _join(whole: Drafted, part: Drafted) -> None:
    whole.drafts += part.drafts
    whole.slots += part.slots
    whole.forgets += part.forgets
    whole.notes += part.notes


def _backfilled(draft: Draft) -> Draft:
    return replace(draft, confidence=min(draft.confidence, _BACKFILL_CONFIDENCE), tags=(*draft.tags, BACKFILL_TAG))


def _late(one: TimedOut) -> Outcome:
    shown = one_line(one.pattern, _PATTERN_CHARS)
    reason = f"the pattern '{shown}' took too long for this text and counted as not found in it: make it simpler"
    return Outcome(one.rule_id, "failed", None, reason)


def _before(turn: JournalTurn) -> list[str]:
    exchange = (turn.previous, turn.context)
    return [message.text for message in exchange if message is not None and message.text]


def _is_echo(draft: Draft, injected: frozenset[str]) -> bool:
    """Whether a draft only says again what was recalled (traps 13, 14)."""
    said = normal(draft.content)
    return any(text in said or said in text for text in injected if text)


def _of_answer(answer: Answer | None) -> list[Outcome]:
    """The ledger says when an answer was not whole: nothing is then remembered of it."""
    reasons = {
        "aborted": "the answer was cut short: the client went away, or the provider broke off",
        "failed": "the provider reported an error in its answer",
    }
    if answer is None or answer.status not in reasons:
        return []
    return [Outcome("", answer.status, None, reasons[answer.status])]
