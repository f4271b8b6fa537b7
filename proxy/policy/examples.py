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


def _request(value: Any) -> Any:
    return {"user": value} if isinstance(value, str) else value


class Expected(Strict):
    """Part of a draft or slot: what is given must be equal."""

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

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("say what is expected, or write 'ignored'")
        return self


def _form(value: Any) -> str:
    return "(word)" if isinstance(value, str) else "(list)"


Expect = Annotated[
    Annotated[Literal["ignored", "dropped"], Tag("(word)")] | Annotated[tuple[Expected, ...], Tag("(list)")],
    Discriminator(_form),
]


class Example(Strict):
    """One event in short form, with its expectation."""

    user: str | None = None
    assistant: str | None = None
    tool: ToolExample | None = None
    request: (
        Annotated[RequestExample, BeforeValidator(_request, json_schema_input_type=str | RequestExample)] | None
    ) = None
    turn_end: TurnExample | None = None
    session_end: str | None = None
    expect: Expect

    @model_validator(mode="after")
    def _one_event(self) -> Self:
        if len(self.model_fields_set - {"expect"}) != 1:
            raise ValueError("give exactly one of user, assistant, tool, request, turn_end, session_end")
        if isinstance(self.expect, tuple) and not self.expect:
            raise ValueError("write 'ignored' instead of an empty list")
        return self

    @property
    def event_type(self) -> EventType:
        """The event that the example stands for."""
        names: Mapping[str, EventType] = {
            "user": "user_message",
            "assistant": "assistant_message",
            "tool": "tool_result",
            "request": "request",
            "turn_end": "turn_end",
            "session_end": "session_end",
        }
        return next(event for name, event in names.items() if getattr(self, name) is not None)


Examples = tuple[Example, ...]
