"""Bodies and queries of the memory API as pydantic models; what they answer with is in `shapes`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from aiohttp import web
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
)

from proxy.errors import RequestError
from proxy.plugs import Filters
from proxy.scope import check_part
from proxy.transfer.lines import Moment
from proxy.types import OnConflict

M = TypeVar("M", bound=BaseModel)
MAX_CONTENT_CHARS = 8_000
LongTermType = Literal["episodic", "semantic", "reflective"]
LongTermScope = Literal["agent", "user", "shared"]
ListedState = Literal["active", "pending", "superseded", "archived", "forgotten", "all"]


def _scope_part(value: str, info: ValidationInfo) -> str:
    return check_part(info.field_name or "part", value)


Part = Annotated[str, AfterValidator(_scope_part)]
"""A user, agent or session id, exactly as given."""
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]
Content = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_CONTENT_CHARS)]
Tags = Annotated[tuple[Name, ...], Field(max_length=32)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
USER_KINDS = frozenset({"preference", "instruction", "correction"})
"""Kinds that hold for all of a user's agents when the writer names no scope."""


class _Body(BaseModel):
    # Strict: a JSON true is no number, and "5" is none either.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NewRecord(_Body):
    """`POST /memory/records`: `content` is enough."""

    content: Content
    memory_type: LongTermType = "semantic"
    kind: Name = "fact"
    scope: LongTermScope | None = None
    key: Name | None = None
    tags: Tags = ()
    confidence: Confidence = 0.8
    valid_from: Moment | None = None
    expires_at: Moment | None = None
    on_conflict: OnConflict = "supersede"
    user_id: Part | None = None
    agent_id: Part | None = None
    session_id: Part | None = None


class RecordChange(_Body):
    """`PATCH /memory/records/{id}`: the fields to change."""

    content: Content | None = None
    memory_type: LongTermType | None = None
    kind: Name | None = None
    key: Name | None = None
    tags: Tags | None = None
    confidence: Confidence | None = None
    expires_at: Moment | None = None
    state: Literal["active", "archived"] | None = None


class TimeRange(_Body):
    """Half-open interval on `created_at`."""

    after: AwareDatetime | None = None
    before: AwareDatetime | None = None


class Search(_Body):
    """`POST /memory/search`."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_CONTENT_CHARS)]
    top_k: Annotated[int, Field(ge=1, le=100)] = 5
    memory_type: LongTermType | None = None
    kind: Name | None = None
    tags: Tags = ()
    time_range: TimeRange | None = None
    explain: bool = False
    user_id: Part | None = None
    agent_id: Part | None = None

    @property
    def filters(self) -> Filters:
        """What the search is narrowed to."""
        span = self.time_range or TimeRange()
        return Filters(
            memory_type=self.memory_type,
            kind=self.kind,
            tags=self.tags,
            created_after=span.after,
            created_before=span.before,
        )


class _Narrowing(_Body):
    """What records can be narrowed by."""

    memory_type: LongTermType | None = None
    kind: Name | None = None
    key: Name | None = None
    session_id: Part | None = None
    scope: LongTermScope | None = None
    language: Literal["zh", "en", "other"] | None = None
    tags: Tags = Field((), description="Every one must be there; may be repeated in a query.")
    created_after: AwareDatetime | None = Field(None, description="From this moment on.")
    created_before: AwareDatetime | None = Field(None, description="Before this moment.")
    text: str | None = Field(None, description="Part of the content, in any letter case.")
    state: ListedState

    @property
    def filters(self) -> Filters:
        """The same for the store."""
        return Filters(
            state=None if self.state == "all" else self.state,
            memory_type=self.memory_type,
            kind=self.kind,
            key=self.key,
            session_id=self.session_id,
            scope=self.scope,
            language=self.language,
            tags=self.tags,
            created_after=self.created_after,
            created_before=self.created_before,
            text=self.text,
        )


class Listing(_Narrowing):
    """The query of `GET /memory/records`."""

    model_config = ConfigDict(strict=False)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: str | None = Field(None, description="`next_cursor` of the page before.")
    state: ListedState = "active"
    user_id: Part | None = None
    agent_id: Part | None = Field(None, description="`*` lists the records of all the user's agents.")


class TenantListing(Listing):
    """The query of `GET /debug/memories`: all users of the tenant, and all states, unless it says otherwise."""

    state: ListedState = "all"


class Forgetting(_Narrowing):
    """`POST /memory/forget`: which records go: those of `ids`, or those that meet every condition, or `all`."""

    ids: Annotated[tuple[Name, ...], Field(max_length=500, description="Instead of conditions.")] = ()
    state: ListedState = "all"
    all: bool = Field(False, description="Everything that this user has, as far as no other field narrows it.")
    dry_run: bool = Field(False, description="Only count.")
    user_id: Part | None = None
    agent_id: Part | None = Field(None, description="`*` means the records of all the user's agents.")

    @property
    def ways(self) -> int:
        """In how many ways it says which records are meant: by `ids`, by conditions, by `all`."""
        return self.all + bool(self.ids) + (self.filters != Filters(state=None))

    @property
    def takes_all(self) -> bool:
        """Whether everything of the user, or of one session, is meant."""
        return not self.ids and self.filters == Filters(state=None, session_id=self.session_id)


class Rejection(_Body):
    """`POST /memory/records/{id}/reject`."""

    forget: bool = Field(False, description="Erase it for good, instead of putting it into the archive.")


class Exporting(_Body):
    """The query of `GET /memory/export`."""

    model_config = ConfigDict(strict=False)

    user_id: Part | None = None
    agent_id: Part | None = Field(None, description="Only what this agent reads; all agents by default.")


class Importing(_Body):
    """The query of `POST /memory/import`."""

    model_config = ConfigDict(strict=False)

    move: bool = Field(False, description="Copy records of another user or agent, under ids of their own, to this one.")
    dry_run: bool = Field(False, description="Only check and count.")
    user_id: Part | None = None
    agent_id: Part | None = Field(None, description="The agent whose records they are; as each line says by default.")


class SaidMessage(BaseModel):
    """One message as OpenAI's clients send it; unknown fields are allowed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None


class Explaining(_Body):
    """`POST /memory/policies/explain`: a text, or messages."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT_CHARS)] | None = None
    role: Literal["user", "assistant", "tool"] = Field("user", description="Who says `text`.")
    tool: Name | None = Field(None, description="The tool that says it.")
    messages: Annotated[tuple[SaidMessage, ...], Field(min_length=1, max_length=200)] | None = None
    all: bool = Field(False, description="Also the rules that wait for something else, or were not reached.")
    user_id: Part | None = None
    agent_id: Part | None = None


async def read_body(request: web.Request, model: type[M]) -> M:
    """The request's JSON body.

    Raises:
        RequestError: 400, with every field at fault.
    """
    data = await request.read()
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        raise _invalid(error) from error


def read_query(request: web.Request, model: type[M]) -> M:
    """The request's query.

    Raises:
        RequestError: 400, with every parameter at fault.
    """
    fields: dict[str, Any] = {}
    for name in request.query:
        values = request.query.getall(name)
        fields[name] = tuple(values) if name == "tags" else values[-1]
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: ValidationError) -> RequestError:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{'.'.join(str(step) for step in one['loc']) or 'body'}: {one['msg']}" for one in details]
    code = "invalid_json" if details[0]["type"] == "json_invalid" else "invalid_field"
    param = ".".join(str(step) for step in details[0]["loc"]) or None
    return RequestError("; ".join(said), code=code, param=param)
