"""The door for conversations that were held elsewhere: each goes through the policies, turn by turn.

In: JSON lines, one conversation each. Out: what became of them. Sent again, in whole or in part, nothing is doubled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from proxy.auth import Principal
from proxy.errors import RequestError, StoreError, StoreUnavailable
from proxy.http.answers import shape_answer
from proxy.http.bodies import Part, read_query
from proxy.http.memory.entrance import Entrance
from proxy.http.operation import NDJSON, Answer, Operation, Route
from proxy.http.shapes import ErrorDetail, LineError, Shape
from proxy.replay.transcript import Turn, read
from proxy.retelling import Account, Retelling
from proxy.scope import Scope

MAX_MESSAGES = 10_000
_MAX_TOLD = 100
_MAX_PROPOSALS = 200


class ConversationLine(BaseModel):
    """One conversation. Each message may tell when it was said: ``"at"``, ISO 8601 or Unix seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Part | None = Field(None, description="Its session; by default made from how it begins.")
    at: str | float | None = Field(None, description="Of messages that tell no time.")
    messages: Annotated[tuple[dict[str, Any], ...], Field(min_length=1, max_length=MAX_MESSAGES)] = Field(
        description="OpenAI chat messages, oldest first."
    )


class Telling(BaseModel):
    """The query of `POST /memory/import/turns`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dry_run: bool = Field(False, description="Only say what would be written.")
    user_id: Part | None = None
    agent_id: Part | None = None


class Proposed(Shape):
    """One thing that would be written."""

    sort: Literal["memory", "slot", "forget", "restore"]
    rule_id: str
    content: str
    name: str | None = Field(description="The slot's, or the memory's key.")
    kind: str
    memory_type: str
    scope: str
    confidence: float | None
    tags: tuple[str, ...]
    on_conflict: str
    model: str | None = Field(description="The model that would be asked; `content` is what is written without it.")


class ToldAnswer(Shape):
    """What became of the conversations."""

    conversations: int = Field(description="Lines that could be read.")
    turns: int = Field(description="Turns told to the policies.")
    known: int = Field(description="Turns that had been told before, and were left alone.")
    dropped: int = Field(description="Turns that a rule keeps out of memory.")
    outcomes: dict[str, int] = Field(description="How many memories were created, merged, superseded …")
    proposals: tuple[Proposed, ...] = Field((), description="Of a dry run: the first 200 to be written.")
    proposed: int = Field(0, description="Of a dry run: how many there are.")
    failed: int
    dry_run: bool
    errors: tuple[LineError, ...] = Field(description="The first 100.")


class FailedTelling(ToldAnswer):
    """Some conversations could not be read or written; the others were."""

    error: ErrorDetail


@dataclass(slots=True)
class _Tally:
    account: Account = field(default_factory=Account)
    conversations: int = 0
    failed: int = 0
    errors: list[LineError] = field(default_factory=list)

    def fail(self, line: int, message: str) -> None:
        self.failed += 1
        if len(self.errors) < _MAX_TOLD:
            self.errors.append(LineError(line=line, message=message))


@dataclass(frozen=True)
class TurnsDoor:
    """`POST /memory/import/turns`.

    Args:
        entrance: The way in.
        retelling: Tells conversations to the policies.
    """

    entrance: Entrance
    retelling: Retelling

    def routes(self) -> list[Route]:
        """This door's route."""
        told = Answer(200, "Every conversation was told, or had been.", ToldAnswer)
        refused = Answer(422, "Some could not be; the others were.", FailedTelling)
        operation = Operation(
            "POST", "/memory/import/turns", "Put conversations held elsewhere through the policies", "transfer",
            "memory:write", (told, refused), query=Telling, body=ConversationLine, body_media=NDJSON, errors=(415,),
        )  # fmt: skip
        return [Route(operation, self.take_in)]

    async def take_in(self, request: web.Request, principal: Principal) -> web.Response:
        """Tell conversations, line by line."""
        query = read_query(request, Telling)
        scope = self.entrance.owner(request, principal, query.model_dump(include={"user_id", "agent_id"}))
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise RequestError("send the lines as they are, not compressed", status=415, code="content_encoding")
        tally = _Tally()
        for number, line in enumerate((await request.read()).split(b"\n"), 1):
            if line.strip():
                # One at a time, so that a long import does not keep one of the API's threads for itself.
                await self.entrance.run(lambda at=number, data=line: self._take(scope, at, data, tally, query.dry_run))  # type: ignore[misc]
        return _answer(tally, dry_run=query.dry_run)

    def _take(self, scope: Scope, number: int, data: bytes, tally: _Tally, dry_run: bool) -> None:
        try:
            line = ConversationLine.model_validate_json(data)
            turns = self._turns(line, number)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False, include_input=False)
            said = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'line'}: {one['msg']}" for one in details[:5])
            return tally.fail(number, said)
        except ValueError as error:
            return tally.fail(number, str(error))
        tally.conversations += 1
        session = scope.in_session(line.id or session_of(turns))
        tell = self.retelling.rehearse if dry_run else self.retelling.tell
        try:
            tell(session, turns, tally.account)
        except StoreUnavailable:
            raise
        except StoreError as error:
            tally.fail(number, str(error))

    def _turns(self, line: ConversationLine, number: int) -> list[Turn]:
        whole = {"at": line.at, "messages": line.messages}
        try:
            text = orjson.dumps(whole).decode()
        except (TypeError, orjson.JSONEncodeError) as error:
            raise ValueError(f"messages: {error}") from error
        found = read([text], "", now=self.retelling.clock(), zone=self.retelling.zone)
        if found.problems:
            raise ValueError("; ".join(problem.message for problem in found.problems[:5]))
        if not any(turn.new for turn in found.turns):
            raise ValueError("nobody but the assistant says anything in it")
        return found.turns


def session_of(turns: list[Turn]) -> str:
    """The session of a conversation without an id: the same when it comes again, or has gone on since.

    Args:
        turns: Its turns; the first exchange names it, since many a conversation opens with "hi".
    """
    first = next(turn for turn in turns if turn.new)
    opening = f"{first.new[-1].chain}\0{first.answer.hash if first.answer else ''}"
    return f"import-{blake2b(opening.encode(), digest_size=12).hexdigest()}"


def _answer(tally: _Tally, *, dry_run: bool) -> web.Response:
    account = tally.account
    fields: dict[str, Any] = {
        "conversations": tally.conversations,
        "turns": account.turns,
        "known": account.known,
        "dropped": account.dropped,
        "outcomes": dict(account.outcomes),
        "proposals": tuple(Proposed.model_validate(one) for one in account.proposals[:_MAX_PROPOSALS]),
        "proposed": len(account.proposals),
        "failed": tally.failed,
        "dry_run": dry_run,
        "errors": tuple(tally.errors),
    }
    if not tally.failed:
        return shape_answer(ToldAnswer(**fields))
    first = tally.errors[0]
    error = ErrorDetail(
        message=f"{tally.failed} conversation(s) did not come in; line {first.line}: {first.message}. The others did: "
        "mend these, and send them again",
        type="invalid_request_error",
        code="invalid_lines",
        param=f"line {first.line}",
    )
    return shape_answer(FailedTelling(error=error, **fields), status=422)
