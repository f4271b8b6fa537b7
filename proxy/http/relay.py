"""Bytes from the provider to the client as they come, with a side copy for write-back; and the raw door for the rest.

Every read is forwarded at once. Only the one that ends the answer is held, by `before_end`, until the journal has it.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import aiohttp
import structlog
from aiohttp import web

from proxy.errors import RequestError, SidemirrorError
from proxy.http.errors import error_response, not_supported_yet
from proxy.http.gate import Gate
from proxy.upstream import Upstream, UpstreamUnreachable, answered
from proxy.wire.collect import Collector

log = structlog.get_logger(__name__)


class Decoder(Protocol):
    """Decodes a content encoding bit by bit."""

    def decompress(self, data: bytes, /) -> bytes:
        """Decode what can be decoded so far."""


class SideCopy:
    """Feeds a collector with the decoded copy of what passes; its own trouble never touches what passes.

    Args:
        collector: Takes the decoded bytes.
        encoding: The response's Content-Encoding.
    """

    def __init__(self, collector: Collector, encoding: str) -> None:
        self.collector = collector
        self._decoder = _decoder(encoding)
        self._plain = encoding.strip().lower() in ("", "identity")

    def feed(self, data: bytes) -> None:
        """Take some bytes in."""
        if self._plain:
            self.collector.feed(data)
        elif self._decoder is not None:
            try:
                self.collector.feed(self._decoder.decompress(data))
            except zlib.error:
                self._decoder = None
                log.warning("side_copy_not_decoded")


def _decoder(encoding: str) -> Decoder | None:
    name = encoding.strip().lower()
    if name in ("gzip", "x-gzip"):
        return zlib.decompressobj(16 + zlib.MAX_WBITS)
    if name == "deflate":
        return zlib.decompressobj()
    return None


async def relay(
    request: web.Request,
    upstream: aiohttp.ClientResponse,
    headers: Mapping[str, str],
    copy: SideCopy | None = None,
    before_end: Callable[[], Awaitable[None]] | None = None,
) -> web.StreamResponse:
    """Send the provider's answer on.

    Args:
        request: The client's.
        upstream: The provider's answer; the caller closes it.
        headers: Ours, set beside the provider's.
        copy: Gets every byte too.
        before_end: Awaited once, before what ends the answer goes out.

    Returns:
        The response. When the provider broke off, or the client left, its connection is cut.
    """
    response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=answered(upstream.headers))
    response.headers.update(headers)
    if request.version < (1, 1):
        response.force_close()
    left = upstream.content_length
    try:
        await response.prepare(request)
        async for chunk in upstream.content.iter_any():
            if copy is not None:
                copy.feed(chunk)
            if left is not None:
                left -= len(chunk)
            # The client takes an answer for whole at a stream's end mark, or at the last byte of a length it was told.
            if before_end is not None and (left == 0 or (copy is not None and copy.collector.finished)):
                await before_end()
                before_end = None
            await response.write(chunk)
        if before_end is not None:
            await before_end()
        await response.write_eof()
    except aiohttp.ClientError:
        cut(request)
    return response


class RawDoor:
    """Every `/v1/*` that has no door of its own: relayed untouched, with no memory.

    Args:
        openai: Where it goes.
        anthropic: Where `/v1/messages` goes.
        gate: Tells who asks.
        max_body_bytes: A larger body is refused.
    """

    def __init__(self, openai: Upstream, anthropic: Upstream, gate: Gate, max_body_bytes: int) -> None:
        self._gate = gate
        self._openai = openai
        self._anthropic = anthropic
        self._max_body_bytes = max_body_bytes

    def routes(self) -> list[web.RouteDef]:
        """The catch-all; register it last."""
        return [web.route("*", "/v1/{rest:.*}", self.handle)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Relay one request."""
        self._gate.admit(request, "chat")
        if request.headers.get("Upgrade", "").lower() == "websocket":
            raise not_supported_yet("a websocket through the proxy")
        if (request.content_length or 0) > self._max_body_bytes:
            raise web.HTTPRequestEntityTooLarge(self._max_body_bytes, request.content_length or 0)
        path = request.rel_url.raw_path.removeprefix("/v1")
        is_messages = path == "/messages" or path.startswith("/messages/")
        return await pass_on(request, self._anthropic if is_messages else self._openai, path, {})


async def pass_on(
    request: web.Request, upstream: Upstream, path: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Relay a request and its answer as they come.

    Args:
        request: The client's, its body not read yet.
        upstream: Where it goes.
        path: Raw path after ``/v1``.
        headers: Set beside the provider's.

    Returns:
        The finished response; 502 when the provider cannot be reached.
    """
    body = request.content if request.body_exists else None
    try:
        answer = await upstream.open(request.method, with_query(path, request), request.headers, body, side_copy=False)
    except UpstreamUnreachable as error:
        return error_response(unreachable(error), dict(headers))
    try:
        return await relay(request, answer, headers)
    finally:
        answer.close()


def with_query(path: str, request: web.Request) -> str:
    """The path with the request's query, escapes untouched."""
    query = request.rel_url.raw_query_string
    return f"{path}?{query}" if query else path


def unreachable(error: SidemirrorError) -> RequestError:
    """The provider cannot be reached: 502."""
    return RequestError(str(error), status=502, code="upstream_unreachable", type_="api_error")


def cut(request: web.Request) -> None:
    """Break the client's connection, so that half an answer does not look whole."""
    if request.transport is not None:
        request.transport.abort()
