"""What an agent would run without us: `litellm.acompletion` behind a small aiohttp server, litellm as shipped.

`python -m bench.acompletion_relay URL` answers chat calls, streamed or not, through litellm's OpenAI provider at URL.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from bench.serving import serve

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "LITELLM_TELEMETRY": "False"}
"""Keeps litellm from the network and from .env files, which a measurement cannot use. Read while it is imported."""
_DONE = b"data: [DONE]\n\n"


class CompletionRelay:
    """Answers chat calls through a function with the arguments and answers of `litellm.acompletion`.

    Args:
        acompletion: The function.
        upstream: The provider, without a path.
    """

    def __init__(self, acompletion: Callable[..., Awaitable[Any]], upstream: str) -> None:
        self._acompletion = acompletion
        self._api_base = f"{upstream}/v1"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one chat call."""
        body = orjson.loads(await request.read())
        model = f"openai/{body.pop('model')}"
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        answer = await self._acompletion(model=model, api_base=self._api_base, api_key=key, **body)
        if body.get("stream"):
            return await _stream(request, answer)
        return web.Response(body=_json(answer), content_type="application/json")


async def _stream(request: web.Request, chunks: AsyncIterator[Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    async for chunk in chunks:
        await response.write(b"data: " + _json(chunk) + b"\n\n")
    await response.write(_DONE)
    await response.write_eof()
    return response


def _json(answer: Any) -> bytes:
    return str(answer.model_dump_json(exclude_none=True)).encode()


def application(relay: CompletionRelay) -> web.Application:
    """The relay's one route."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", relay.handle)
    return app


if __name__ == "__main__":
    os.environ.update(OFFLINE)
    litellm: Any = importlib.import_module("litellm")
    serve(application(CompletionRelay(litellm.acompletion, sys.argv[1])))
