"""Calls through litellm: a chat body in, chat JSON or server-sent events out. For now it serves `demo/echo` alone.

litellm takes seconds and 150 MB to import, so it is imported by `warm`, in a thread, before the first call needs it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from types import ModuleType
from typing import Any

from proxy.echo import MODEL, PROVIDER, reply
from proxy.errors import RequestError
from proxy.upstream import UpstreamUnreachable

_LOCAL_ONLY = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
"""Else the import asks the network for a newer price list."""


class Translated:
    """The models that litellm calls for us."""

    def __init__(self) -> None:
        self._litellm: ModuleType | None = None
        self._warming = asyncio.Lock()

    def serves(self, model: str) -> bool:
        """Whether calls for this model name come here."""
        return model == MODEL

    async def warm(self) -> ModuleType:
        """Import litellm, once, off the event loop."""
        async with self._warming:
            if self._litellm is None:
                self._litellm = await asyncio.to_thread(_import)
            return self._litellm

    async def complete(self, body: bytes) -> bytes:
        """Answer a call that asks for no stream.

        Args:
            body: The chat request, a JSON object.

        Returns:
            The chat completion as JSON.

        Raises:
            RequestError: `messages` is missing or no list of objects.
            UpstreamUnreachable: litellm could not make the call.
        """
        answer = await self._call(body, stream=False)
        return str(answer.model_dump_json(exclude_none=True)).encode()

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """Answer a call that asks for a stream.

        Args:
            body: The chat request, a JSON object.

        Returns:
            One server-sent event at a time, [DONE] last. It may raise `UpstreamUnreachable` on the way.

        Raises:
            RequestError: `messages` is missing or no list of objects.
            UpstreamUnreachable: litellm could not make the call.
        """
        return self._events(await self._call(body, stream=True))

    async def _call(self, body: bytes, *, stream: bool) -> Any:
        messages = json.loads(body).get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise RequestError("messages must be a list of objects", param="messages")
        litellm = await self.warm()
        try:
            return await litellm.acompletion(model=MODEL, messages=messages, stream=stream, max_retries=0)
        except litellm.exceptions.OpenAIError as error:
            raise _failed(error) from error

    async def _events(self, chunks: AsyncIterator[Any]) -> AsyncGenerator[bytes, None]:
        litellm = await self.warm()
        try:
            async for chunk in chunks:
                chunk.model = MODEL
                yield b"data: " + str(chunk.model_dump_json(exclude_none=True)).encode() + b"\n\n"
        except litellm.exceptions.OpenAIError as error:
            raise _failed(error) from error
        yield b"data: [DONE]\n\n"


def _failed(error: Exception) -> UpstreamUnreachable:
    return UpstreamUnreachable(f"{MODEL} failed: {type(error).__name__}")


def _import() -> ModuleType:
    os.environ.update(_LOCAL_ONLY)
    litellm = importlib.import_module("litellm")
    settings: Any = litellm
    settings.suppress_debug_info = True
    settings.custom_provider_map = [{"provider": PROVIDER, "custom_handler": _handler(litellm)}]
    return litellm


def _handler(litellm: ModuleType) -> Any:
    """The custom provider; its class can only be made once litellm is there."""

    async def acompletion(self: Any, *args: Any, **named: Any) -> Any:
        text = reply(named["messages"])
        answer = named["model_response"]
        answer.choices[0].message.content = text
        answer.choices[0].finish_reason = "stop"
        answer.model = MODEL
        return answer

    async def astreaming(self: Any, *args: Any, **named: Any) -> AsyncIterator[dict[str, Any]]:
        for piece in reply(named["messages"]).splitlines(keepends=True):
            yield _chunk(piece, finished=False)
        yield _chunk("", finished=True)

    made = type("Echo", (litellm.CustomLLM,), {"acompletion": acompletion, "astreaming": astreaming})
    return made()


def _chunk(text: str, *, finished: bool) -> dict[str, Any]:
    return {
        "text": text,
        "is_finished": finished,
        "finish_reason": "stop" if finished else None,
        "index": 0,
        "tool_use": None,
        "usage": None,
    }
