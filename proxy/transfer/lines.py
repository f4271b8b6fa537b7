"""The lines of an export: a record with all that belongs to it but its vector, as one JSON object.

In: `Carried` records. Out: lines; and the models that a line coming in is checked by. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from proxy.plugs import Carried, Derivation
from proxy.rank import MAX_STRENGTH
from proxy.scope import check_part
from proxy.types import Language, Memory, within_calendar

MAX_CONTENT_CHARS = 100_000


def _as_uuid(value: str) -> str:
    return str(UUID(value))


def _as_part(value: str) -> str:
    return check_part("id", value)


Id = Annotated[str, AfterValidator(_as_uuid)]
Part = Annotated[str, AfterValidator(_as_part)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Content = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT_CHARS)]
Moment = Annotated[AwareDatetime, AfterValidator(within_calendar)]
_MOST = 2**53  # what every reader of JSON can tell
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Line(BaseModel):
    # Strict: a misspelt or mistyped field is told, never lost.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, from_attributes=True)


class LineSource(_Line):
    """Where a memory came from."""

    role: str | None = None
    session: str | None = None
    request: str | None = None
    message_hash: str | None = None
    tool: str | None = None
    rule: str | None = None
    policy_hash: str | None = None


class RecordLine(_Line):
    """One state of a record. `content` is enough: what is missing is filled in as for a new record."""

    id: Id | None = None
    tenant: str | None = Field(None, description="For information: an import always goes into the caller's tenant.")
    user_id: Part | None = None
    agent_id: Part | None = None
    session_id: Part | None = None
    scope: Literal["agent", "user", "shared"] = "agent"
    memory_type: Literal["episodic", "semantic", "reflective"] = "semantic"
    kind: Name = "fact"
    content: Content
    key: Name | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    language: Language | None = None
    confidence: Share = 0.8
    strength: Annotated[float, Field(ge=0, le=MAX_STRENGTH, allow_inf_nan=False)] = 1.0
    access_count: Annotated[int, Field(ge=0, le=_MOST)] = 0
    last_accessed_at: Moment | None = None
    created_at: Moment | None = None
    updated_at: Moment | None = None
    valid_from: Moment | None = None
    expires_at: Moment | None = None
    version: Annotated[int, Field(ge=1, le=_MOST)] = 1
    supersedes: Id | None = None
    superseded_by: Id | None = None
    parent_id: Id | None = None
    state: Literal["active", "pending", "superseded", "archived"] = "active"
    source: LineSource = LineSource(rule="import")
    token_estimate: Annotated[int, Field(ge=0, le=_MOST)] | None = None
    short: str | None = Field(None, description="For information: an import makes it anew from the content.")
    change: Name = "created"


class VersionLine(RecordLine):
    """A former state of a record."""

    changed_at: Moment


class LinkLine(_Line):
    """A record that this one was made from, or stands for."""

    evidence: Id
    how: Derivation


class SightingLine(_Line):
    """Where the words of a record were said again."""

    session: str
    message: str
    at: Moment


class CarriedLine(RecordLine):
    """One line of an export: a record, and all that belongs to it."""

    history: tuple[VersionLine, ...] = ()
    links: tuple[LinkLine, ...] = ()
    said_again: tuple[SightingLine, ...] = ()

    @classmethod
    def of(cls, carried: Carried) -> Self:
        """A record as a line."""
        return cls.model_validate(
            {
                **_fields(carried.memory),
                "change": carried.change,
                "history": tuple(
                    VersionLine.model_validate({**_fields(one.memory), "change": one.change, "changed_at": one.at})
                    for one in carried.history
                ),
                "links": tuple(LinkLine(evidence=evidence, how=how) for evidence, how in carried.links),
                "said_again": tuple(SightingLine.model_validate(seen) for seen in carried.said_again),
            }
        )


def lines(records: Iterable[Carried]) -> Iterator[bytes]:
    """Records as JSON lines, each with its line feed."""
    for one in records:
        yield CarriedLine.of(one).model_dump_json().encode() + b"\n"


def _fields(memory: Memory) -> dict[str, Any]:
    source = LineSource.model_validate(memory.source)
    told = {name: getattr(memory, name) for name in RecordLine.model_fields if name in memory.__dataclass_fields__}
    return {**told, "source": source}
