"""A JSON object's text with the places of its values, so that a body can be changed without being rewritten.

In: the request's bytes. Out: the parsed object, and edits of the very text it came as: all that is not edited keeps its
bytes (number forms, escapes, key order, duplicate keys, white space).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # CPython's and PyPy's own name for it
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\n\r]*")
_MAX_INT_DIGITS = 4_000
"""Python refuses to convert longer integers; JSON allows them. Only our reading is approximate, never the text."""


class NotJson(ValueError):
    """The text is not one JSON object."""


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


def integer(digits: str) -> int | float:
    """An integer's value; approximate past the length that Python converts."""
    return int(digits) if len(digits) <= _MAX_INT_DIGITS else float(digits)


_scan = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=integer).scan_once  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Span:
    """A value in the text: ``text[start:end]`` is its JSON."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `replacement` in place of ``text[start:end]``."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class JsonText:
    """One JSON object and its text.

    Args:
        text: The text, as it came.
        members: The object's members by key; the last one of a repeated key, as `json.loads` has it.
    """

    text: str
    members: dict[str, Span]

    @property
    def value(self) -> dict[str, Any]:
        """The object as plain data."""
        return {key: span.value for key, span in self.members.items()}

    def edited(self, edits: Sequence[Edit]) -> bytes:
        """The text with the edits made, as UTF-8. Edits must not overlap."""
        pieces, at = [], 0
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
            pieces += [self.text[at : edit.start], edit.replacement]
            at = edit.end
        pieces.append(self.text[at:])
        return "".join(pieces).encode()


def parse(data: bytes) -> JsonText:
    """Read a JSON object.

    Args:
        data: UTF-8 JSON text.

    Returns:
        The object with its text.

    Raises:
        NotJson: Not UTF-8, not JSON, not an object, or nested too deep; the message says which and where.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"the body is not UTF-8 (byte {error.start})") from error
    start = _skip(text, 0)
    if text[start : start + 1] != "{":
        raise NotJson("the body is not a JSON object")
    try:
        members, end = {}, start
        for key, span in object_members(text, start):
            members[key] = span
            end = span.end
        end = text.index("}", end) + 1
    except ValueError as error:
        raise NotJson(f"the body is not valid JSON ({error})") from error
    except RecursionError as error:
        raise NotJson("the body is nested too deep") from error
    if _skip(text, end) != len(text):
        raise NotJson(f"the body is not valid JSON (extra text at character {end})")
    return JsonText(text, members)


def object_members(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """The members of the object whose ``{`` stands at `start`, with the places of their values."""
    at = _skip(text, start + 1)
    if text[at : at + 1] == "}":
        return
    while True:
        if text[at : at + 1] != '"':
            raise NotJson(f"a key in double quotes is missing at character {at}")
        key, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise NotJson(f"a colon is missing at character {at}")
        span = _value(text, _skip(text, at + 1))
        yield key, span
        at = _skip(text, span.end)
        if text[at : at + 1] == "}":
            return
        if text[at : at + 1] != ",":
            raise NotJson(f"a comma is missing at character {at}")
        at = _skip(text, at + 1)


def array_items(text: str, start: int) -> Iterator[Span]:
    """The items of the array whose ``[`` stands at `start` (already known to be valid JSON)."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        span = _value(text, at)
        yield span
        at = _skip(text, span.end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def quoted(text: str) -> str:
    """A JSON string literal that UTF-8 can carry."""
    return json.dumps(well_formed(text), ensure_ascii=False)


def well_formed(text: str) -> str:
    r"""The text as UTF-8 can carry it.

    JSON escapes may hold half a character: a stream may cut one in two, and halves may stand alone for good.

    Args:
        text: Any text.

    Returns:
        The text with the halves that belong together joined, and the others replaced by U+FFFD.

    >>> well_formed("\ud83d" + "\ude00") == "\U0001f600", well_formed("a\ud83d") == "a\ufffd"
    (True, True)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _value(text: str, at: int) -> Span:
    try:
        value, end = _scan(text, at)
    except StopIteration as error:
        raise NotJson(f"a value is missing at character {error.value}") from error
    return Span(value, at, end)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
