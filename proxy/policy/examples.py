"""Examples inside policy files: a little event, and what must come of it. A failing example refuses the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from proxy.policy.conditions import Strict
from proxy.types import EventType, Language, MemoryType, OnConflict, ToolStatus, Visibility


class ToolExample(Strict):
    """A tool's result."""

    name: str = "tool"
    content: str
    status: ToolStatus | None = Field(default=None, description="Inferred from the content when left out.")
    arguments: str | None = None
    user: str = Field(default="", description="What the user had asked.")


class RequestExample(Strict):
    """A request before recall."""

    system: str = ""
    user: str = ""


class TurnExample(Strict):
    """A turn that has ended."""

    user: str = ""
    assistant: str = ""
    finish_reason: str | None = "stop"
    number: int = Field(default=1, ge=1)


class SessionExample(Strict):
    """A session that has ended, with what was made of it."""

    text: str = Field(default="", description="What the user said in it, one message a line.")
    summary: str = ""
    points: tuple[str, ...] = ()
    session: str = "s-1"
    turns: int = Field(default=3, ge=0)
    explicit: bool = Field(default=False, description="Ended on purpose, not by idle time.")


def _session(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


def _request(value: Any) -> Any:
    return {"user": value} if isinstance(value, str) else value


class Expected(Strict):
    """Part of a draft, slot or request to forget: what is given must be equal."""

    content: str | None = None
    kind: str | None = None
    memory_type: MemoryType | None = None
    scope: Visibility | None = None
    key: str | None = None
    tags: tuple[str, ...] | None = None
    confidence: float | None = None
    language: Language | None = None
    on_conflict: OnConflict | None = None
    slot: str | None = None
    value: Any = None
    forget: str | None = Field(default=None, description="About what; null for what was said last.")
    restore: str | None = Field(default=None, description="About what; null for what was forgotten last.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("say what is expected, or write 'ignored'")
        return self


def _form(value: Any) -> str:
    return "(word)" if isinstance(value, str) else "(list)"


Expect = Annotated[
    Annotated[Literal["ignored", "dropped", "forgets", "restores"], Tag("(word)")]
    | Annotated[tuple[Expected, ...], Tag("(list)")],
    Discriminator(_form),
]


_EVENTS: Mapping[str, EventType] = {
    "user": "user_message",
    "assistant": "assistant_message",
    "tool": "tool_result",
    "request": "request",
    "turn_end": "turn_end",
    "session_end": "session_end",
    "episodes": "schedule",
}
"""The field that gives an example's event → that event."""


class Example(Strict):
    """One event in short form, with its expectation; `known`, `similar`, `value` and `answer` are given beside it."""

    user: str | None = None
    assistant: str | None = None
    tool: ToolExample | None = None
    request: (
        Annotated[RequestExample, BeforeValidator(_request, json_schema_input_type=str | RequestExample)] | None
    ) = None
    turn_end: TurnExample | None = None
    session_end: (
        Annotated[SessionExample, BeforeValidator(_session, json_schema_input_type=str | SessionExample)] | None
    ) = None
    episodes: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="For a schedule: the owner's episodic memories of the last period."
    )
    known: tuple[str, ...] = Field(default=(), description="Names that stored memories are about.")
    similar: float = Field(default=0.0, ge=0, le=1, description="How close the closest stored memory is.")
    value: float = Field(default=1.0, ge=0, le=1, description="What the value classifier says.")
    answer: Any = Field(default=None, description="For llm: the model's JSON answer; without it the rule falls back.")
    expect: Expect

    @model_validator(mode="after")
    def _one_event(self) -> Self:
        if sum(getattr(self, name) is not None for name in _EVENTS) != 1:
            raise ValueError(f"give exactly one of {', '.join(_EVENTS)}")
        if isinstance(self.expect, tuple) and not self.expect:
            raise ValueError("write 'ignored' instead of an empty list")
        return self

    @property
    def event_type(self) -> EventType:
        """The event that the example stands for."""
        return next(event for name, event in _EVENTS.items() if getattr(self, name) is not None)


Examples = tuple[Example, ...]
