"""A scripted model provider: answers what a test told it to, and keeps what it received, byte for byte.

Tests share one server; each has its own lane, chosen by the API key that its requests carry.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from multidict import CIMultiDict


@dataclass(frozen=True)
class Received:
    """One request as the provider saw it."""

    method: str
    path_qs: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """One header's value."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def system(self) -> str:
        """Text of the leading system messages."""
        texts = [m["content"] for m in self.json["messages"] if m["role"] in ("system", "developer")]
        return "\n".join(text if isinstance(text, str) else "".join(part["text"] for part in text) for text in texts)


@dataclass
class Reply:
    """What to answer.

    Args:
        body: Chunks, each written by itself.
        status, headers: As given (a multidict repeats names); a content length is set unless `chunked`.
        chunked: Send in chunks, without a length.
        cut: Break the connection after the chunks.
        hold: Wait for this before the chunk with the same index (the test sets it).
    """

    body: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    chunked: bool = False
    cut: bool = False
    hold: Mapping[int, threading.Event] = field(default_factory=dict)


def completion(text: str = "OK", **message: Any) -> Reply:
    """A plain chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
    if message.get("tool_calls"):
        choice["finish_reason"] = "tool_calls"
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return Reply([json.dumps(body, ensure_ascii=False).encode()])


def chunk(delta: Mapping[str, Any], *, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """One event of a chat stream."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
        **more,
    }
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def stream(
    *chunks: bytes, done: bool = True, cut: bool = False, hold: Mapping[int, threading.Event] | None = None
) -> Reply:
    """A streamed answer."""
    body = [*chunks, b"data: [DONE]\n\n"] if done else list(chunks)
    headers = {"Content-Type": "text/event-stream; charset=utf-8"}
    return Reply(body, headers=headers, chunked=True, cut=cut, hold=hold or {})


class Lane:
    """One test's side of the provider."""

    def __init__(self, key: str, url: str) -> None:
        self.key = key
        self.url = url
        self.replies: deque[Reply] = deque()
        self.received: list[Received] = []
        self.default: Callable[[Received], Reply] = lambda received: completion()
        self.started = threading.Semaphore(0)
        self.gone = threading.Event()

    def script(self, *replies: Reply) -> None:
        """Answer with these, one a request; after them with what `default` gives, a plain completion."""
        self.replies.extend(replies)

    @property
    def last(self) -> Received:
        """The newest request."""
        return self.received[-1]


class ScriptedUpstream:
    """The provider's server, on a thread of its own."""

    def __init__(self) -> None:
        self.url = ""
        self.lanes: dict[str, Lane] = {}
        self.stray: dict[str, list[Received]] = defaultdict(list)
        self._loop = asyncio.new_event_loop()

    def lane(self, key: str) -> Lane:
        """Open a lane for requests with this API key."""
        self.lanes[key] = Lane(key, self.url)
        return self.lanes[key]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        received = Received(
            request.method,
            request.raw_path,
            tuple((name.decode(), value.decode()) for name, value in request.raw_headers),
            await request.read(),
        )
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        key = bearer or request.headers.get("x-api-key", "") or request.headers.get("x-goog-api-key", "")
        lane = self.lanes.get(key)
        if lane is None:
            self.stray[key].append(received)
            return web.json_response({"error": {"message": "bad key", "code": "invalid_api_key"}}, status=401)
        lane.received.append(received)
        reply = lane.replies.popleft() if lane.replies else lane.default(received)
        lane.started.release()
        return await self._send(request, reply, lane)

    async def _send(self, request: web.Request, reply: Reply, lane: Lane) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.status, headers=CIMultiDict(reply.headers))
        if not reply.chunked:
            response.content_length = sum(len(piece) for piece in reply.body)
        try:
            await self._hold(reply, -1)
            await response.prepare(request)
            for index, piece in enumerate(reply.body):
                await self._hold(reply, index)
                await response.write(piece)
            await self._hold(reply, len(reply.body))
        except (ConnectionResetError, asyncio.CancelledError):
            lane.gone.set()
            raise
        if reply.cut:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write_eof()
        return response

    async def _hold(self, reply: Reply, index: int) -> None:
        event = reply.hold.get(index)
        if event is not None:
            while not event.is_set():  # noqa: ASYNC110 - the test's thread sets it; the client may go meanwhile
                await asyncio.sleep(0.005)

    async def _serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, auto_decompress=False, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    @contextmanager
    def running(self) -> Iterator[ScriptedUpstream]:
        """Serve on a free port while the context lasts."""
        ready, stop = threading.Event(), asyncio.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(ready, stop),), daemon=True)
        thread.start()
        if not ready.wait(10):
            raise TimeoutError("the scripted upstream did not start")
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join(10)
            self._loop.close()
