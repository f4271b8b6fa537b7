"""A question → the memories that may answer it, scored: search, ranker, the policies' factors. It waits.

In: `Scope`, a `Query`. Out: `Hit`s, best first, each with the parts of its score. What of them is used is
`recall`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from proxy import rank
from proxy.language import detect
from proxy.plugs import Candidate, Context, Filters, Part, SearchSource, Store
from proxy.policy.retrieval import Retrieval
from proxy.policy.rules import PolicySet
from proxy.ranker import Weights, later_first, relevance
from proxy.scope import Scope
from proxy.store.lexical import query_terms
from proxy.traits import asked, traits
from proxy.types import Memory, MemoryType, Vector

CANDIDATES_PER_LEG = 48
KEPT = 32


class Hit(NamedTuple):
    """A memory with its score and the score's parts.

    Args:
        memory: The record.
        score: ≥ 0, comparable within one recall only.
        parts: Legs and factors by name.
        left_out: Why it is not to be injected; None when it is.
    """

    memory: Memory
    score: float
    parts: Mapping[str, Any]
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Args:
        text: The question.
        vector: Of the question; None leaves it to the words.
        parts: Of a question that asks for several things.
    """

    text: str
    vector: Vector | None
    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, text: str, embed: Callable[[str], Vector | None]) -> Query:
        """A question with its vectors.

        Args:
            text: The question.
            embed: Gives the vector of a question.
        """
        parts = tuple(Part(embed(part), query_terms(part)) for part in asked(text).parts)
        return cls(text, embed(text), parts)


def retrieve(
    store: Store,
    scope: Scope,
    query: Query,
    *,
    now: datetime,
    policies: PolicySet,
    limit: int = CANDIDATES_PER_LEG,
    keep: int = KEPT,
    filters: Filters | None = None,
) -> tuple[list[Hit], SearchSource]:
    """Search and score.

    Args:
        store: Long-term layer.
        scope: Whose.
        query: What for.
        now: The moment that ages are counted to.
        policies: Their retrieval section weighs.
        limit: Candidates per leg.
        keep: How many are given back.
        filters: Narrow the candidates.

    Returns:
        The best candidates, best first, and which path found them.

    Raises:
        StoreError: The store cannot be read.
    """
    searched = store.search(
        scope, query.vector, query_terms(query.text), limit=limit, filters=filters, parts=query.parts
    )
    found = searched.candidates
    memories = store.load(scope, [candidate.row for candidate in found])
    at = [place for place, candidate in enumerate(found) if candidate.row in memories]
    if not at or searched.context is None:
        return [], searched.source
    context = searched.context if len(at) == len(found) else _only(searched.context, at)
    held = [memories[found[place].row] for place in at]
    language, weights = detect(query.text), policies.retrieval
    question, seen = asked(query.text), [traits(memory.content) for memory in held]
    weighed = relevance(context, held, seen, question, weights.weights(language), Weights.load())
    factors = _Factors(now, weights, weights.bonus(query.text, language))
    best = np.argsort(-weighed.values * factors.estimated(held), kind="stable")[:keep].tolist()
    scored = [factors.parts(held[one], float(weighed.values[one])) for one in best]
    later = [1.0] * len(best)
    if question.present:
        later = later_first([one.score for one in scored], [held[one] for one in best], [seen[one] for one in best])
    seen_by = {name: np.round(values[best], 3).tolist() for name, values in weighed.groups.items()}
    fused = weighed.fused[best].tolist()
    hits = []
    for place, (one, parts, news) in enumerate(zip(best, scored, later, strict=True)):
        groups = {name: values[place] for name, values in seen_by.items()}
        named = _named(found[at[one]], fused[place], groups, parts, news)
        hits.append(Hit(held[one], parts.score * news, named))
    return sorted(hits, key=lambda hit: (-hit.score, hit.memory.id)), searched.source


@dataclass(frozen=True, slots=True)
class _Factors:
    """What the policies and the record make of a relevance.

    Args:
        now: The moment that ages are counted to.
        weights: The policies' retrieval section.
        bonuses: Of this question, by memory type.
    """

    now: datetime
    weights: Retrieval
    bonuses: Mapping[MemoryType, float]

    def estimated(self, memories: Sequence[Memory]) -> npt.NDArray[np.float64]:
        """The product of each record's factors, for all at once: it says which are worth the exact figures."""
        now_s = self.now.timestamp()
        rates: dict[tuple[MemoryType, str], float] = {}
        lives, factors = [], []
        for memory in memories:
            sort = memory.memory_type, memory.kind
            rate = rates.get(sort)
            if rate is None:
                half_life_s = self.weights.decay(*sort)
                rate = rates[sort] = 0.0 if half_life_s is None else 1.0 / max(half_life_s, 1.0)
            lives.append((now_s - memory.valid_from.timestamp()) * rate if rate else 0.0)
            factors.append(memory.confidence * memory.strength * self.bonuses.get(sort[0], 1.0))
        product: npt.NDArray[np.float64] = 0.5 ** np.clip(lives, 0.0, 1_000.0) * np.array(factors)
        return product

    def parts(self, memory: Memory, value: float) -> rank.Parts:
        """The exact figures of one."""
        return rank.score(
            value,
            age_s=(self.now - memory.valid_from).total_seconds(),
            half_life_s=self.weights.decay(memory.memory_type, memory.kind),
            confidence=memory.confidence,
            strength=memory.strength,
            bonus=self.bonuses.get(memory.memory_type, 1.0),
        )


def _named(
    candidate: Candidate, fused: float, groups: Mapping[str, float], parts: rank.Parts, news: float
) -> dict[str, Any]:
    """Everything that went into a score, by name."""
    return {
        "dense": candidate.dense,
        "lexical": candidate.lexical,
        "fused": fused,
        **groups,
        "relevance": parts.fused,
        "decay": parts.decay,
        "confidence": parts.confidence,
        "strength": parts.strength,
        "bonus": parts.bonus,
        "later": news,
    }


def _only(context: Context, at: Sequence[int]) -> Context:
    """The lines of some candidates: others have gone since they were found."""
    places = np.array(at, np.int64)
    now_at = np.full(len(context.before) + 1, -1, np.int64)
    now_at[places] = np.arange(len(places))
    return Context(
        cosines=context.cosines[places],
        words=context.words[places],
        part_cosines=context.part_cosines[places],
        part_words=context.part_words[places],
        threads=context.threads[places],
        before=now_at[context.before[places]],
    )
