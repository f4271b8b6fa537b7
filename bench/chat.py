"""The client of the measured relays: chat calls as an agent makes them, timed from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
import orjson

Messages = Sequence[Mapping[str, Any]]
_LOOK_AGAIN_S = 0.02
_WRITTEN_S = 60.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose calls, in which mode.

    Args:
        user: User id.
        mode: ``X-Memory-Mode``.
    """

    user: str
    mode: str

    def headers(self, session: str) -> dict[str, str]:
        """Headers of a call in one of its sessions."""
        return {
            "Authorization": "Bearer sk-bench",
            "Content-Type": "application/json",
            "X-Memory-User": self.user,
            "X-Memory-Mode": self.mode,
            "X-Memory-Session": session,
        }


@dataclass(frozen=True, slots=True)
class Answered:
    """An answered call.

    Args:
        text: What the model said; empty for a stream.
        wall_s: From sending the request to the answer's last byte.
        request_id: Of the product; empty from a bare relay.
        status: ``X-Memory-Status``; empty from a bare relay.
        injected: How many memories the model was given.
    """

    text: str
    wall_s: float
    request_id: str
    status: str
    injected: int


class ChatClient:
    """Makes calls over kept connections."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = await self._stack.enter_async_context(aiohttp.ClientSession())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def chat(self, address: str, caller: Caller, session: str, messages: Messages) -> Answered:
        """One call without streaming."""
        answered, data = await self._post(address, caller, session, {"model": "scripted", "messages": messages})
        text = orjson.loads(data)["choices"][0]["message"]["content"]
        return Answered(text, answered.wall_s, answered.request_id, answered.status, answered.injected)

    async def stream(
        self, address: str, caller: Caller, session: str, messages: Messages, *, chunks: int, pace_ms: int
    ) -> Answered:
        """One streamed call, read to its end."""
        asked = {"stream": True, "max_tokens": chunks, "metadata": {"pace_ms": str(pace_ms)}}
        answered, data = await self._post(
            address, caller, session, {"model": "scripted", "messages": messages, **asked}
        )
        if data.count(b"data: ") != chunks + 2:
            raise RuntimeError(f"{data.count(b'data: ')} events came for {chunks} chunks, in {data[:200]!r}")
        return answered

    async def written(self, address: str, caller: Caller, request_id: str) -> None:
        """Wait until the memories of a call are written.

        Raises:
            RuntimeError: They are not written within a minute.
        """
        assert self._http is not None
        url, headers = f"{address}/memory/requests/{request_id}", {"X-Memory-User": caller.user}
        status, deadline = "unknown", time.monotonic() + _WRITTEN_S
        # An answer that is not on disk in time counts as failed only until it is.
        while time.monotonic() < deadline:
            async with self._http.get(url, headers=headers) as response:
                if response.status == 200:
                    status = (await response.json())["written"]["status"]
            if status == "done":
                return
            await asyncio.sleep(_LOOK_AGAIN_S)
        raise RuntimeError(f"the memories of call {request_id} are {status}, not written")

    async def _post(
        self, address: str, caller: Caller, session: str, body: Mapping[str, Any]
    ) -> tuple[Answered, bytes]:
        assert self._http is not None
        data, headers = orjson.dumps(body), caller.headers(session)
        started = time.perf_counter()
        async with self._http.post(f"{address}/v1/chat/completions", data=data, headers=headers) as response:
            read = await response.read()
            wall_s = time.perf_counter() - started
            response.raise_for_status()
            said = response.headers
        return (
            Answered(
                "",
                wall_s,
                said.get("X-Memory-Request-Id", ""),
                said.get("X-Memory-Status", ""),
                int(said.get("X-Memory-Injected", 0)),
            ),
            read,
        )
