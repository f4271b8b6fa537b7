"""One memory's way into the store, decided before anything is written: guard, vector, conflict step.

In: a `Draft` and where it came from. Out: a `Plan`: what to do, with which record and vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
import uuid_utils

from proxy import guard
from proxy.conflict import Decision, Judge, Near, decide
from proxy.errors import EmbedderError
from proxy.language import detect
from proxy.plugs import Embedder, Store
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.store.lexical import query_terms, terms
from proxy.types import Draft, Memory, Outcome, Source, Vector

log = structlog.get_logger(__name__)
LEFT_OUT = "[text that addresses the model was left out]"
_NEAR = 12
_DEDUPE_AT = 0.95
_SAME = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """One draft's way into the store: what to do, and with which record and vector."""

    decision: Decision
    memory: Memory
    vector: Vector | None


class Planner:
    """Decides what a draft becomes. Thread-safe, but one user's drafts must come one after another.

    Args:
        store: Where the memories near it lie.
        embedder: For stored text.
        policies: Returns the live policy set.
        count_tokens: Tokens of a text.
        clock: Returns now, aware UTC.
        judge: For a scope, a model's verdict on two texts; None where no model is asked.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        policies: Callable[[], PolicySet],
        count_tokens: Callable[[str], int],
        clock: Callable[[], datetime],
        judge: Callable[[Scope], Judge | None] = lambda _scope: None,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._policies = policies
        self._count = count_tokens
        self._clock = clock
        self._judge = judge

    def plan(
        self,
        scope: Scope,
        draft: Draft,
        source: Source,
        valid_from: datetime,
        *,
        said: str,
        earlier: Sequence[Plan],
        without: Collection[str] = (),
        parent_id: str | None = None,
    ) -> Plan:
        """Decide what a draft becomes.

        Args:
            scope: Whose.
            draft: What is proposed.
            source: Where it came from.
            valid_from: Since when it holds.
            said: The text that it was made from.
            earlier: Plans of the same transaction.
            without: Ids of memories that are about to go.
            parent_id: The memory that it follows in its task.
        """
        safe = self.safe(draft.content)
        policies = self._policies()
        tool = source.role == "tool"
        confidence = min(draft.confidence, policies.guard.tool_confidence) if tool else draft.confidence
        quarantined = self.quarantined(safe)
        now = self._clock()
        memory = Memory(
            id=str(uuid_utils.uuid7()),
            tenant=scope.tenant,
            user_id=scope.user_id,
            agent_id=scope.agent_id,
            session_id=scope.session_id,
            scope=draft.scope,
            memory_type=draft.memory_type,
            kind=draft.kind,
            content=safe,
            key=draft.key,
            tags=draft.tags,
            language=detect(safe),
            confidence=confidence,
            created_at=now,
            updated_at=now,
            valid_from=valid_from,
            expires_at=now + timedelta(seconds=draft.ttl_s) if draft.ttl_s is not None else None,
            state="pending" if quarantined else "active",
            source=source,
            parent_id=parent_id,
            token_estimate=self._count(safe),
        )
        vector = self.vector(safe)
        if quarantined:
            return Plan(Decision("create", None, "it addresses the model"), memory, vector)
        near = self._near(scope, memory, vector, earlier, without)
        dedupe_at = policies.retention.rule(memory.memory_type, memory.kind).dedupe_at or _DEDUPE_AT
        decision = decide(
            memory, near, on_conflict=draft.on_conflict, said=said, dedupe_at=dedupe_at, judge=self._judge(scope)
        )
        if decision.action == "supersede" and decision.target is not None and memory.key is None:
            # A correction takes over the slot of what it corrects.
            memory = replace(memory, key=decision.target.key)
        return Plan(decision, memory, vector)

    def _near(
        self, scope: Scope, new: Memory, vector: Vector | None, earlier: Sequence[Plan], without: Collection[str]
    ) -> list[Near]:
        near = self._same(scope, new) if new.kind == "turn" else self._alike(scope, new, vector)
        in_slot = [Near(memory, None) for memory in (self._store.by_key(scope, new.key) if new.key else ())]
        pending = [
            Near(plan.memory, None if vector is None or plan.vector is None else float(vector @ plan.vector))
            for plan in earlier
            if plan.decision.action != "merge" and plan.memory.state == "active"
        ]
        superseded = {
            plan.decision.target.id for plan in earlier if plan.decision.action == "supersede" and plan.decision.target
        }
        return [
            one
            for one in [*pending, *in_slot, *near]
            # What this scope reads at the same visibility lies in the same partition.
            if one.memory.scope == new.scope and one.memory.id not in superseded and one.memory.id not in without
        ]

    def _same(self, scope: Scope, new: Memory) -> list[Near]:
        """A raw turn is only ever merged with the very same words: no likeness need be looked for."""
        return [Near(memory, None) for memory in self._store.holding(scope, terms(new.content), limit=_SAME)]

    def _alike(self, scope: Scope, new: Memory, vector: Vector | None) -> list[Near]:
        found = self._store.search(scope, vector, query_terms(new.content), limit=_NEAR).candidates
        records = self._store.load(scope, [candidate.row for candidate in found])
        return [Near(records[c.row], c.dense) for c in found if c.row in records]

    def safe(self, text: str) -> str:
        return guard.guard(text, self._policies().guard_options).text

    def quarantined(self, text: str) -> bool:
        return self._policies().guard.instructions == "quarantine" and guard.addresses_model(text)

    def safe_value(self, value: object, untrusted: bool) -> object:
        """A slot's value as it may be kept.

        Args:
            value: Text, or JSON.
            untrusted: Whether a tool said it: what addresses the model is then left out, since slots cannot wait.
        """
        safe = self._without_secrets(value)
        if not untrusted:
            return safe
        left = self._without_orders(safe)
        # Orders may be spread over the fields of an object.
        return LEFT_OUT if left == safe and self.quarantined(" ".join(_texts(safe))) else left

    def _without_secrets(self, value: object) -> object:
        return _mapped(value, self.safe)

    def _without_orders(self, value: object) -> object:
        return _mapped(value, lambda text: LEFT_OUT if self.quarantined(text) else text)

    def vector(self, text: str) -> Vector | None:
        try:
            return self._embedder.documents([text])[0]
        except EmbedderError as error:
            log.warning("embedding_failed", error_type=type(error).__name__)
            return None


def outcome_of(plan: Plan) -> Outcome:
    names = {"create": "created", "merge": "merged", "supersede": "superseded", "version": "versioned"}
    target = plan.decision.target
    memory_id = target.id if plan.decision.action == "merge" and target else plan.memory.id
    action = "pending" if plan.memory.state == "pending" else names[plan.decision.action]
    return Outcome(plan.memory.source.rule or "", action, memory_id, plan.decision.reason)


def _mapped(value: object, change: Callable[[str], str]) -> object:
    """JSON with every text in it changed, names of fields too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, change) for inner in value]
    return value


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
