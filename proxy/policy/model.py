"""The grammar of a policy file as pydantic models: strict, frozen, and the source of the JSON Schema for editors.

In: plain data of one YAML file. Out: a `PolicyFile`. What spans several fields or files is checked in `check.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, StrictBool, Tag, model_validator

from proxy.policy.conditions import Conditions, Strict
from proxy.policy.durations import Duration, Span
from proxy.policy.examples import Examples
from proxy.policy.llm import ANSWER_SCHEMA
from proxy.policy.patterns import LANGUAGES
from proxy.policy.retention import RetentionSection
from proxy.policy.retrieval import RetrievalSection
from proxy.policy.schedule import Schedule
from proxy.types import EventType, Language, MemoryType, OnConflict, Visibility

Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
Text = Annotated[str, Field(min_length=1, max_length=2_000)]
NamedEvent = Literal["request", "user_message", "assistant_message", "tool_result", "turn_end", "session_end"]
SweepStep = Literal["expire", "archive", "erase", "merge", "limits", "compress", "promote", "reflect"]
"""What a sweep does, each idempotent: `proxy.sweep` carries them out in this order."""


class TurnEndEvery(Strict):
    """Every n-th turn of a session."""

    every: int = Field(ge=1)


class WhenTurnEnd(Strict):
    """`when: {turn_end: {every: 10}}`"""

    turn_end: TurnEndEvery


def _schedule(text: str) -> str:
    Schedule.parse(text)
    return text


class WhenSchedule(Strict):
    """`when: {schedule: "daily 03:00"}`"""

    schedule: Annotated[str, AfterValidator(_schedule)] = Field(
        description="`hourly`, `daily 03:00` or `weekly mon 03:00`, in identity.timezone."
    )


def _when_form(value: Any) -> str:
    if isinstance(value, WhenSchedule) or (isinstance(value, Mapping) and "schedule" in value):
        return "(schedule)"
    return "(turn end)" if isinstance(value, Mapping | WhenTurnEnd) else "(name)"


def _with_a_time(value: Any) -> Any:
    if value == "schedule":
        raise ValueError('a schedule needs its time; write {schedule: "daily 03:00"}')
    return value


When = Annotated[
    Annotated[NamedEvent, BeforeValidator(_with_a_time, json_schema_input_type=NamedEvent), Tag("(name)")]
    | Annotated[WhenTurnEnd, Tag("(turn end)")]
    | Annotated[WhenSchedule, Tag("(schedule)")],
    Discriminator(_when_form),
]


def _by_language(value: Any) -> Any:
    if isinstance(value, str):
        return {"every": value}
    if isinstance(value, dict) and (unknown := [key for key in value if key not in LANGUAGES]):
        raise ValueError(f"'{unknown[0]}' is not a language here; one of zh, en, other")
    return value


class TextByLanguage(Strict):
    """A template per language, or one for every language."""

    zh: Text | None = None
    en: Text | None = None
    other: Text | None = None
    every: Text | None = None

    def for_language(self, language: Language) -> str | None:
        """The template for a language; English, then any, stands in where there is none."""
        own: str | None = getattr(self, language)
        return own or self.every or (self.en or self.zh if language == "other" else None)


TemplateInput = str | dict[Language, str]
Template = Annotated[TextByLanguage, BeforeValidator(_by_language, json_schema_input_type=TemplateInput)]


class Verbatim(Strict):
    """The words as they were said."""

    of: Literal["sentence", "message"] = "sentence"
    max_chars: int = Field(default=400, ge=1, le=8_000)
    stand_alone: StrictBool = Field(
        default=False,
        description="Make the words stand alone: the first person becomes the user, relative dates become dates.",
    )


class Llm(Strict):
    """Extraction by a model of config.yaml."""

    model: str = Field(min_length=1, description="A name under models: in config.yaml; `extractor` may be missing.")
    prompt: Annotated[str, Field(min_length=1, max_length=20_000)] = Field(
        description="May use $captures, $text (what matched), $message (all the writer says) and the other names."
    )
    schema_: Mapping[str, Any] = Field(
        default=ANSWER_SCHEMA, alias="schema", min_length=1, description="JSON Schema of the answer."
    )
    timeout: Span = 20.0
    otherwise: Literal["verbatim", "template", "nothing"] = Field(
        default="nothing", description="What is kept when the model is missing, fails, is late or over its cap."
    )
    daily_tokens: int | None = Field(default=None, ge=1, description="A tenant's tokens a day; null is no limit.")


class Extract(Strict):
    """What is kept of the event; exactly one way. Beside `llm` stands what its `otherwise` names."""

    template: Template | None = None
    verbatim: Verbatim | None = None
    slots: Mapping[Text, Text] | None = Field(
        default=None,
        min_length=1,
        description="Slot name → `$capture`, a template of captures, or a JSON path `$.a[0]`.",
    )
    llm: Llm | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        beside = self.llm.otherwise if self.llm is not None else None
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        if beside == "template" and given == {"llm"}:
            raise ValueError("llm.otherwise is template; give extract.template beside llm")
        if len(given) != 1 and given != {"llm", beside}:
            raise ValueError("give exactly one of template, verbatim, slots, llm; beside llm only what otherwise names")
        return self


class Write(Strict):
    """What kind of memory comes of it."""

    memory_type: MemoryType
    kind: Word = "fact"
    scope: Visibility = "agent"
    key: Text | None = Field(default=None, description="One answer at a time; may use $captures.")
    tags: tuple[Text, ...] = ()
    confidence: float = Field(default=0.8, ge=0, le=1)
    ttl: Duration = None
    on_conflict: OnConflict = "keep_both"
    slot: Text | None = Field(default=None, description="Working-memory slot for a template or verbatim text.")
    link: Literal["parent"] | None = None


def _steps(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _each_once(steps: tuple[SweepStep, ...]) -> tuple[SweepStep, ...]:
    if twice := next((step for step in steps if steps.count(step) > 1), None):
        raise ValueError(f"'{twice}' stands twice; keep one of them")
    return steps


SweepSteps = Annotated[
    tuple[SweepStep, ...],
    BeforeValidator(_steps, json_schema_input_type=SweepStep | list[SweepStep]),
    AfterValidator(_each_once),
]


class Trigger(Strict):
    """One rule."""

    id: Id
    why: str | None = None
    override: StrictBool = Field(default=False, description="In local/: replaces the rule with this id.")
    mode: Literal["live", "shadow", "disabled"] = "live"
    when: When
    if_: Conditions | None = Field(default=None, alias="if")
    extract: Extract | None = None
    write: Write | None = None
    drop: StrictBool = Field(default=False, description="Ends the event for all later rules.")
    forget: StrictBool = Field(
        default=False,
        description="The user asks to forget; extract says about what, without it what was said last. Restorable.",
    )
    restore: StrictBool = Field(default=False, description="The user takes a forget back; extract as for forget.")
    sweep: SweepSteps | None = Field(
        default=None,
        min_length=1,
        description="What a schedule does with stored memories. A `write` beside `reflect` shapes its lessons.",
    )
    examples: Examples = ()

    @property
    def event(self) -> EventType:
        """The event the rule waits for."""
        if isinstance(self.when, WhenSchedule):
            return "schedule"
        return "turn_end" if isinstance(self.when, WhenTurnEnd) else self.when

    @property
    def every(self) -> int:
        """Every how many turns a `turn_end` rule runs."""
        return self.when.turn_end.every if isinstance(self.when, WhenTurnEnd) else 1


class Pii(Strict):
    """What happens to personal data, by kind."""

    phone: Literal["redact", "keep"] = "redact"
    id_number: Literal["redact", "keep"] = "redact"
    card: Literal["redact", "keep"] = "redact"
    email: Literal["redact", "keep"] = "keep"


class Rate(Strict):
    """Upper limits; null is none."""

    writes_per_minute: int | None = Field(default=None, ge=1)
    memories_per_user: int | None = Field(default=None, ge=1)


class Guard(Strict):
    """What stands between an event and the store."""

    secrets: Literal["redact", "drop"] = "redact"
    pii: Pii = Pii()
    instructions: Literal["quarantine"] = "quarantine"
    tool_confidence: float = Field(default=0.6, ge=0, le=1)
    max_chars: int = Field(default=8_000, ge=100, le=100_000)
    rate: Rate = Rate()


class PolicyFile(Strict):
    """One file under policies/."""

    version: Literal[1]
    triggers: tuple[Trigger, ...] = ()
    retention: RetentionSection | None = None
    retrieval: RetrievalSection | None = None
    guard: Guard | None = None
