"""The Chat Completions dialect: read the conversation, place a block, collect the answer.

In: a request body as it came and the provider's bytes. Out: messages, an edited body, an `Answer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal

from proxy.observe import chained, content_hash
from proxy.types import Message, ToolCall
from proxy.wire.splice import Edit, JsonText, Span, array_items, object_members, quoted, well_formed

PATH = "/chat/completions"
Placement = Literal["system", "user", "first_user"]
_LEADING = ("system", "developer")


def messages(body: JsonText) -> tuple[Message, ...] | None:
    """The conversation in a request body.

    Args:
        body: The request.

    Returns:
        Its messages with their hashes; None when `messages` is no list of objects (the provider will say so).
    """
    span = body.members.get("messages")
    raw = span.value if span else None
    if not isinstance(raw, list) or not raw or not all(isinstance(item, dict) for item in raw):
        return None
    names: dict[str, str] = {}
    result = []
    for item in raw:
        message = _message(item, names)
        names.update((call.id, call.name) for call in message.tool_calls if call.id)
        result.append(message)
    return chained(result)


def _message(item: Mapping[str, Any], names: Mapping[str, str]) -> Message:
    """One message; `names` holds the tool names of the calls before it, by id."""
    role = string(item.get("role")) or ""
    call_id = string(item.get("tool_call_id"))
    calls = tool_calls(item.get("tool_calls"))
    text, other = content_text(item.get("content"))
    return Message(
        role="tool" if role == "function" else role,
        text=text,
        hash=content_hash(role, text, calls, call_id, other),
        chain="",
        tool_calls=calls,
        tool_call_id=call_id,
        name=names.get(call_id or "") or string(item.get("name")),
    )


def content_text(content: Any) -> tuple[str, tuple[str, ...]]:
    """Text of a message's content, and a mark for each part that is no text.

    Args:
        content: A string, a list of parts, or null.

    Returns:
        The text parts joined by newlines; for each other part its type, length and ends (enough to tell two apart).
    """
    if isinstance(content, str):
        return well_formed(content), ()
    if not isinstance(content, list):
        return "", ()
    texts, other = [], []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            other.append(_mark(part))
    return well_formed("\n".join(texts)), tuple(other)


def _mark(part: Any) -> str:
    try:
        mark = str(part)
    except RecursionError:  # readable as JSON may still be too deep for str()
        return "too deep"
    return f"{len(mark)}:{mark[:200]}{mark[-200:]}"


def tool_calls(raw: Any) -> tuple[ToolCall, ...]:
    """The well-formed tool calls among `raw`."""
    if not isinstance(raw, list):
        return ()
    calls = []
    for item in raw:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            continue
        call_id, name, arguments = item.get("id"), function.get("name"), function.get("arguments")
        calls.append(ToolCall(string(call_id) or "", string(name) or "", string(arguments) or ""))
    return tuple(calls)


def string(value: Any) -> str | None:
    """A JSON string as UTF-8 can carry it; None for any other value."""
    return well_formed(value) if isinstance(value, str) else None


def place(body: JsonText, block: str, placement: Placement) -> bytes:
    """The body with the block in it, as `placed` has it; every other byte stays."""
    return body.edited(placed(body, block, placement))


def placed(body: JsonText, block: str, placement: Placement) -> list[Edit]:
    """The edits that put a block into a body.

    Args:
        body: The request; `messages` was readable.
        block: The block's text; empty leaves the body as it is.
        placement: ``system``: after the text of the last leading system or developer message, or in a new system
            message at the top. ``user``: at the end of the newest user message; ``first_user``: of the first one, for
            models without a system role. A message whose content is neither text nor parts is left to the provider to
            refuse.

    Returns:
        The edits; none for an empty block.
    """
    if not block:
        return []
    start = body.members["messages"].start
    items = list(array_items(body.text, start))
    target = _target(items, placement)
    if target is None:
        role = "user" if placement == "first_user" else "system"
        message = f'{{"role":"{role}","content":{quoted(block)}}}'
        return [Edit(start + 1, start + 1, message + ("," if items else ""))]
    return [_append(body.text, target, block)]


def placed_apart(body: JsonText, block: str, tails: Mapping[int, str], *, takes_system: bool) -> list[Edit]:
    """The edits that put a block into the system prompt and pieces behind messages.

    Args:
        body: The request; `messages` was readable.
        block: For the system prompt, or the first user message of a model without a system role; may be empty.
        tails: What goes behind the text of the message with each index.
        takes_system: Whether the model has a system role.
    """
    start = body.members["messages"].start
    items = list(array_items(body.text, start))
    texts = {index: text for index, text in tails.items() if index < len(items) and _holds_text(items[index])}
    edits = []
    if block and takes_system:
        edits += placed(body, block, "system")
    elif block:
        first = next(
            (at for at, item in enumerate(items) if item.value.get("role") == "user" and _holds_text(item)), None
        )
        if first is None:
            edits += placed(body, block, "first_user")
        else:
            texts[first] = f"{block}\n\n{texts[first]}" if first in texts else block
    return [*edits, *(_append(body.text, items[index], text) for index, text in sorted(texts.items()))]


def renamed(body: JsonText, model: str) -> list[Edit]:
    """The edits that make a body name another model; none where it does already, or names none."""
    span = body.members.get("model")
    return [] if span is None or span.value == model else [Edit(span.start, span.end, quoted(model))]


def _target(items: Sequence[Span], placement: Placement) -> Span | None:
    if placement != "system":
        users = [item for item in items if item.value.get("role") == "user" and _holds_text(item)]
        if placement == "first_user":
            return users[0] if users else None
        newest = next((item for item in reversed(items) if item.value.get("role") == "user"), None)
        if newest is not None and _holds_text(newest):
            return newest
    leading = list(takewhile(lambda item: item.value.get("role") in _LEADING, items))
    return leading[-1] if leading and _holds_text(leading[-1]) else None


def _holds_text(message: Span) -> bool:
    content = message.value.get("content")
    return content is None or isinstance(content, (str, list))


def _append(text: str, message: Span, block: str) -> Edit:
    content: Span | None = None
    for key, span in object_members(text, message.start):
        if key == "content":
            content = span
    if content is None:
        comma = "," if message.value else ""
        return Edit(message.end - 1, message.end - 1, f'{comma}"content":{quoted(block)}')
    if isinstance(content.value, str):
        addition = quoted(f"\n\n{block}" if content.value else block)[1:-1]
        return Edit(content.end - 1, content.end - 1, addition)
    if isinstance(content.value, list):
        comma = "," if content.value else ""
        return Edit(content.end - 1, content.end - 1, f'{comma}{{"type":"text","text":{quoted(block)}}}')
    return Edit(content.start, content.end, quoted(block))
