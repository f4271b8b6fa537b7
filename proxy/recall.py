"""Recall: a scope and a question → ranked hits from the three layers. It waits, so a thread runs it under a deadline.

In: `Scope`, a `Question`. Out: `Recalled`, filled as the layers answer, so that what has arrived by the deadline can be
used. A layer that fails is named in `failures`; the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from proxy import leftout
from proxy.conflict import normal
from proxy.errors import EmbedderError, StoreError, WorkingMemoryUnavailable
from proxy.language import detect
from proxy.metrics import Metrics
from proxy.plugs import Embedder, Filters, Store, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.retrieve import CANDIDATES_PER_LEG as CANDIDATES_PER_LEG
from proxy.retrieve import Hit as Hit
from proxy.retrieve import Query, retrieve
from proxy.scope import Scope
from proxy.settings import Recall as RecallSettings
from proxy.ttl_cache import TTLCache
from proxy.types import Memory, MemoryType, Slot, Vector

_CACHED = 1_000
_LONG_TERM: tuple[MemoryType, ...] = ("semantic", "episodic", "reflective")
_ALWAYS_RELEVANT = frozenset({"preference", "instruction", "correction", "fact", "feedback"})
"""Kinds that, when they hold for all of the user's agents, need no likeness to the question to be of use."""
_FLOOR_DENSE = {True: 0.20, False: 0.12}
"""Least cosine of a hit without any common word: in one language, across two (the embedder's card)."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to recall for.

    Args:
        text: The question.
        now: The moment that ages are counted to.
        in_request: Hashes of the messages in this very request; what was made from them is not recalled.
        present: Ids of memories that the conversation has been told already.
    """

    text: str
    now: datetime
    in_request: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()


@dataclass(slots=True)
class Recalled:
    """What recall has found so far; filled by the recall thread, read after the deadline.

    Args:
        slots: Working memory.
        hits: Ranked, best first, with those left out and why.
        replaced: Content of the memory that a hit superseded, by the hit's id.
        failures: Layers that failed, in the words of ``X-Memory-Status``.
    """

    slots: Mapping[str, Slot] = field(default_factory=dict)
    hits: Sequence[Hit] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


