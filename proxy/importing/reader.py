"""A file of whatever format, read: the format is told by what stands in it, unless it is named.

In: bytes and a name. Out: `Imported`.
"""

from __future__ import annotations

from datetime import tzinfo
from pathlib import PurePath
from typing import Any, get_args

import orjson

from proxy.errors import SidemirrorError
from proxy.importing import chatgpt, markdown, mem0, transcript
from proxy.importing.imported import Format, Imported

FORMATS: tuple[Format, ...] = get_args(Format)
_MARKDOWN_ENDINGS = (".md", ".markdown", ".txt")


def read(data: bytes, name: str, format_: Format | None, zone: tzinfo) -> Imported:
    """Read a file.

    Args:
        data: Its bytes.
        name: Its name, for its ending and for messages.
        format_: Which format it has; None to look.
        zone: Of times without an offset.

    Raises:
        SidemirrorError: It is in none of the formats, or not in the one named.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SidemirrorError(f"{name} is no text in UTF-8: {error.reason} at byte {error.start}") from error
    whole = _json(text)
    found = format_ or _format(text, whole, name)
    if found is None:
        raise SidemirrorError(f"{name} is in no format that is known ({', '.join(FORMATS)}); name one with --format")
    return _read(found, text, whole, name, zone)


def _read(format_: Format, text: str, whole: Any, name: str, zone: tzinfo) -> Imported:
    lines = text.split("\n")
    if format_ == "markdown":
        return markdown.read(lines, name, zone=zone)
    if format_ == "transcript":
        return transcript.read(lines, name)
    if format_ == "mem0":
        return mem0.read_lines(lines, name) if whole is None else mem0.read(whole, name)
    if not isinstance(whole, list):
        raise SidemirrorError(f"{name} is no export of ChatGPT: expected a JSON list of conversations")
    return chatgpt.read(whole, name)


def _format(text: str, whole: Any, name: str) -> Format | None:
    if chatgpt.is_chatgpt(whole):
        return "chatgpt"
    first = whole if whole is not None else _json(next((line for line in text.split("\n") if line.strip()), ""))
    if transcript.is_transcript(first):
        return "transcript"
    if mem0.is_mem0(first):
        return "mem0"
    return "markdown" if whole is None and PurePath(name).suffix.lower() in _MARKDOWN_ENDINGS else None


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
