"""Redis addresses as people write them in `redis.url`, checked before anything connects.

In: a redis://, rediss:// or unix:// URL. Out: a thread-safe connection pool with our deadlines, or a ValueError that
says what is wrong and what to write. Passwords never appear in messages.
"""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qs, urlsplit

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.retry import Retry

_SCHEMES = ("redis", "rediss", "unix")
_OPTIONS = {"db", "username", "password", "client_name", "max_connections", "socket_timeout", "socket_connect_timeout"}
_NEXT = "write embedded, redis://host:6379/0, rediss://… for TLS, or unix:///path/to/socket"
_MAX_CONNECTIONS = 64
_TLS_CONNECT_S = 0.25


def connection_pool(url: str, timeout_s: float) -> ConnectionPool:
    """A pool for this address; nothing connects yet.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``; options in its query win over `timeout_s`.
        timeout_s: Deadline of each wait on the socket. TLS gets more time to connect: its handshake takes several
            round trips.

    Raises:
        ValueError: The URL is wrong.
    """
    parts = _checked(url)
    connect_s = max(timeout_s, _TLS_CONNECT_S) if parts.scheme == "rediss" else timeout_s
    try:
        return ConnectionPool.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=connect_s,
            # Retrying is the breaker's business: here it would multiply the deadline.
            retry=Retry(NoBackoff(), 0),
            # RESP 2 spares the HELLO round trip and suits servers of any age.
            protocol=2,
            max_connections=_MAX_CONNECTIONS,
        )
    except ValueError as error:
        raise ValueError(f"redis.url: {shown(url)!r}: {error}; {_NEXT}") from error


def shown(url: str) -> str:
    """The address without credentials and options, for messages and logs.

    >>> shown("redis://bob:secret@cache:6379/1?password=x")
    'redis://cache:6379/1'
    >>> shown("unix:///run/redis.sock")
    'unix:///run/redis.sock'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.split("@")[-1]
    rest = rest.partition("?")[0].partition("#")[0]
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as error:
        raise ValueError(f"redis.url: {shown(url)!r}: {error}; {_NEXT}") from error
    wrong = _mistake(parts) if port_ok else "the port is 0"
    if wrong:
        raise ValueError(f"redis.url: {shown(url)!r}: {wrong}; {_NEXT}")
    return parts


def _mistake(parts: SplitResult) -> str | None:
    if parts.scheme not in _SCHEMES:
        return f"{parts.scheme or 'no'} scheme is not one of {', '.join(_SCHEMES)}"
    if parts.scheme == "unix" and (parts.netloc.rpartition("@")[2] or len(parts.path) < 2):
        return "the socket's path must be absolute (three slashes)"
    if parts.scheme != "unix" and not parts.hostname:
        return "the host is missing"
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        return f"the database must be a number, not {database!r}"
    unknown = [name for name in parse_qs(parts.query) if name not in _OPTIONS and not name.startswith("ssl_")]
    if unknown:
        return f"the option {unknown[0]!r} is not known here"
    return None
