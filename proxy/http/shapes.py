"""What endpoints about records answer with, as pydantic models: handlers fill them, the OpenAPI document shows them.

What is told about calls, sessions, policies and the house itself is in `house_shapes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from proxy.plugs import Page, Version
from proxy.recall import Hit
from proxy.types import Language, Memory, MemoryType, State, Visibility


class Shape(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────────────────
class ErrorDetail(Shape):
    """What went wrong, as OpenAI's clients read it."""

    message: str = Field(description="What is wrong, where, and what to do next.")
    type: str
    code: str = Field(description="A short constant name.")
    param: str | None = Field(description="The field, parameter or header at fault.")


class ErrorAnswer(Shape):
    """Every error of our own."""

    error: ErrorDetail


# ── records ────────────────────────────────────────────────────────────────────────────────────────────────────────
class RecordSource(Shape):
    """Where a memory came from."""

    role: str | None
    session: str | None
    request: str | None
    message_hash: str | None
    tool: str | None
    rule: str | None
    policy_hash: str | None


class Record(Shape):
    """One memory."""

    id: str
    tenant: str
    user_id: str
    agent_id: str
    session_id: str | None
    scope: Visibility
    memory_type: MemoryType
    kind: str
    content: str
    key: str | None = Field(description="A slot, which holds one answer at a time.")
    tags: tuple[str, ...]
    entities: tuple[str, ...]
    language: Language
    confidence: float = Field(ge=0, le=1)
    strength: float = Field(description="Reinforcement, at most 2.0.")
    access_count: int
    last_accessed_at: AwareDatetime | None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    valid_from: AwareDatetime
    expires_at: AwareDatetime | None
    version: int = Field(ge=1)
    supersedes: str | None
    superseded_by: str | None
    parent_id: str | None
    state: State
    source: RecordSource
    token_estimate: int
    short: str | None = Field(
        description="What stands in for a long content where it is injected: its most telling sentences. Made anew "
        "whenever the content is written; null for a short one."
    )

    @classmethod
    def of(cls, memory: Memory) -> Self:
        """A record as it is shown."""
        return cls.model_validate(memory)


class WrittenRecord(Record):
    """A record, and what became of what was sent."""

    outcome: Literal["created", "merged", "superseded", "versioned", "pending"]

    @classmethod
    def written(cls, memory: Memory, outcome: str) -> Self:
        """The record that now holds what was sent."""
        return cls.model_validate({**_fields(memory), "outcome": outcome})


class RecordVersion(Record):
    """A state that a record was in."""

    change: str = Field(description="What led to it: created, updated, superseded, archived, restored …")
    changed_at: AwareDatetime

    @classmethod
    def at(cls, version: Version) -> Self:
        """One entry of a history."""
        fields = _fields(version.memory)
        return cls.model_validate({**fields, "change": version.change, "changed_at": version.at})


class RecordPage(Shape):
    """Records, newest first."""

    data: tuple[Record, ...]
    next_cursor: str | None = Field(description="To be sent as `cursor` for the next page; null at the end.")

    @classmethod
    def of(cls, page: Page) -> Self:
        """One page of a listing."""
        return cls(data=tuple(Record.of(memory) for memory in page.items), next_cursor=page.next_cursor)


class TakenStep(Shape):
    """A step of a task that led to a record."""

    tool: str | None = Field(description="Null for what was not made from a tool's result.")
    status: Literal["ok", "error"]
    memory_id: str | None = Field(description="What was remembered of it; null while only a slot was filled.")
    content: str | None
    at: AwareDatetime | None


class History(Shape):
    """Every state that a record, and those that it superseded, were in; oldest first."""

    data: tuple[RecordVersion, ...]
    steps: tuple[TakenStep, ...] = Field(
        (), description="The tool calls of its task that led to it, the record itself last; empty where none did."
    )
    next_cursor: None = None


class DeletedRecord(Shape):
    """A record that was forgotten for good."""

    id: str
    deleted: Literal[True] = True
    forgotten: int = Field(description="How many records in use are gone: it, and what hung on it.")


class ForgottenRecords(Shape):
    """What a bulk forget did."""

    forgotten: int = Field(description="How many records in use are gone: those that matched, and what hung on them.")
    matched: int = Field(description="How many records met the filter, in any state.")
    dry_run: bool


# ── transfer ───────────────────────────────────────────────────────────────────────────────────────────────────────
class LineError(Shape):
    """A line that did not come in."""

    line: int = Field(description="From 1.")
    message: str


class ImportAnswer(Shape):
    """What became of the lines."""

    imported: int
    skipped: int = Field(description="The user has a record of that id already.")
    forgotten: int = Field(description="Forgotten before, and so left out.")
    failed: int
    dry_run: bool
    errors: tuple[LineError, ...] = Field(description="The first hundred.")


class FailedImport(ImportAnswer):
    """The same with an error: some lines did not come in."""

    error: ErrorDetail


# ── search ─────────────────────────────────────────────────────────────────────────────────────────────────────────
class ScoreParts(Shape):
    """What a score is the product of; beside these, what the ranker saw, each by its name."""

    model_config = ConfigDict(extra="allow")

    dense: float | None = Field(description="Cosine to the query; null where there is no vector.")
    lexical: float = Field(description="BM25.")
    fused: float = Field(description="Both legs together, 0–1.")
    decay: float
    confidence: float
    strength: float
    bonus: float


class FoundRecord(Record):
    """A record, its score and what the score is made of."""

    score: float
    parts: ScoreParts
    call: str | None = Field(
        None,
        description="With `explain`: what the first call of a session that asks this would do with it: `injected`, or "
        "why it would be left out.",
        exclude_if=lambda v: v is None,
    )

    @classmethod
    def found(cls, hit: Hit, call: str | None) -> Self:
        """One hit."""
        return cls.model_validate(_of_hit(hit, call))


class LeftOutRecord(FoundRecord):
    """A record that was looked at and not given."""

    reason: str

    @classmethod
    def left_out(cls, hit: Hit, call: str | None) -> Self:
        """One candidate with its reason."""
        return cls.model_validate({**_of_hit(hit, call), "reason": hit.left_out})


class SearchAnswer(Shape):
    """The best records, best first."""

    data: tuple[FoundRecord, ...]
    left_out: tuple[LeftOutRecord, ...] | None = Field(
        None,
        description="With `explain`: the other candidates, and why they are not given.",
        exclude_if=lambda v: v is None,
    )

    @classmethod
    def of(cls, hits: Sequence[Hit], calls: Mapping[str, str] | None) -> Self:
        """Those to be given; the others too where it is told what a call would do with each."""
        told = calls or {}
        given = tuple(FoundRecord.found(hit, told.get(hit.memory.id)) for hit in hits if hit.left_out is None)
        if calls is None:
            return cls(data=given)
        others = (LeftOutRecord.left_out(hit, calls[hit.memory.id]) for hit in hits if hit.left_out is not None)
        return cls(data=given, left_out=tuple(others))


def _of_hit(hit: Hit, call: str | None) -> dict[str, Any]:
    return {**_fields(hit.memory), "score": hit.score, "parts": dict(hit.parts), "call": call}


def _fields(memory: Memory) -> dict[str, Any]:
    return {name: getattr(memory, name) for name in Record.model_fields}
