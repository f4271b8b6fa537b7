"""How long memories last: the `retention` section, and the arithmetic of forgetting by disuse.

Pure: ages are given. retained = confidence × strength × 0.5 ** (time since last use / half-life).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from proxy.policy.conditions import Strict
from proxy.policy.durations import Duration, Span
from proxy.rank import decay
from proxy.types import MemoryType

WORKING_TTL_S = 3_600.0
WORKING_MAX_ITEMS = 60
DEDUPE_AT = 0.95


class RetentionRule(Strict):
    """What holds for one memory type or kind; a key left out falls back to the type's, then to no limit."""

    ttl: Duration = None
    max_items: int | None = Field(default=None, ge=1)
    half_life: Duration = None
    archive_below: float | None = Field(default=None, ge=0, le=2)
    archive_after: Span = 0.0
    dedupe_at: float | None = Field(default=None, gt=0, le=1)


class CompressRule(Strict):
    """Related old memories go under one summary."""

    older_than: Span
    at_least: int = Field(ge=2)


class Promote(Strict):
    """The same fact from several sessions becomes lasting."""

    same_fact_in_sessions: int = Field(ge=2)
    to: Literal["semantic"] = "semantic"


class MemoryExample(Strict):
    """A memory as retention sees it."""

    memory_type: MemoryType
    kind: str = "fact"
    confidence: float = Field(default=1.0, ge=0, le=1)
    strength: float = Field(default=1.0, ge=0, le=2)
    unused_for: Span = 0.0
    age: Span = 0.0


class RetentionExpected(Strict):
    """What must come out for it."""

    retained: float | None = None
    state: Literal["active", "archived"] | None = None


class RetentionExample(Strict):
    """One memory and its fate."""

    memory: MemoryExample
    expect: RetentionExpected


Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class RetentionSection(Strict):
    """`retention:` of a policy file."""

    types: Mapping[MemoryType, RetentionRule] = {}
    kinds: Mapping[Word, RetentionRule] = {}
    compress: Mapping[MemoryType, CompressRule] | None = None
    promote: Promote | None = None
    delete_archived_after: Duration = None
    examples: tuple[RetentionExample, ...] = ()


def retained(confidence: float, strength: float, unused_s: float, half_life_s: float | None) -> float:
    """How much of a memory is left.

    Args:
        confidence: 0–1.
        strength: 0–2.
        unused_s: Seconds since it was last used, or written.
        half_life_s: Seconds; None never fades.

    Returns:
        0–2.

    >>> retained(1.0, 1.0, 60, 30), retained(0.5, 2.0, 1e9, None)
    (0.25, 1.0)
    """
    return confidence * strength * decay(unused_s, half_life_s)


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention rules in force.

    Args:
        types: By memory type.
        kinds: By kind; a field given here wins over the type's.
        delete_archived_after_s: Seconds; None keeps archived memories.
        compress: By memory type, when related old ones go under one summary.
        promote: When what several sessions said becomes lasting; None is never.
    """

    types: Mapping[MemoryType, RetentionRule] = field(default_factory=dict)
    kinds: Mapping[str, RetentionRule] = field(default_factory=dict)
    delete_archived_after_s: float | None = None
    compress: Mapping[MemoryType, CompressRule] = field(default_factory=dict)
    promote: Promote | None = None

    @classmethod
    def of(cls, section: RetentionSection) -> Retention:
        """The rules of a merged section."""
        return cls(
            section.types, section.kinds, section.delete_archived_after, dict(section.compress or {}), section.promote
        )

    def rule(self, memory_type: MemoryType, kind: str) -> RetentionRule:
        """The rule for a memory: its kind's fields over its type's."""
        base = self.types.get(memory_type, RetentionRule())
        own = self.kinds.get(kind)
        if own is None:
            return base
        given = {name: getattr(own, name) for name in own.model_fields_set}
        return base.model_copy(update=given)

    def dedupe_at(self, memory_type: MemoryType, kind: str) -> float:
        """Cosine from which two memories that say the same are one."""
        found = self.rule(memory_type, kind).dedupe_at
        return DEDUPE_AT if found is None else found

    @property
    def working_ttl_s(self) -> float:
        """Sliding time to live of working memory, seconds."""
        rule = self.types.get("working")
        return rule.ttl if rule is not None and rule.ttl is not None else WORKING_TTL_S

    @property
    def working_max_items(self) -> int:
        """How many slots a session's working memory may hold."""
        rule = self.types.get("working")
        return rule.max_items if rule is not None and rule.max_items is not None else WORKING_MAX_ITEMS

    def state_after(
        self, memory_type: MemoryType, kind: str, *, confidence: float, strength: float, unused_s: float, age_s: float
    ) -> Literal["active", "archived"]:
        """Whether a memory stays or is archived: faded below the limit, and old enough.

        Args:
            memory_type, kind: Whose rule applies.
            confidence: 0–1.
            strength: 0–2.
            unused_s: Seconds since last use.
            age_s: Seconds since it was written.
        """
        rule = self.rule(memory_type, kind)
        if rule.archive_below is None:
            return "active"
        left = retained(confidence, strength, unused_s, rule.half_life)
        return "archived" if left < rule.archive_below and age_s > rule.archive_after else "active"


def failures(retention: Retention, example: RetentionExample) -> list[str]:
    """What an example expected and did not get; empty when it passes."""
    memory, expect = example.memory, example.expect
    rule = retention.rule(memory.memory_type, memory.kind)
    left = retained(memory.confidence, memory.strength, memory.unused_for, rule.half_life)
    state = retention.state_after(
        memory.memory_type,
        memory.kind,
        confidence=memory.confidence,
        strength=memory.strength,
        unused_s=memory.unused_for,
        age_s=memory.age,
    )
    found = []
    if expect.retained is not None and abs(left - expect.retained) > 0.005:
        found.append(f"expected retained {expect.retained:g} but got {left:.3f}")
    if expect.state is not None and state != expect.state:
        found.append(f"expected state {expect.state} but got {state}")
    return found
