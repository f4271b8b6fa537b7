"""A scripted provider with a prompt cache, in the bench's own process: it keeps what it received, byte for byte.

It reports cached tokens as a provider's prefix cache would: what a prompt has in common, from its beginning, with an
earlier one that came with the same key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from bench.texts import answer

BYTES_PER_TOKEN = 4
CACHED_IN = 128
"""Tokens that are cached together."""


@dataclass(slots=True)
class Seen:
    """What the provider saw of one session.

    Args:
        prompts: The messages of each request, in the bytes they came in.
        cached: Tokens found in the cache, of each request.
        arrived: What was learnt elsewhere and stood behind the question for it.
        asked: How often it was asked for.
        statuses: ``X-Memory-Status`` other than ``ok`` and ``off``.
    """

    prompts: list[bytes] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    arrived: int = 0
    asked: int = 0
    statuses: list[str] = field(default_factory=list)

    def repeated(self) -> Iterator[float]:
        """Of each request but the first, the share of its bytes that the one before it began with."""
        for before, prompt in zip(self.prompts, self.prompts[1:], strict=False):
            yield common(before, prompt) / len(prompt)

    def extended(self) -> Iterator[float]:
        """Of each request but the last, the share of its bytes that the next one begins with."""
        for before, prompt in zip(self.prompts, self.prompts[1:], strict=False):
            yield common(before, prompt) / len(before)


class Provider:
    """Answers by the body's `seed`, calls a tool where it must, and reports cached tokens."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, Seen] = defaultdict(Seen)
        self.address = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a free port while the context lasts."""
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        seen = self.seen[request.headers["Authorization"]]
        prompt = b"\n".join(map(orjson.dumps, body["messages"]))
        longest = max((common(one, prompt) for one in seen.prompts), default=0)
        cached = longest // BYTES_PER_TOKEN // CACHED_IN * CACHED_IN
        seen.prompts.append(prompt)
        seen.cached.append(cached)
        size = len(prompt) // BYTES_PER_TOKEN
        usage = {"prompt_tokens": size, "completion_tokens": 90, "prompt_tokens_details": {"cached_tokens": cached}}
        message: dict[str, Any] = {"role": "assistant", "content": f"{answer(body['seed'])} ({body['seed']})"}
        if body.get("tool_choice") == "required":
            call = {"name": "look_up", "arguments": "{}"}
            message = {"role": "assistant", "content": None, "tool_calls": [_call(body["seed"], call)]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return web.json_response({**reply, "choices": [choice], "usage": usage})


def common(one: bytes, other: bytes) -> int:
    """Length of the common beginning.

    >>> common(b"abcd", b"abx"), common(b"", b"a"), common(b"ab", b"ab")
    (2, 0, 2)
    """
    return bisect_left(range(1, min(len(one), len(other)) + 1), True, key=lambda size: one[:size] != other[:size])


def _call(seed: int, function: Mapping[str, str]) -> dict[str, Any]:
    return {"id": f"call_{seed}", "type": "function", "function": dict(function)}