class Recall:
    """Looks memories up. Thread-safe.

    Args:
        store: Long-term layer.
        working: Working layer.
        embedder: For the question.
        config: Quotas, floor, cache.
        metrics: Counts where answers came from.
    """

    def __init__(
        self, store: Store, working: WorkingMemory, embedder: Embedder, config: RecallSettings, metrics: Metrics
    ) -> None:
        self._store = store
        self._working = working
        self._embedder = embedder
        self._config = config
        self._metrics = metrics
        self._cache: TTLCache[tuple[object, ...], Sequence[Hit]] = TTLCache(config.cache_s, _CACHED)

    def fill(self, found: Recalled, scope: Scope, question: Question, policies: PolicySet) -> None:
        """Recall for a request: working memory first and whole, then the long-term layers.

        Args:
            found: Filled in place.
            scope: Whose.
            question: What for.
            policies: Their retrieval section weighs.
        """
        if scope.session_id is not None:
            try:
                found.slots = self._working.slots(scope)
            except WorkingMemoryUnavailable:
                found.failures.append("working-memory")
        try:
            ranked = self._ranked(found, scope, question, policies)
            found.hits = self.selected(scope, ranked, question)
            former = self._superseded(scope, found.hits)
            found.replaced = {new: old.memory.content for new, old in former.items()}
            found.hits = [*found.hits, *former.values()]
        except StoreError:
            found.failures.append("store")

    def search(
        self, scope: Scope, text: str, *, now: datetime, policies: PolicySet, top_k: int, filters: Filters | None
    ) -> list[Hit]:
        """Search on purpose (API, tools): no quotas, no floor of likeness.

        Args:
            scope: Whose.
            text: The query.
            now: The moment that ages are counted to.
            policies: Their retrieval section weighs.
            top_k: How many, ≥ 1.
            filters: Narrow the candidates.

        Returns:
            The best hits, best first.

        Raises:
            StoreError: The store cannot be read.
        """
        hits = self.considered(scope, text, now=now, policies=policies, top_k=top_k, filters=filters)
        return [hit for hit in hits if hit.left_out is None]

    def considered(
        self, scope: Scope, text: str, *, now: datetime, policies: PolicySet, top_k: int, filters: Filters | None
    ) -> list[Hit]:
        """As `search`, with the candidates that it leaves out, and why; all of them, best first."""
        query = Query.of(text, lambda part: self._vector(part, []))
        candidates = max(CANDIDATES_PER_LEG, top_k)
        hits, _ = retrieve(
            self._store, scope, query, now=now, policies=policies, limit=candidates, keep=candidates, filters=filters
        )
        given, judged = 0, []
        for hit in hits:
            if hit.memory.confidence < self._config.min_confidence:
                judged.append(hit._replace(left_out=leftout.UNSURE))
            elif given >= top_k:
                judged.append(hit._replace(left_out=leftout.TOP_K))
            else:
                given += 1
                judged.append(hit)
        return [*judged, *self._superseded(scope, judged).values()]

    def _ranked(self, found: Recalled, scope: Scope, question: Question, policies: PolicySet) -> Sequence[Hit]:
        # Whatever is written where the scope reads changes the generation; only expiry comes without a write.
        key = (scope.readable, self._store.generation(scope), policies.hash, question.text)
        kept = self._cache.get(key)
        if kept is not None:
            self._metrics.recalls("cache", scope.owner)
            return [hit for hit in kept if hit.memory.expires_at is None or hit.memory.expires_at > question.now]
        query = Query.of(question.text, lambda part: self._vector(part, found.failures))
        hits, source = retrieve(self._store, scope, query, now=question.now, policies=policies)
        self._metrics.recalls(source, scope.owner)
        if "embedder" not in found.failures:
            self._cache.put(key, hits)
        return hits

    def selected(self, scope: Scope, ranked: Sequence[Hit], question: Question) -> list[Hit]:
        """The hits, and the newest episodes, with why a request leaves them out.

        Args:
            scope: Whose.
            ranked: Best first.
            question: What for.

        Raises:
            StoreError: The store cannot be read.
        """
        quotas = self._config.quotas
        left = {name: quotas.limit(name) for name in _LONG_TERM}
        language = detect(question.text)
        chosen: list[Hit] = []
        texts: set[str] = set()
        sources = {hit.memory.source.message_hash for hit in ranked if hit.memory.kind != "turn"} - {None}
        for hit in [*ranked, *self._recent(scope, ranked)]:
            memory = hit.memory
            if memory.confidence < self._config.min_confidence:
                reason: str | None = leftout.UNSURE
            elif memory.source.message_hash in question.in_request:
                reason = leftout.IN_REQUEST
            elif memory.id in question.present:
                reason = leftout.TOLD
            elif memory.kind == "turn" and memory.source.message_hash in sources:
                reason = leftout.SAME_MESSAGE
            elif not self._relevant(hit, language):
                reason = leftout.UNRELATED
            elif (remaining := left.get(memory.memory_type, 0)) is not None and remaining <= 0:
                reason = leftout.QUOTA
            elif (same_text := normal(memory.content)) in texts:
                reason = leftout.SAME_TEXT
            else:
                reason = None
                left[memory.memory_type] = None if remaining is None else remaining - 1
                texts.add(same_text)
            chosen.append(hit if reason is None else Hit(memory, hit.score, hit.parts, reason))
        return chosen

    def _relevant(self, hit: Hit, language: str) -> bool:
        memory, parts = hit.memory, hit.parts
        if memory.scope in ("user", "shared") and memory.kind in _ALWAYS_RELEVANT:
            return True
        if parts.get("recent") or parts.get("lexical"):
            return True
        dense = parts.get("dense")
        return dense is not None and dense >= _FLOOR_DENSE[memory.language == language]

    def _recent(self, scope: Scope, ranked: Sequence[Hit]) -> list[Hit]:
        """The newest episodes, whatever they are about: what has just happened is often what is meant."""
        if not self._config.recent_episodic:
            return []
        known = {hit.memory.id for hit in ranked}
        newest = self._store.recent(scope, "episodic", self._config.recent_episodic)
        return [Hit(memory, 0.0, {"recent": True}) for memory in newest if memory.id not in known]

    def _superseded(self, scope: Scope, hits: Sequence[Hit]) -> dict[str, Hit]:
        """What the hits in use have replaced, by their ids; it is searched no more, so no leg has found it."""
        used = [hit.memory for hit in hits if hit.left_out is None]
        former = {memory.id: memory.supersedes for memory in used if memory.supersedes}
        if not former:
            return {}
        read = self._store.read(scope, set(former.values()))
        replaced = {old.id: _unsearched(old) for old in read if old.state == "superseded"}
        return {new: replaced[old] for new, old in former.items() if old in replaced}

    def _vector(self, text: str, failures: list[str]) -> Vector | None:
        try:
            return self._embedder.query(text)
        except EmbedderError:
            if "embedder" not in failures:
                failures.append("embedder")
            return None


def _unsearched(memory: Memory) -> Hit:
    parts = {"dense": None, "lexical": 0.0, "fused": 0.0, "relevance": 0.0, "decay": 1.0, "bonus": 1.0, "later": 1.0}
    own = {"confidence": memory.confidence, "strength": memory.strength, "superseded_by": memory.superseded_by}
    return Hit(memory, 0.0, parts | own, leftout.SUPERSEDED)
