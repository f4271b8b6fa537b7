"""Transcripts as JSON lines: one OpenAI message each, or one conversation ``{"messages": [...]}`` each.

In: lines. Out: `Imported`. Whether the messages are what they must be is told by whoever takes them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from proxy.errors import Problem
from proxy.importing.imported import Conversation, Imported, began

_NAMES = ("id", "conversation_id", "session_id", "thread_id")
_TIMES = ("at", "timestamp", "created_at", "create_time", "created", "time")


def is_transcript(data: Any) -> bool:
    """Whether the first line, parsed, is one of a transcript."""
    return isinstance(data, Mapping) and (isinstance(data.get("messages"), list) or "role" in data)


def read(lines: Iterable[str], file: str) -> Imported:
    """Read a transcript.

    Args:
        lines: Of the file; blank ones do not count.
        file: Its name, for problems.

    Returns:
        One conversation for each line with messages, and one of all messages that stand alone.
    """
    conversations: list[Conversation] = []
    alone: list[Mapping[str, Any]] = []
    problems: list[Problem] = []
    first = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            problems.append(Problem(file, number, None, "", f"not JSON: {error}"))
            continue
        if not is_transcript(found):
            said = 'expected {"role": …, "content": …} or {"messages": […]}'
            problems.append(Problem(file, number, None, "", said))
        elif isinstance(found.get("messages"), list):
            conversations.append(_conversation(found, f"{file}:{number}"))
        else:
            first = first or number
            alone.append(_message(found, {}))
    if alone:
        conversations.append(Conversation(f"{file}:{first}", tuple(alone)))
    return Imported("transcript", tuple(sorted(conversations, key=began)), problems=tuple(problems))


def _conversation(found: Mapping[str, Any], place: str) -> Conversation:
    name = next((str(found[key]) for key in _NAMES if found.get(key)), None)
    # What is no message is left to be told by whoever takes it in.
    messages = tuple(_message(one, found) if isinstance(one, Mapping) else {} for one in found["messages"])
    return Conversation(place, messages, name, str(found.get("title") or ""))


def _message(message: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message with its time under the one name for it."""
    at = next((one[key] for one in (message, whole) for key in _TIMES if one.get(key) is not None), None)
    return message if at is None else {**message, "at": at}
