"""What a model may send to each tool, as pydantic models, and as the JSON Schemas that it is shown.

Lenient in form, since models are (null for "not given", a list as text, a number in quotes), strict in meaning. No
argument names a user or an agent: whose memories are meant is settled by the connection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from proxy.http.bodies import MAX_CONTENT_CHARS, Confidence, LongTermType, Name
from proxy.policy.durations import seconds

MAX_FOUND: Final = 20
LEAST_TEXT_CHARS: Final = 2
"""Two characters are a word in Chinese; one would match nearly everything."""


@dataclass(frozen=True, slots=True)
class Today:
    """What times without a date or a zone are read against.

    Args:
        now: Aware.
        zone: `identity.timezone`.
    """

    now: datetime
    zone: tzinfo


def moment(text: str, today: Today) -> datetime:
    """Read a point in time.

    Args:
        text: A date or time in ISO 8601, or how long ago, such as ``7d``.
        today: What it is read against.

    Raises:
        ValueError: It is neither.
    """
    try:
        read = datetime.fromisoformat(text.strip())
        return read if read.tzinfo is not None else read.replace(tzinfo=today.zone)
    except ValueError:
        ago_s = _ago_s(text)
    try:
        return today.now - timedelta(seconds=ago_s)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _ago_s(text: str) -> float:
    try:
        ago_s = seconds(text)
    except ValueError:
        ago_s = None
    if ago_s is None:
        raise ValueError(
            f"{text!r} is no point in time; write a date or time such as 2026-11-02 or 2026-11-02T08:30:00Z, "
            "or how long ago, such as 12h or 7d"
        )
    return ago_s


def _moment(value: Any, info: ValidationInfo) -> Any:
    return moment(value, info.context) if isinstance(value, str) and isinstance(info.context, Today) else value


def _parsed(value: Any) -> Any:
    """Lists and objects that came as their JSON text; a plain text is a list of one, or of what commas part."""
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, list | dict):
        return parsed
    return [part.strip() for part in value.replace("，", ",").replace("、", ",").split(",") if part.strip()]


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "examples": ["2026-11-02", "2026-11-02T08:30:00Z", "7d"]}),
]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_CONTENT_CHARS)]
Tags = Annotated[tuple[Name, ...], Field(max_length=32), BeforeValidator(_parsed)]
MemoryId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


class Arguments(BaseModel):
    """What every tool's arguments share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class TimeRange(Arguments):
    """Half-open: at `after` or later, before `before`."""

    after: Moment | None = Field(None, description="Written at this time or later; 7d means in the last seven days.")
    before: Moment | None = Field(None, description="Written before this time.")


class SearchArguments(Arguments):
    """`memory_search`."""

    query: Text = Field(description="What to look for, in the words the memory would use.")
    memory_type: LongTermType | None = Field(
        None,
        description="semantic: facts, preferences, decisions. episodic: what happened, and when. "
        "reflective: lessons drawn from several events. Leave it out to search all.",
    )
    top_k: Annotated[int, Field(ge=1, le=MAX_FOUND)] = Field(5, description="How many at most.")
    time_range: Annotated[TimeRange, BeforeValidator(_parsed)] | None = Field(None, description="When it was written.")
    tags: Tags = Field((), description="Only memories that carry every one of these tags.")


class WriteArguments(Arguments):
    """`memory_write`."""

    content: Text = Field(description="One complete statement, in the user's language.")
    memory_type: LongTermType = Field(
        "semantic", description="semantic: it holds. episodic: it happened. reflective: a lesson from several events."
    )
    kind: Name = Field(
        "fact",
        description="What it is: preference, fact, decision, feedback, correction, instruction, entity, task, "
        "tool_failure, summary, lesson, or a short word of your own.",
    )
    tags: Tags = Field((), description="A few short words to find it by.")
    confidence: Confidence = Field(
        0.8, description="How sure it is: 0.9 the user said so, 0.7 you concluded it. Under 0.25 it is not recalled."
    )
    scope: Literal["agent", "user"] | None = Field(
        None,
        description="user: every agent of this user may read it. agent: only you. Left out: user for preferences, "
        "instructions and corrections, agent for all else.",
    )


class UpdateArguments(Arguments):
    """`memory_update`."""

    memory_id: MemoryId = Field(description="The memory's id, from memory_search or memory_write.")
    content: Text | None = Field(None, description="What it should say: the whole statement, not a note about it.")
    confidence: Confidence | None = Field(None, description="How sure it is now, 0 to 1.")


class ForgetFilter(Arguments):
    """Which memories; every condition given must hold."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=LEAST_TEXT_CHARS)] | None = Field(
        None, description="Its content holds exactly this text, in any letter case."
    )
    kind: Name | None = Field(None, description="Of this kind, e.g. preference.")
    tags: Tags = Field((), description="Carries every one of these tags.")
    older_than: Moment | None = Field(None, description="Written before this time; 30d means over thirty days ago.")
    memory_type: LongTermType | None = Field(None, description="Narrows further; not enough alone.")

    @property
    def narrows(self) -> bool:
        """Whether it says more than a type, which would mean everything of it."""
        return bool(self.text or self.kind or self.tags or self.older_than)


class ForgetArguments(Arguments):
    """`memory_forget`."""

    memory_id: MemoryId | None = Field(None, description="The one memory to erase.")
    filter: Annotated[ForgetFilter, BeforeValidator(_parsed)] | None = Field(
        None, description="The memories to erase, instead of memory_id: at least one of text, kind, tags, older_than."
    )


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """A model's JSON Schema as clients of every age read it: no references, no null, no titles.

    Args:
        model: Of arguments or of a result.
    """
    whole = model.model_json_schema(mode="validation")
    definitions = whole.pop("$defs", {})
    whole.pop("description", None)  # our own words for the class
    plain = _plain(whole, definitions)
    assert isinstance(plain, dict)
    return plain


def _plain(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(one, definitions) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = {**definitions[node["$ref"].rpartition("/")[2]], **{key: node[key] for key in node if key != "$ref"}}
    choices = [one for one in node.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        node = {**choices[0], **{key: value for key, value in node.items() if key != "anyOf"}}
        return _plain(node, definitions)
    kept = {
        key: value
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value in (None, [], ()))
    }
    return {key: _plain(value, definitions) for key, value in kept.items()}
