"""The baseline: a bare relay on the same server and client libraries, with nothing in between.

`python -m bench.bare_relay URL` relays every path to URL.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from bench.serving import serve

_ONE_CONNECTIONS = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


class BareRelay:
    """Forwards requests and answers, read by read.

    Args:
        upstream: Where to, without a path.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Keep one client session, as the product does."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**18,
        ) as self._session:
            yield

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Relay one request."""
        assert self._session is not None
        async with self._session.request(
            request.method,
            URL(self._upstream + request.raw_path, encoded=True),
            headers=_kept(request.headers),
            data=await request.read(),
            allow_redirects=False,
        ) as upstream:
            response = web.StreamResponse(status=upstream.status, headers=_kept(upstream.headers))
            if upstream.content_length is not None:
                response.content_length = upstream.content_length
            await response.prepare(request)
            async for data in upstream.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response


def _kept(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _ONE_CONNECTIONS)


if __name__ == "__main__":
    relay = BareRelay(sys.argv[1])
    bare = web.Application(client_max_size=2**26)
    bare.router.add_route("*", "/{rest:.*}", relay.handle)
    serve(bare, relay.connected())
