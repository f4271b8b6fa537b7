"""What endpoints about calls, sessions, policies and the house itself answer with, as pydantic models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue

from proxy.http.shapes import Shape


# ── calls and sessions ─────────────────────────────────────────────────────────────────────────────────────────────
class CallScope(Shape):
    """Whose call it was."""

    tenant: str
    user_id: str
    agent_id: str
    session_id: str | None


class RecalledEntry(Shape):
    """A memory that was considered for a call, with every score."""

    model_config = ConfigDict(extra="allow")

    id: str
    content: str | None = Field(description="As it is now; null once it is forgotten.")


class WrittenOutcome(Shape):
    """What became of one draft."""

    rule_id: str
    action: str
    memory_id: str | None
    reason: str


class Written(Shape):
    """What a call wrote."""

    status: str = Field(description="queued, done or failed.")
    outcomes: tuple[WrittenOutcome, ...]
    reason: str | None = Field(None, description="Why it failed.", exclude_if=lambda v: v is None)


class CallLedger(Shape):
    """The account of one call."""

    id: str
    scope: CallScope
    created_at: AwareDatetime
    status: str
    recalled: tuple[RecalledEntry, ...]
    injected: dict[str, JsonValue] = Field(description="`placement`, `tokens` and `items`.")
    written: Written


class SlotShape(Shape):
    """One slot of working memory."""

    value: JsonValue
    updated_at: AwareDatetime
    rule: str | None


class SessionShape(Shape):
    """Working memory and task chain of a session."""

    session_id: str
    started_at: AwareDatetime | None
    last_at: AwareDatetime | None
    ended_at: AwareDatetime | None
    turns: int
    slots: dict[str, SlotShape]
    chain: tuple[dict[str, JsonValue], ...]
    degraded: str | None = Field(
        None, description="Why working memory is missing here.", exclude_if=lambda v: v is None
    )


class EndedSession(Shape):
    """A session that was ended."""

    session_id: str
    ended: Literal[True] = True


# ── the house ──────────────────────────────────────────────────────────────────────────────────────────────────────
class MemoryCounts(Shape):
    """How many records the caller may read, how many active ones have no vector of the present model yet, and how many
    searches each path answered."""

    by_memory_type: dict[str, int]
    by_kind: dict[str, int]
    by_state: dict[str, int]
    total: int
    unembedded: int
    exact_searches: int
    index_searches: int


class RecallCounts(Shape):
    """How many of the caller's recalls each source answered since the start."""

    exact: int
    index: int
    cache: int


class StatsAnswer(Shape):
    """Counts."""

    memories: MemoryCounts
    recalls: RecallCounts


class RuleShape(Shape):
    """One rule of the policies."""

    id: str
    file: str
    mode: Literal["live", "shadow", "disabled"]
    when: str
    why: str | None


class PoliciesAnswer(Shape):
    """The policies in force."""

    hash: str = Field(description="Of what they mean; every memory records it.")
    error: str | None = Field(description="Why the newest files are not in force; null when they are.")
    files: tuple[str, ...]
    rules: tuple[RuleShape, ...]


class ExplainedMessage(Shape):
    """What the rules make of one message."""

    message: int = Field(description="Its place in `messages`, from 0.")
    event: str
    text: str
    rules: tuple[dict[str, Any], ...] = Field(
        description="Per rule its outcome, every condition with what it asked for and what was there, and what it "
        "would write; the same as `sidemirror policy explain --json`."
    )


class ExplainAnswer(Shape):
    """What the rules make of each message."""

    data: tuple[ExplainedMessage, ...]


class Health(Shape):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(Shape):
    """Whether calls can be relayed, and what does not work."""

    status: Literal["ready", "stopping"]
    degraded: tuple[str, ...]
    details: dict[str, str] | None = None
