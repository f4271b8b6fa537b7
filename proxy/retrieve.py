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
from proxy.plugs import Context, Filters, Found, Glances, Part, SearchSource, Store
from proxy.policy.retrieval import Retrieval
from proxy.policy.rules import PolicySet
from proxy.ranker import Floats, Relevance, Weights, answerable, groups, later_first, relevance
from proxy.scope import Scope
from proxy.store.lexical import query_terms, terms
from proxy.traits import asked
from proxy.types import Memory, MemoryType, Vector

CANDIDATES_PER_LEG = 48
KEPT = 32
DIGITS = 4  # they tell all that a figure tells, and halve the ledger
_LEAST = 1e-12


class Hit(NamedTuple):
    """A memory with its score and the score's parts.

    Args:
        memory: The record.
        score: 0–1. The best one's is how likely it is that memory holds an answer at all, the others' are in
            proportion to their worth.
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
    found = store.search(scope, query.vector, query_terms(query.text), limit=limit, filters=filters, parts=query.parts)
    if found.context is None:
        return [], found.source
    found, seen = _alive(found, store.glances(scope, found.rows.tolist()))
    assert found.context is not None
    language, question, weights = detect(query.text), asked(query.text), Weights.load()
    weighed = relevance(found.context, seen, question, policies.retrieval.weights(language), weights)
    scored = _scored(weighed.values, seen, now, policies.retrieval, policies.retrieval.bonus(query.text, language))
    best = np.argsort(-scored.score, kind="stable")[:keep].tolist()
    memories = store.load(scope, found.rows[best].tolist())
    best = [place for place in best if int(found.rows[place]) in memories]
    held = [memories[row] for row in found.rows[best].tolist()]
    scores, later = scored.score[best], np.ones(len(best))
    if question.present:
        later = np.array(later_first(scores.tolist(), held, seen.of("changed")[best].tolist()))
    sure = answerable(weighed, _covered(query.text, held[0].content), weights) if held else 0.0
    parts = _parts(found, weighed, scored, best, groups(weighed, best, weights), later, sure)
    final = scores * later
    final *= sure / max(float(final.max(initial=0.0)), _LEAST)
    hits = [Hit(*one) for one in zip(held, final.tolist(), parts, strict=True)]
    return sorted(hits, key=lambda hit: (-hit.score, hit.memory.id)), found.source


def _scored(
    values: Floats, seen: Glances, now: datetime, weights: Retrieval, bonuses: Mapping[MemoryType, float]
) -> rank.Scores:
    """What the policies and the records make of a relevance."""
    half_lives = {sort: weights.decay(*sort) for sort in set(seen.sorts)}
    return rank.scores(
        values,
        age_s=now.timestamp() - seen.of("at"),
        half_life_s=np.array([np.inf if (life := half_lives[one]) is None else life for one in seen.sorts], np.float64),
        confidence=seen.of("confidence"),
        strength=seen.of("strength"),
        bonus=np.array([bonuses.get(one[0], 1.0) for one in seen.sorts], np.float64),
    )


def _covered(question: str, content: str) -> float:
    """The share of a question's terms that a text holds, 0–1."""
    wanted = query_terms(question)
    return len({*wanted} & {*terms(content)}) / len(wanted) if wanted else 0.0


def _parts(
    found: Found,
    weighed: Relevance,
    scored: rank.Scores,
    best: Sequence[int],
    grouped: Mapping[str, Floats],
    later: Floats,
    sure: float,
) -> list[dict[str, Any]]:
    """Everything that went into the best scores, by name."""
    figures = {
        "dense": found.dense[best],
        "lexical": found.lexical[best],
        "fused": weighed.fused[best],
        **grouped,
        "relevance": scored.fused[best],
        "decay": scored.decay[best],
        "confidence": scored.confidence[best],
        "strength": scored.strength[best],
        "bonus": scored.bonus[best],
        "later": later,
        "answerable": np.full(len(best), sure),
    }
    columns = dict(zip(figures, np.array([*figures.values()], np.float64).round(DIGITS).tolist(), strict=True))
    columns["dense"] = [None if one != one else one for one in columns["dense"]]
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def _alive(found: Found, seen: Glances) -> tuple[Found, Glances]:
    """Without those that have gone since they were found."""
    assert found.context is not None
    alive = seen.alive
    if alive.all():
        return found, seen
    at = np.flatnonzero(alive)
    kept = Found(found.rows[at], found.dense[at], found.lexical[at], found.source, _only(found.context, at))
    return kept, seen.at(at)


def _only(context: Context, places: npt.NDArray[np.int64]) -> Context:
    """The lines of some candidates."""
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
