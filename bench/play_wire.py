"""Requests and answers of a play as OpenAI chat bodies, with user and session named as clients name them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import orjson

from bench.screenplay import Call, Reply, Scene
from proxy.identity import AGENT, SESSION, USER

Message = dict[str, Any]
KEY = "sk-replay-{}"
"""The key of a conversation: the provider tells them apart by it."""
_MODEL = "scripted"


def request(scene: Scene, messages: Sequence[Message]) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers, naming user and session in one of the ways that clients have."""
    body: dict[str, Any] = {"model": _MODEL, "messages": list(messages)}
    headers = {"Authorization": f"Bearer {KEY.format(scene.conversation)}", "Content-Type": "application/json"}
    if scene.agent is not None:
        headers[AGENT] = scene.agent
    if scene.named == "metadata":
        return {**body, "user": scene.user, "metadata": {"session_id": scene.conversation}}, headers
    headers[USER] = scene.user
    if scene.named == "header":
        headers[SESSION] = scene.conversation
    return body, headers


def _assistant(reply: Reply) -> Message:
    if not reply.calls:
        return {"role": "assistant", "content": reply.text}
    asked = [
        {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call_id, call in _numbered(reply)
    ]
    return {"role": "assistant", "content": None, "tool_calls": asked}


def tool_messages(reply: Reply) -> list[Message]:
    """The assistant's tool calls and their results, as the client sends them back."""
    results = [{"role": "tool", "tool_call_id": call_id, "content": call.result} for call_id, call in _numbered(reply)]
    return [_assistant(reply), *results]


def _numbered(reply: Reply) -> list[tuple[str, Call]]:
    return [(f"call_{crc32(call.arguments.encode()):08x}_{place}", call) for place, call in enumerate(reply.calls)]


def completion(reply: Reply) -> bytes:
    """The provider's answer."""
    choice = {"index": 0, "message": _assistant(reply), "finish_reason": "tool_calls" if reply.calls else "stop"}
    usage = {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220}
    return orjson.dumps(
        {
            "id": "chatcmpl-replay",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": _MODEL,
            "choices": [choice],
            "usage": usage,
        }
    )
