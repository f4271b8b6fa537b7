"""Between aiohttp and ASGI: one whole request in, one whole answer out.

The SDK answers each request with one JSON body (no stream), so nothing is sent before all of it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_OURS = {"content-length", "connection", "transfer-encoding"}
"""Headers that aiohttp sets itself."""


async def answer(app: Application, request: web.Request) -> web.Response:
    """Let an ASGI application answer a request.

    Args:
        app: The application.
        request: Its body is read whole, within the server's limit.

    Returns:
        The application's answer.

    Raises:
        web.HTTPRequestEntityTooLarge: The body is over the server's limit.
    """
    waiting: list[Message] = [{"type": "http.request", "body": await request.read(), "more_body": False}]
    begun: list[Message] = []
    body = bytearray()

    async def receive() -> Message:
        if not waiting:
            # When the client goes, aiohttp cancels this very call; nothing more can come until then.
            await asyncio.Event().wait()
        return waiting.pop()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun.append(message)
        else:
            body.extend(message.get("body", b""))

    await app(_scope(request), receive, send)
    (start,) = begun
    headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"])
    for name in _OURS:
        headers.popall(name, None)
    return web.Response(body=bytes(body), status=start["status"], headers=headers)


def _scope(request: web.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": f"{request.version.major}.{request.version.minor}",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.rel_url.raw_path.encode("latin-1"),
        "query_string": request.rel_url.raw_query_string.encode("latin-1"),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": None,
        "server": None,
    }
