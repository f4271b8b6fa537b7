"""A fast scripted provider, in a process of its own so that its CPU is not counted: `python -m bench.provider`.

A chat body with `stream: true` gets as many chunks as its `max_tokens` asks for, each flushed by itself, with
`metadata.pace_ms` between them (a relay may have dropped it: then none); any other gets a plain completion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any

import orjson
from aiohttp import web

from bench.serving import serve
from bench.texts import answer

_ANSWERED = count()
_DONE = b"data: [DONE]\n\n"


async def chat(request: web.Request) -> web.StreamResponse:
    """Answer one chat call."""
    body = orjson.loads(await request.read())
    if body.get("stream"):
        return await _stream(request, int(body["max_tokens"]), _pace_s(body))
    number = next(_ANSWERED)
    message = {"role": "assistant", "content": answer(number)}
    reply = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 90, "total_tokens": 290},
    }
    return web.Response(body=orjson.dumps(reply), content_type="application/json")


def _pace_s(body: Mapping[str, Any]) -> float:
    return float((body.get("metadata") or {}).get("pace_ms", 0)) / 1000


async def _stream(request: web.Request, chunks: int, pace_s: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    number = next(_ANSWERED)
    text = answer(number)
    for index in range(chunks):
        start = 3 * index % len(text)
        await response.write(_event(number, {"content": text[start : start + 3]}))
        if pace_s:
            await asyncio.sleep(pace_s)
    await response.write(_event(number, {}, "stop"))
    await response.write(_DONE)
    await response.write_eof()
    return response


def _event(number: int, delta: dict[str, str], finish: str | None = None) -> bytes:
    body = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + orjson.dumps(body) + b"\n\n"


async def ready(_: web.Request) -> web.Response:
    """For the bare relay's start-up figure."""
    return web.Response(text="ok")


def application() -> web.Application:
    """The provider's two routes."""
    app = web.Application(client_max_size=2**26)
    app.add_routes([web.post("/v1/chat/completions", chat), web.get("/readyz", ready)])
    return app


if __name__ == "__main__":
    serve(application())
