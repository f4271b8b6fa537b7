"""A transcript in JSON lines, read as the turns that would have passed through the proxy.

Pure. In: the lines of a file: one message each, or one conversation ``{"messages": [...]}`` each. Out: `Turn`s, each
message with the line it stands on, or every mistake at once. A conversation that repeats an earlier one and goes on (a
log of requests, with the history resent) counts from where it goes on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any

import orjson

from proxy.errors import Problem
from proxy.types import Answer, Message
from proxy.wire import chat
from proxy.wire.splice import parse

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_SYSTEM = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Turn:
    """What one call newly said, and what was answered.

    Args:
        conversation: 1-based number of the conversation.
        number: 1-based number of the turn in it.
        at: When.
        new: Messages after the last assistant message.
        context: That assistant message; None at the start.
        answer: None where the transcript ends without one.
        user_text: The newest user text.
        system: The system text so far.
        lines: Line of each message, by its content hash; that of the answer under ``""``.
    """

    conversation: int
    number: int
    at: datetime
    new: tuple[Message, ...]
    context: Message | None
    answer: Answer | None
    user_text: str
    system: str
    lines: Mapping[str, int]


@dataclass(slots=True)
class Transcript:
    """A file read.

    Args:
        turns: In order, whatever could be read.
        problems: What could not.
    """

    turns: list[Turn] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Said:
    message: Message
    line: int
    at: datetime


def read(lines: Iterable[str], file: str, *, now: datetime, zone: tzinfo) -> Transcript:
    """Read a transcript.

    Args:
        lines: Of the file; blank ones do not count.
        file: Its name, for problems.
        now: When a message was said that does not tell.
        zone: Of times without an offset.

    Returns:
        Its turns, and what is wrong with it.
    """
    result = Transcript()
    alone: list[tuple[dict[str, Any], int]] = []
    conversations: list[list[tuple[dict[str, Any], int]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = _items(line)
        except ValueError as error:
            result.problems.append(Problem(file, number, None, "", str(error)))
            continue
        if "messages" in found:
            conversations.append([(item, number) for item in found["messages"]])
        else:
            alone.append((found, number))
    ends: dict[str, int] = {}
    for items in [alone, *conversations] if alone else conversations:
        said = list(_said(items, file, now, zone, result.problems))
        chains = [one.message.chain for one in said if one.message.role not in _SYSTEM]
        # Two that only open alike are two; one that holds a whole earlier one goes on with it.
        upto = max((place for place, chain in enumerate(chains) if chain in ends), default=-1)
        place = ends[chains[upto]] if upto >= 0 else max(ends.values(), default=0) + 1
        result.turns += _turns(said, place, chains[: upto + 1])
        ends |= dict.fromkeys(chains[-1:], place)
    return result


def _items(line: str) -> dict[str, Any]:
    """One line as a message, or as a conversation.

    Raises:
        ValueError: It is neither; the message says what is wrong.
    """
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError('not an object; expected {"role": …, "content": …} or {"messages": […]}')
    if "messages" not in found:
        _check(found)
        return found
    if not isinstance(found["messages"], list):
        raise ValueError("messages is not a list")
    at = found.get("at")
    items = []
    for place, item in enumerate(found["messages"]):
        if not isinstance(item, dict):
            raise ValueError(f"messages[{place}] is not an object")
        try:
            _check(item)
        except ValueError as error:
            raise ValueError(f"messages[{place}]: {error}") from error
        items.append({"at": at, **item} if at is not None else item)
    return {"messages": items}


def _check(item: Mapping[str, Any]) -> None:
    role = item.get("role")
    if role is None:
        raise ValueError("no role")
    if role not in ROLES:
        raise ValueError(f"role {role!r} is none of {', '.join(ROLES)}")
    if item.get("content") is None and not item.get("tool_calls"):
        raise ValueError("no content")


def _said(
    items: Sequence[tuple[dict[str, Any], int]], file: str, now: datetime, zone: tzinfo, problems: list[Problem]
) -> Iterator[_Said]:
    """The messages of a conversation, with line and time; one that tells none has that of the one before."""
    if not items:
        return
    messages = chat.messages(parse(orjson.dumps({"messages": [item for item, _ in items]}))) or ()
    at = now
    for (item, line), message in zip(items, messages, strict=True):
        if item.get("at") is not None:
            try:
                at = _moment(item["at"], zone)
            except ValueError as error:
                problems.append(Problem(file, line, None, "at", str(error)))
        yield _Said(message, line, at)


def _moment(value: Any, zone: tzinfo) -> datetime:
    """A moment as Unix seconds or ISO 8601.

    >>> _moment("2026-11-30T09:00:00", UTC) == _moment(1796029200, UTC)
    True
    """
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{value!r} is no time; write 2026-11-30T09:00:00+08:00, or Unix seconds") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def _turns(said: Sequence[_Said], conversation: int, known: Container[str]) -> Iterator[Turn]:
    """The turns of a conversation, without those that an earlier one had already."""
    new: list[_Said] = []
    context: Message | None = None
    user_text, system, number = "", "", 0
    ended = [*said, None]
    for one in ended:
        message = one.message if one else None
        if message is not None and message.role in _SYSTEM:
            system = f"{system}\n{message.text}".strip()
            continue
        if one is not None and message is not None and message.role != "assistant":
            user_text = message.text if message.role == "user" else user_text
            new.append(one)
            continue
        if not new and message is None:
            return
        number += 1
        last = one or new[-1]
        if last.message.chain not in known:
            fresh = [item for item in new if item.message.chain not in known]
            yield _turn(fresh, one, last, (conversation, number), context, user_text, system)
        context, new = message, []


def _turn(
    new: Sequence[_Said],
    answered: _Said | None,
    last: _Said,
    place: tuple[int, int],
    context: Message | None,
    user_text: str,
    system: str,
) -> Turn:
    lines = {one.message.hash: one.line for one in new}
    answer = None
    if answered is not None:
        message = answered.message
        calls = message.tool_calls
        answer = Answer(message.text, calls, "tool_calls" if calls else "stop", hash=message.hash)
        lines[""] = answered.line
    at = new[0].at if new else last.at
    return Turn(*place, at, tuple(one.message for one in new), context, answer, user_text, system, lines)
