"""ChatGPT's data export: ``conversations.json``, a list of trees of messages.

In: the parsed JSON. Out: `Imported`. Of a tree that was edited or regenerated, the branch is read that was shown last;
what the user and the assistant said to each other in it is kept, and nothing else: no hidden instructions, tools'
output, pictures or reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.errors import Problem
from proxy.importing.imported import Conversation, Imported, began

_TEXT_TYPES = ("text", "multimodal_text")
_PARAGRAPH = "\n\n"


def is_chatgpt(data: Any) -> bool:
    """Whether parsed JSON is such an export."""
    return isinstance(data, list) and any(isinstance(one, Mapping) and "mapping" in one for one in data[:20])


def read(data: Sequence[Any], file: str) -> Imported:
    """Read an export.

    Args:
        data: The parsed JSON.
        file: Its name, for problems.

    Returns:
        Its conversations; one that holds nothing that the user said is left out.
    """
    found: list[Conversation] = []
    problems: list[Problem] = []
    left_out = 0
    for number, entry in enumerate(data, 1):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("mapping"), Mapping):
            problems.append(Problem(file, None, None, f"[{number - 1}]", "not a conversation: it has no mapping"))
            continue
        messages = _joined(_messages(entry))
        if not any(message["role"] == "user" for message in messages):
            left_out += 1
            continue
        title = str(entry.get("title") or "")
        named = entry.get("conversation_id") or entry.get("id")
        place = f"{file}: conversation {number}" + (f" ({title})" if title else "")
        found.append(Conversation(place, tuple(messages), str(named) if named else None, title))
    return Imported("chatgpt", tuple(sorted(found, key=began)), problems=tuple(problems), left_out=left_out)


def _messages(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of the branch that was shown last, oldest first."""
    since = entry.get("create_time")
    for node in _branch(entry["mapping"], entry.get("current_node")):
        message = _map(node, "message")
        text = _text(message)
        if not text:
            continue
        at = message.get("create_time") or since
        said = {"role": _map(message, "author")["role"], "content": text}
        yield said if at is None else {**said, "at": at}


def _branch(mapping: Mapping[str, Any], current: Any) -> list[Mapping[str, Any]]:
    """From the root down to the newest node; without its name, the one that leads on from each node last."""
    if not isinstance(current, str) or current not in mapping:
        leaves = [name for name, node in mapping.items() if isinstance(node, Mapping) and not node.get("children")]
        current = max(leaves, key=lambda name: _time(mapping[name]), default=None)
    path: list[Mapping[str, Any]] = []
    passed: set[Any] = set()
    while isinstance(current, str) and current in mapping and current not in passed:
        node = mapping[current]
        if not isinstance(node, Mapping):
            break
        passed.add(current)
        path.append(node)
        current = node.get("parent")
    return path[::-1]


def _time(node: Mapping[str, Any]) -> float:
    at = _map(node, "message").get("create_time")
    return float(at) if isinstance(at, int | float) else 0.0


def _text(message: Mapping[str, Any]) -> str:
    """What one of the two said to the other; empty for anything else."""
    author, content, metadata = (_map(message, name) for name in ("author", "content", "metadata"))
    parts = content.get("parts")
    said = (
        isinstance(parts, list)
        and author.get("role") in ("user", "assistant")
        and message.get("recipient", "all") == "all"
        and message.get("weight", 1) != 0
        and not metadata.get("is_visually_hidden_from_conversation")
        and content.get("content_type") in _TEXT_TYPES
    )
    return _PARAGRAPH.join(filter(None, map(_part, parts or ()))) if said else ""


def _map(node: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = node.get(name)
    return found if isinstance(found, Mapping) else {}


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part.strip()
    # What was spoken stands beside the sound.
    spoken = isinstance(part, Mapping) and part.get("content_type") == "audio_transcription"
    return str(part.get("text") or "").strip() if spoken else ""


def _joined(messages: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """An answer that came in several pieces, with tools run in between, is one answer."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "assistant":
            joined[-1]["content"] += _PARAGRAPH + message["content"]
        else:
            joined.append(message)
    return joined
