"""What counts for more when recalling: the `retrieval` section as figures for `rank.py`.

Pure. Weights between the legs by language, half-lives by type and kind, and a bonus for what a question is after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, StrictBool

from proxy.language import detect, scripts
from proxy.policy.conditions import Strict
from proxy.policy.durations import Duration, Span
from proxy.policy.literals import lowered
from proxy.policy.matcher import Clock, Matcher
from proxy.policy.patterns import Patterns, readable
from proxy.rank import fuse, score
from proxy.types import Language, MemoryType

EVEN_SHARE = 0.5
Share = Annotated[float, Field(ge=0, le=1)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Weights(Strict):
    """The dense leg's share by language."""

    dense: Mapping[Language, Share]


class Intent(Strict):
    """What a question is after, and which memories answer it."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    override: StrictBool = False
    match: Patterns
    bonus: Annotated[Mapping[MemoryType, Annotated[float, Field(ge=0.5, le=3)]], Field(min_length=1)]


class CandidateExample(Strict):
    """A memory that the search legs found."""

    id: str
    memory_type: MemoryType = "semantic"
    kind: str = "fact"
    dense: float | None = Field(default=None, ge=-1, le=1)
    lexical: float = Field(default=0.0, ge=0)
    age: Span = 0.0
    confidence: float = Field(default=1.0, ge=0, le=1)
    strength: float = Field(default=1.0, ge=0, le=2)


class RetrievalExample(Strict):
    """A query, what was found, and the order it must come in."""

    query: str
    given: Annotated[tuple[CandidateExample, ...], Field(min_length=1)]
    expect: tuple[str, ...]


class RetrievalSection(Strict):
    """`retrieval:` of a policy file."""

    weights: Weights | None = None
    decay: Mapping[Word, Duration] = {}
    intents: tuple[Intent, ...] = ()
    examples: tuple[RetrievalExample, ...] = ()


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The retrieval rules in force.

    Args:
        dense: Dense share by language.
        half_lives: Seconds by memory type or kind; None never decays.
        intents: Compiled patterns with their bonuses.
    """

    dense: Mapping[Language, float] = field(default_factory=dict)
    half_lives: Mapping[str, float | None] = field(default_factory=dict)
    intents: tuple[tuple[str, Matcher, Mapping[MemoryType, float]], ...] = ()

    @classmethod
    def of(cls, section: RetrievalSection) -> Retrieval:
        """The rules of a merged section."""
        intents = tuple((intent.id, Matcher.of(intent.match), intent.bonus) for intent in section.intents)
        return cls(section.weights.dense if section.weights else {}, section.decay, intents)

    def weights(self, language: Language) -> float:
        """The dense leg's share for a query in this language, 0–1; the lexical leg has the rest."""
        return self.dense.get(language, self.dense.get("other", EVEN_SHARE))

    def decay(self, memory_type: MemoryType, kind: str) -> float | None:
        """Half-life on valid_from, seconds; a kind's own wins over its type's; None never decays."""
        return self.half_lives[kind] if kind in self.half_lives else self.half_lives.get(memory_type)

    def bonus(self, query: str, language: Language) -> Mapping[MemoryType, float]:
        """Factors by memory type for what the query asks; the highest of all intents that match.

        Args:
            query: The text searched for.
            language: Of the query.
        """
        text, clock = readable(query), Clock()
        small = lowered(text)
        languages = tuple(dict.fromkeys((language, *scripts(text))))
        factors: dict[MemoryType, float] = {}
        for _, matcher, bonus in self.intents:
            if matcher.first(text, small, languages, clock) is not None:
                for memory_type, factor in bonus.items():
                    factors[memory_type] = max(factor, factors.get(memory_type, 0.0))
        return factors


def failures(retrieval: Retrieval, example: RetrievalExample) -> list[str]:
    """What an example expected and did not get; empty when it passes."""
    language = detect(example.query)
    bonus = retrieval.bonus(example.query, language)
    fused = fuse([c.dense for c in example.given], [c.lexical for c in example.given], retrieval.weights(language))
    scores = {
        candidate.id: score(
            value,
            age_s=candidate.age,
            half_life_s=retrieval.decay(candidate.memory_type, candidate.kind),
            confidence=candidate.confidence,
            strength=candidate.strength,
            bonus=bonus.get(candidate.memory_type, 1.0),
        ).score
        for candidate, value in zip(example.given, fused, strict=True)
    }
    ranked = sorted(scores, key=lambda name: -scores[name])
    if ranked[: len(example.expect)] == list(example.expect):
        return []
    table = ", ".join(f"{name} {scores[name]:.3f}" for name in ranked)
    return [f"expected the order {', '.join(example.expect)} but got {table}"]
