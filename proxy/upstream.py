"""Forwarding on the same wire: the client's request to the provider, nothing resolved by guess, nothing retried.

In: method, path, headers and bytes. Out: aiohttp's response, its body still to be read and not decompressed.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Self

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from proxy.errors import SidemirrorError
from proxy.identity import PREFIX

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS = frozenset({"host", "content-length", "expect"})
_KEY_HEADERS = ("Authorization", "x-api-key", "api-key", "x-goog-api-key")
_READABLE_ENCODINGS = re.compile(r"\s*(?:gzip|deflate|identity)\s*(?:;.*)?", re.IGNORECASE)


class UpstreamUnreachable(SidemirrorError):
    """The provider cannot be reached."""


class Upstream:
    """One provider's base URL and the connections to it.

    Args:
        base_url: Up to and including ``/v1``.
        api_key: Sent in place of the client's key; None for none.
        forwards_key: Whether the client's own key goes upstream where there is no `api_key`.
        setting: Where its address stands in config.yaml, for messages.
        connect_timeout_s: For reaching the provider; its thinking is not timed.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        forwards_key: bool = True,
        setting: str = "upstream.base_url",
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._forwards_key = forwards_key
        self._setting = setting
        self._base = base_url.rstrip("/")
        self._api_key = api_key
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s, sock_read=None)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=self._timeout,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            # A streamed answer may carry one very long line, or very long headers.
            read_bufsize=2**18,
            max_line_size=65_536,
            max_field_size=65_536,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def open(
        self,
        method: str,
        path_qs: str,
        headers: CIMultiDictProxy[str],
        body: bytes | aiohttp.StreamReader | None,
        *,
        side_copy: bool,
    ) -> aiohttp.ClientResponse:
        """Send a request on.

        Args:
            method: HTTP method.
            path_qs: Raw path and query after ``/v1``, e.g. ``/models?limit=2``.
            headers: The client's; hop-by-hop ones and ours are left out.
            body: What to send.
            side_copy: The answer will be read for write-back, so it may only come in encodings we can read.

        Returns:
            The response, as soon as its headers are there. The caller closes or releases it.

        Raises:
            UpstreamUnreachable: No connection, or it broke before an answer came.
        """
        if self._session is None:
            raise UpstreamUnreachable("the upstream is closed")
        try:
            return await self._session.request(
                method,
                URL(self._base + path_qs, encoded=True),
                headers=forwarded(
                    headers,
                    api_key=self._api_key,
                    side_copy=side_copy,
                    streamed=not isinstance(body, bytes),
                    forwards_key=self._forwards_key,
                ),
                data=body,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> UpstreamUnreachable:
        place = URL(self._base)
        return UpstreamUnreachable(
            f"cannot reach the provider at {place.host}:{place.port} ({type(error).__name__}); "
            f"check {self._setting} and your network"
        )


def forwarded(
    headers: CIMultiDictProxy[str],
    *,
    api_key: str | None,
    side_copy: bool,
    streamed: bool,
    forwards_key: bool = True,
) -> CIMultiDict[str]:
    """The client's request headers, less those that belong to one connection and those of ours.

    Args:
        headers: The client's.
        api_key: Takes the place of whatever key the client sent; None for none.
        forwards_key: Whether the client's key stays where there is no `api_key`.
        side_copy: Only encodings that we can read may be asked for.
        streamed: The body is not at hand, so that its length is the client's word.
    """
    dropped = _HOP_BY_HOP | _OURS | named_by_connection(headers)
    result: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in dropped or lowered.startswith(PREFIX):
            continue
        if lowered == "accept-encoding" and side_copy:
            value = ", ".join(item.strip() for item in value.split(",") if _READABLE_ENCODINGS.fullmatch(item))
            if not value:
                continue
        result.add(name, _sendable(value))
    if streamed and "Content-Length" in headers:
        result["Content-Length"] = headers["Content-Length"]
    if side_copy and "Accept-Encoding" not in result:
        result["Accept-Encoding"] = "identity"
    if api_key is not None or not forwards_key:
        for name in _KEY_HEADERS:
            result.popall(name, None)
    if api_key is not None:
        result["Authorization"] = f"Bearer {api_key}"
    return result


def answered(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The provider's response headers, less those that belong to one connection."""
    dropped = _HOP_BY_HOP | named_by_connection(headers)
    result: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        if name.lower() not in dropped:
            result.add(name, _sendable(value))
    return result


def named_by_connection(headers: CIMultiDictProxy[str]) -> set[str]:
    """Header names that the Connection header declares to be hop-by-hop."""
    values = headers.getall("Connection", ())
    return {name.strip().lower() for value in values for name in value.split(",") if name.strip()}


def _sendable(value: str) -> str:
    r"""A header's value with all its letters: aiohttp reads what is not UTF-8 as halves, and leaves those out.

    >>> _sendable("Caf\udce9"), _sendable("北京")
    ('Café', '北京')
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value
