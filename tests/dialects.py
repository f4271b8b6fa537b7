"""Answers as Anthropic and Gemini write them, for the scripted provider."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from tests.scripted import Reply

EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


def error(status: int, body: Mapping[str, Any] | bytes, **headers: str) -> Reply:
    """An error; headers by their names with underscores."""
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([content], status=status, headers={"Content-Type": "application/json", **named})


# ── Anthropic ──────────────────────────────────────────────────────────────────────────────────────────────────────
def anthropic(*content: Mapping[str, Any], stop: str = "end_turn", **usage: int) -> Reply:
    """A whole message."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-scripted",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, **usage},
    }
    return Reply([json.dumps(message, ensure_ascii=False).encode()])


def text(said: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": said}


def tool_use(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def anthropic_event(kind: str, **fields: Any) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


MESSAGE_START = anthropic_event(
    "message_start",
    message={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-scripted",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
)
OVERLOADED = anthropic_event("error", error={"type": "overloaded_error", "message": "Overloaded"})


def anthropic_text(*pieces: str, index: int = 0) -> list[bytes]:
    """The events of a text block."""
    deltas = [
        anthropic_event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        for piece in pieces
    ]
    start = anthropic_event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    return [start, *deltas, anthropic_event("content_block_stop", index=index)]


def anthropic_tool(call_id: str, name: str, *pieces: str, index: int = 0) -> list[bytes]:
    """The events of a tool call; `pieces` are its arguments' JSON."""
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    deltas = [
        anthropic_event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        for piece in pieces
    ]
    start = anthropic_event("content_block_start", index=index, content_block=block)
    return [start, *deltas, anthropic_event("content_block_stop", index=index)]


def anthropic_end(stop: str = "end_turn") -> list[bytes]:
    """The events that end a message."""
    delta = anthropic_event(
        "message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 5}
    )
    return [delta, anthropic_event("message_stop")]


def streamed(*events: bytes, cut: bool = False, hold: Mapping[int, threading.Event] | None = None) -> Reply:
    """A stream of events."""
    return Reply(events, headers=EVENT_STREAM, chunked=True, cut=cut, hold=hold or {})


# ── Gemini ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def gemini_body(*parts: Mapping[str, Any], finish: str | None = "STOP") -> dict[str, Any]:
    """A whole answer, or one piece of a stream."""
    candidate = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
        "modelVersion": "gemini-scripted",
        "responseId": "r-1",
    }


def gemini(*parts: Mapping[str, Any]) -> Reply:
    """A whole answer."""
    return Reply([json.dumps(gemini_body(*parts), ensure_ascii=False).encode()])


def gemini_stream(*bodies: Mapping[str, Any]) -> Reply:
    """A stream of pieces."""
    return streamed(*(b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\r\n\r\n" for body in bodies))
