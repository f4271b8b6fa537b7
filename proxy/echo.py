"""`demo/echo`: a model that answers offline, quoting what was said and what memory it was given. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.inject import CLOSE_MARK, OPEN_MARK
from proxy.language import detect
from proxy.wire.chat import content_text

PROVIDER = "demo"
MODEL = "demo/echo"
_WORDS = {
    "zh": ("你说：{}", "我手上的记忆：", "我手上没有任何记忆。"),
    "en": ("You said: {}", "The memories I was given:", "I was given no memories."),
}


def reply(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the model says.

    >>> print(reply([{"role": "user", "content": "Hello there"}]))
    You said: Hello there
    I was given no memories.
    """
    texts = [(str(message.get("role")), content_text(message.get("content"))[0]) for message in messages]
    newest = next((text for role, text in reversed(texts) if role == "user"), "")
    lines = [line for _, text in texts for line in _recalled(text)]
    said = newest.partition(OPEN_MARK)[0].strip()
    you_said, given, none = _WORDS["zh" if detect(said) == "zh" else "en"]
    return "\n".join([you_said.format(said), *([given, *lines] if lines else [none])])


def _recalled(text: str) -> list[str]:
    blocks = (piece.partition(CLOSE_MARK)[0] for piece in text.split(OPEN_MARK)[1:])
    return [line for block in blocks for line in block.splitlines() if line.startswith("- ")]
