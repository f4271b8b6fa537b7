"""The grammar of `if`: what must hold for a rule to match. Pydantic models only; `compiled.py` makes them run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from proxy.policy.patterns import Patterns
from proxy.types import Language, ToolStatus

Feature = Literal[
    "number",
    "date",
    "code",
    "url",
    "statement",
    "question",
    "command",
    "hypothetical",
    "past",
    "passing",
    "reported",
    "denied",
    "quoted",
    "composed",
    "pasted",
    "role_play",
    "third_person",
]
FEATURES_NOT_ASSERTED: tuple[Feature, ...] = (
    "question",
    "hypothetical",
    "past",
    "passing",
    "reported",
    "denied",
    "quoted",
    "composed",
    "role_play",
    "third_person",
)
"""What `asserted: true` excludes."""


class Strict(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


OneOrMore = Annotated[tuple[str, ...], BeforeValidator(_listed, json_schema_input_type=str | list[str])]
LanguageList = Annotated[
    tuple[Language, ...], BeforeValidator(_listed, json_schema_input_type=Language | list[Language])
]
StatusList = Annotated[
    tuple[ToolStatus, ...], BeforeValidator(_listed, json_schema_input_type=ToolStatus | list[ToolStatus])
]
FeatureList = Annotated[tuple[Feature, ...], BeforeValidator(_listed, json_schema_input_type=Feature | list[Feature])]


class Length(Strict):
    """How many characters the text has; both ends count."""

    min: int = Field(default=0, ge=0)
    max: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        return self


class SimilarToExisting(Strict):
    """A stored memory is about as close as this to the text."""

    at_least: float = Field(ge=0, le=1)
    kind: str | None = None


class Value(Strict):
    """The value classifier's figure for the text."""

    at_least: float = Field(ge=0, le=1)


class Conditions(Strict):
    """All keys given must hold."""

    match: Patterns | None = Field(default=None, description="A pattern is found. Its named groups feed templates.")
    not_: Conditions | None = Field(default=None, alias="not", description="These do not all hold.")
    any: tuple[Conditions, ...] | None = Field(default=None, min_length=1, description="At least one holds.")
    all: tuple[Conditions, ...] | None = Field(default=None, min_length=1, description="Every one holds.")
    asserted: StrictBool | None = Field(
        default=None,
        description="The user's own lasting statement: no question, supposition, past, state of the moment, report or "
        "wish of others, denial, quote, text to be made, role-play.",
    )
    unclaimed: StrictBool | None = Field(
        default=None,
        description="No earlier rule has made a memory of these words: for general rules after special ones.",
    )
    has: FeatureList | None = Field(default=None, min_length=1, description="The text has one of these.")
    length: Length | None = None
    role: OneOrMore | None = None
    language: LanguageList | None = None
    tool: OneOrMore | None = Field(default=None, description="Globs on the tool's name.")
    status: StatusList | None = None
    finish_reason: OneOrMore | None = None
    agent: OneOrMore | None = Field(default=None, description="Globs.")
    user: OneOrMore | None = Field(default=None, description="Globs.")
    known: StrictBool | None = None
    similar_to_existing: SimilarToExisting | None = None
    value: Value | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("no condition is given")
        return self
