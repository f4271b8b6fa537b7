"""Collects the answer of a Chat Completions call from a side copy of the provider's bytes.

In: decoded bytes as they pass. Out: an `Answer`, whatever shape the stream had: usage-only last chunk, reasoning only,
tool calls only, several choices (choice 0 counts), no [DONE], an error event, cut in the middle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from proxy.types import Answer, AnswerStatus, ToolCall
from proxy.wire.chat import content_text, string, tool_calls
from proxy.wire.splice import integer, well_formed

_PARSE_AT_BYTES = 65_536
"""Streams are parsed in batches: a passing chunk costs one append."""
_DONE = b"[DONE]"
_DONE_EVENT = re.compile(rb"[\r\n]data:[ \t]*\[DONE\]")
"""At a line's start: an answer may well say [DONE] itself, but never after a bare line end."""
_TAIL_BYTES = 32


class Collector(Protocol):
    """Takes a provider's answer in, byte by byte."""

    def feed(self, data: bytes) -> None:
        """Take some bytes in."""

    @property
    def finished(self) -> bool:
        """Whether what was fed holds the stream's own end mark."""

    def answer(self, *, cut: bool) -> Answer:
        """What was answered.

        Args:
            cut: The client went away, or the connection broke.
        """


class JsonCollector:
    """A whole JSON answer."""

    finished = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Take some bytes in."""
        self._pieces.append(data)

    def answer(self, *, cut: bool) -> Answer:
        """The answer; ``aborted`` when it was cut or is no JSON object, ``failed`` when it is an error object."""
        body = _loads(b"".join(self._pieces))
        if cut or not isinstance(body, dict):
            return Answer(status="aborted")
        if body.get("error"):
            return Answer(status="failed")
        usage = body.get("usage")
        usage = usage if isinstance(usage, dict) else None
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            return Answer(status="aborted", usage=usage)
        return Answer(
            text=content_text(message.get("content"))[0],
            tool_calls=tool_calls(message.get("tool_calls")),
            finish_reason=string(choice.get("finish_reason")),
            usage=usage,
        )


@dataclass(slots=True)
class _Call:
    """A tool call that is still coming in."""

    index: int
    id: str
    name: str = ""
    arguments: str = ""


class StreamCollector:
    """A stream of server-sent events."""

    def __init__(self) -> None:
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._rest = b""
        self._tail = b"\n"
        self.finished = False
        self._event_lines: list[bytes] = []
        self._texts: list[str] = []
        self._calls: list[_Call] = []
        self._finish_reason: str | None = None
        self._usage: Mapping[str, Any] | None = None
        self._failed = False
        self._done = False

    def feed(self, data: bytes) -> None:
        """Take some bytes in; cheap, since parsing waits for a batch or the end."""
        self._buffer.append(data)
        self._buffered += len(data)
        if _DONE in data or _DONE in self._tail[1 - len(_DONE) :] + data[: len(_DONE)]:
            self.finished = self.finished or _DONE_EVENT.search(self._tail + data) is not None
        self._tail = data[-_TAIL_BYTES:] if len(data) >= _TAIL_BYTES else (self._tail + data)[-_TAIL_BYTES:]
        # An unfinished line is looked at again each time, so it has to double first: the work stays linear.
        if self._buffered > max(_PARSE_AT_BYTES, len(self._rest)):
            self._parse()

    def answer(self, *, cut: bool) -> Answer:
        """The answer so far.

        ``complete`` needs the provider's finish reason or [DONE]; ``failed`` is an error event in the stream.
        """
        self._parse()
        self._line(self._rest.removesuffix(b"\r"))
        self._line(b"")
        self._rest = b""
        return Answer(
            text=well_formed("".join(self._texts)),
            tool_calls=tuple(
                ToolCall(well_formed(call.id), well_formed(call.name), well_formed(call.arguments))
                for call in sorted(self._calls, key=lambda call: call.index)
            ),
            finish_reason=None if self._finish_reason is None else well_formed(self._finish_reason),
            status=self._status(cut),
            usage=self._usage,
        )

    def _status(self, cut: bool) -> AnswerStatus:
        if self._failed:
            return "failed"
        return "complete" if self._done or (self._finish_reason is not None and not cut) else "aborted"

    def _parse(self) -> None:
        data = self._rest + b"".join(self._buffer)
        self._buffer, self._buffered = [], 0
        # All three line ends of the event-stream format; a \r at the very end may be half a \r\n, and waits.
        whole = data.removesuffix(b"\r")
        lines = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + data[len(whole) :]
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data(line[5:].strip())
        elif not line and self._event_lines:
            event = _loads(b"\n".join(self._event_lines))
            self._event_lines = []
            if isinstance(event, dict):
                self._event(event)
        elif line.startswith(b"event:") and line[6:].strip() == b"error":
            self._failed = True

    def _data(self, data: bytes) -> None:
        """One data line: an event of its own as a rule, even where the blank line after it is missing."""
        if data == _DONE:
            self._done = True
            return
        event = None if self._event_lines else _loads(data)
        if isinstance(event, dict):
            self._event(event)
        elif data or self._event_lines:
            self._event_lines.append(data)

    def _event(self, event: dict[str, Any]) -> None:
        if event.get("error"):
            self._failed = True
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        choices = event.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            if not isinstance(choice, dict) or (choice.get("index") or 0) != 0:
                continue
            self._finish_reason = _string(choice.get("finish_reason")) or self._finish_reason
            delta = choice.get("delta")
            if isinstance(delta, dict):
                self._delta(delta)

    def _delta(self, delta: dict[str, Any]) -> None:
        content = delta.get("content")
        if content:
            self._texts.append(content if isinstance(content, str) else content_text(content)[0])
        raw = delta.get("tool_calls")
        for item in raw if isinstance(raw, list) else ():
            if not isinstance(item, dict):
                continue
            call = self._call(item)
            function = item.get("function")
            function = function if isinstance(function, dict) else {}
            name = _string(function.get("name")) or ""
            call.name += name if name != call.name else ""  # some providers repeat it with every piece
            call.arguments += _string(function.get("arguments")) or ""

    def _call(self, item: dict[str, Any]) -> _Call:
        """The call that a piece belongs to. Some providers leave the index out, or give every call the same one: there
        a new id begins a new call."""
        index, call_id = item.get("index"), _string(item.get("id")) or ""
        numbered = isinstance(index, int)
        known = next((call for call in reversed(self._calls) if not numbered or call.index == index), None)
        if known is not None and (not call_id or known.id in ("", call_id)):
            known.id = known.id or call_id
            return known
        call = _Call(index if isinstance(index, int) else len(self._calls), call_id)
        self._calls.append(call)
        return call


def _string(value: Any) -> str | None:
    """A string as it came: half a character may find its other half in the next piece."""
    return value if isinstance(value, str) else None


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data, parse_int=integer)  # half characters, and integers longer than any float
        except (ValueError, RecursionError):
            return None
