"""The working layer as lines of text: our own keys, each with its value and the moment it expires.

In: a client of any Redis. Out: one JSON line a key, and back. Values are written by their type and not as DUMP gives
them: a DUMP is refused by a server of an older make, and a backup must move between Valkey and Redis.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from proxy.errors import WorkingMemoryUnavailable
from proxy.store.redis_url import connection_pool, shown
from proxy.store.session_keys import IDLE_KEY, scope_of

_ANSWER_S = 5.0
_GROUP = 100
_PATTERNS = ("session:{*", "chain:{*")
_WRITES = {"hash": "HSET", "list": "RPUSH", "zset": "ZADD"}


@contextmanager
def connected(url: str) -> Iterator[redis.Redis]:
    """A client that waits longer than a call would.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.

    Raises:
        WorkingMemoryUnavailable: Redis does not answer, here or to what is asked inside the context.
    """
    pool = connection_pool(url, _ANSWER_S)
    pool.connection_kwargs["retry"] = Retry(NoBackoff(), 1)
    try:
        client = redis.Redis(connection_pool=pool)
        client.ping()
        yield client
    except (RedisError, OSError) as error:
        raise WorkingMemoryUnavailable(f"Redis at {shown(url)}: {type(error).__name__}: {error}") from error
    finally:
        pool.disconnect()


def lines(client: redis.Redis) -> Iterator[bytes]:
    """Every key of ours, one JSON object a line; cached recalls are left out.

    A session whose keys expire meanwhile is simply absent.
    """
    keys = sorted(_keys(client))
    for start in range(0, len(keys), _GROUP):
        group = keys[start : start + _GROUP]
        with client.pipeline(transaction=True) as pipeline:
            pipeline.time()
            for key in group:
                _read(pipeline, key)
                pipeline.pttl(key)
            (seconds, micros), *replies = pipeline.execute(raise_on_error=False)
        now_ms = seconds * 1000 + micros // 1000
        for key, value, ttl_ms in zip(group, replies[::2], replies[1::2], strict=True):
            if value and not isinstance(value, RedisError):  # gone meanwhile, or of a type that is not ours
                yield _line(key, value, now_ms + ttl_ms if ttl_ms >= 0 else None)


def put(client: redis.Redis, entries: Iterable[bytes]) -> int:
    """Put lines back, each in the place of what its key holds; what has expired since stays away.

    Args:
        client: Of the Redis to fill.
        entries: From `lines`.

    Returns:
        How many keys there are now.
    """
    (seconds, micros), written = client.time(), 0
    for line in entries:
        entry = orjson.loads(line)
        expires_at_ms = entry["expires_at_ms"]
        if expires_at_ms is None or expires_at_ms > seconds * 1000 + micros // 1000:
            key, parts = b64decode(entry["key"]), [b64decode(part) for part in entry["value"]]
            with client.pipeline(transaction=True) as pipeline:
                pipeline.delete(key)
                pipeline.execute_command(_WRITES[entry["type"]], key, *parts)  # type: ignore[no-untyped-call]
                if expires_at_ms is not None:
                    pipeline.pexpireat(key, expires_at_ms)
                pipeline.execute()
            written += 1
    return written


def clear(client: redis.Redis) -> None:
    """Delete every key of ours."""
    keys = sorted(_keys(client))
    for start in range(0, len(keys), _GROUP):
        client.delete(*keys[start : start + _GROUP])


def check(line: bytes) -> None:
    """Read a line as `put` would.

    Raises:
        ValueError: It is none of ours.
    """
    entry = orjson.loads(line)
    try:
        known = entry["type"] in _WRITES and isinstance(entry["expires_at_ms"], int | None)
        decoded = [b64decode(part, validate=True) for part in (entry["key"], *entry["value"])]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no key of working memory: {error!r}") from error
    if not known or len(decoded) < 2:
        raise ValueError("no key of working memory")


def _keys(client: redis.Redis) -> set[bytes]:
    """Ours only: a Redis by URL may serve others too."""
    found = {key for pattern in _PATTERNS for key in client.scan_iter(match=pattern, count=1000)}
    ours = {key for key in found if scope_of("session:" + key.decode("utf-8", "replace").partition(":")[2]) is not None}
    return ours | {IDLE_KEY.encode()}


def _read(pipeline: Any, key: bytes) -> None:
    kind = _kind(key)
    if kind == "hash":
        pipeline.hgetall(key)
    elif kind == "list":
        pipeline.lrange(key, 0, -1)
    else:
        pipeline.zrange(key, 0, -1, withscores=True)


def _kind(key: bytes) -> str:
    return "zset" if key == IDLE_KEY.encode() else "list" if key.startswith(b"chain:") else "hash"


def _line(key: bytes, value: Any, expires_at_ms: int | None) -> bytes:
    kind = _kind(key)
    parts: Sequence[bytes]
    if kind == "hash":
        parts = [part for pair in value.items() for part in pair]
    elif kind == "zset":
        parts = [part for member, score in value for part in (repr(score).encode(), member)]
    else:
        parts = value
    entry = {
        "key": b64encode(key).decode(),
        "type": kind,
        "expires_at_ms": expires_at_ms,
        "value": [b64encode(part).decode() for part in parts],
    }
    return orjson.dumps(entry) + b"\n"
