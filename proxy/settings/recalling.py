"""Settings of what a call is told: recall, injection, sessions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from proxy.settings.section import Real, Section, Whole
from proxy.types import MemoryType

API_DEADLINE_MS = 400
"""Default of `recall.deadline_ms` where each recall asks an embedding API."""


class Quotas(Section):
    """Most memories of each type in one recall; a type that is left out keeps its default."""

    working: Literal["all"] | Whole = Field("all", description="Working memory; all, or a number.")
    semantic: Literal["all"] | Whole = Field(8, description="Lasting facts and preferences.")
    episodic: Literal["all"] | Whole = Field(5, description="What happened.")
    reflective: Literal["all"] | Whole = Field(2, description="Lessons drawn from episodes.")

    @field_validator("*")
    @classmethod
    def _not_negative(cls, value: str | int) -> str | int:
        if isinstance(value, int) and value < 0:
            raise ValueError("must be all, or a number from 0 up")
        return value

    def limit(self, memory_type: MemoryType) -> int | None:
        """Most memories of this type in one recall; None is no limit."""
        value = getattr(self, memory_type)
        return None if value == "all" else int(value)


class Recall(Section):
    """How memories are looked up before a call."""

    deadline_ms: Whole = Field(
        50,
        ge=1,
        description="Recall is cut off after this long; what has arrived is used. With `embedding.provider: litellm` "
        f"the default is {API_DEADLINE_MS}.",
    )
    cache_s: Real = Field(30, ge=0, description="How long a recall may be reused; any write in the scope ends it.")
    min_confidence: Real = Field(0.25, ge=0, le=1, description="Memories below are kept pending, never injected.")
    quotas: Quotas = Field(default_factory=Quotas, description="Most memories of each type.")
    recent_episodic: Whole = Field(2, ge=0, description="Newest episodes that come along whatever the question.")


class Inject(Section):
    """How recalled memories enter the request."""

    placement: Literal["system", "user", "session"] = Field(
        "session",
        description="session: frozen at a session's first turn, later memories behind the newest user message, so that "
        "prompts stay cacheable; system: rebuilt at the end of the system prompt; user: of the newest user message.",
    )
    budget_tokens: Whole = Field(1200, ge=0, description="Most tokens of memory in one request.")
    share_of_context: Real = Field(0.15, gt=0, le=1, description="Most memory as a share of the model's window.")
    max_item_chars: Whole = Field(400, ge=40, description="Longer memories are injected in their short form.")


class Session(Section):
    """When a conversation counts as over."""

    idle_s: Whole = Field(1800, ge=1, description="Idle seconds after which a session ends.")
