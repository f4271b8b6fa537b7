"""The working layer on Redis: a session's slots and task chain, the recall cache, and who has gone idle.

In: scopes and slots. Out: what Redis holds, or `WorkingMemoryUnavailable` at once. Every call is one pipelined round
trip under a short deadline. Lost data here is never the only copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from redis.exceptions import ResponseError

from proxy.scope import Scope
from proxy.store.redis_link import Command, RedisLink
from proxy.store.session_keys import (
    IDLE_KEY,
    cache_key,
    chain_key,
    named_in,
    scope_of,
    session_key,
    tenant_cache_pattern,
    user_pattern,
)
from proxy.store.slot_json import decode_object, decode_slot, encode_slot
from proxy.types import Slot

_PUT, _APPEND, _FORGET = (
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("put_slots.lua", "append_step.lua", "forget_messages.lua")
)
_IDLE_KEPT_S = 7 * 86_400
_SCAN_COUNT = 1000


class RedisWorkingMemory:
    """`plugs.WorkingMemory` on any Redis: the embedded one or one by URL.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        ttl_s: Sliding time to live of a session's hash and chain, seconds.
        max_items: Slots a session may hold; past it the ones written longest ago go.
        max_steps: Steps a task chain may hold; past it the first ones go.
        timeout_s: Deadline of each wait on the socket, seconds.
        clock: Unix seconds, for the idle set.
        breaker_clock: Monotonic seconds, for the breaker.
        discard: Deletes what else on this machine may hold text of Redis's; None where there is nothing.

    Raises:
        ValueError: The URL is wrong, or a limit is not positive.
    """

    def __init__(
        self,
        url: str,
        *,
        ttl_s: float = 3600.0,
        max_items: int = 60,
        max_steps: int = 200,
        timeout_s: float = 0.03,
        clock: Callable[[], float] = time.time,
        breaker_clock: Callable[[], float] = time.monotonic,
        discard: Callable[[], object] | None = None,
    ) -> None:
        if min(ttl_s, max_items, max_steps, timeout_s) <= 0:
            raise ValueError("ttl_s, max_items, max_steps and timeout_s must be positive")
        self._link = RedisLink(url, timeout_s, breaker_clock)
        self._ttl_ms = _ms(ttl_s)
        self._max_items = max_items
        self._max_steps = max_steps
        self._clock = clock
        self._discard = discard

    def with_timeout(self, timeout_s: float) -> RedisWorkingMemory:
        """The same layer under another deadline; when Redis refuses writes, both know. To be closed by itself."""
        other = copy(self)
        other._link = self._link.with_timeout(timeout_s)
        return other

    def slots(self, scope: Scope) -> Mapping[str, Slot]:
        """The session's slots by name; reading slides the TTL. Values that are not ours are left out.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
            ValueError: The scope has no session.
        """
        reply, *_ = self._link.run(("HGETALL", session_key(scope)), *self._slide(scope, self._ttl_ms))
        if not isinstance(reply, list) or not reply:
            return {}
        fields = zip(reply[::2], reply[1::2], strict=True)
        read = [slot for slot in (decode_slot(name, text) for name, text in fields) if slot is not None]
        if any(ttl_ms is not None for _, ttl_ms in read):
            # The newest write's own TTL holds for the whole hash; only then a second round trip.
            newest_ttl = max(read, key=lambda entry: entry[0].updated_at)[1]
            if newest_ttl is not None:
                self._link.run(*self._slide(scope, newest_ttl))
        # Redis keeps no order; what is built from the slots must not change while they do not.
        return {slot.name: slot for slot, _ in sorted(read, key=lambda entry: (entry[0].updated_at, entry[0].name))}

    def put(self, scope: Scope, slots: Sequence[Slot], *, ttl_s: float | None = None) -> None:
        """Write slots and slide the TTL; past the limit the oldest slots by `updated_at` go.

        Args:
            scope: With its session.
            slots: None: nothing happens.
            ttl_s: Time to live of the session from this write on, kept by reads; None is the layer's.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer, or refuses writes.
            ValueError: The scope has no session, or `ttl_s` is not positive.
            TypeError: A value is not JSON.
        """
        key = session_key(scope)
        if ttl_s is not None and ttl_s <= 0:
            raise ValueError("ttl_s must be positive")
        if not slots:
            return
        ttl_ms = None if ttl_s is None else _ms(ttl_s)
        fields = [part for slot in slots for part in (slot.name, encode_slot(slot, ttl_ms))]
        keep_ms = ttl_ms or self._ttl_ms
        self._link.run(
            ("EVAL", _PUT, 1, key, keep_ms, self._max_items, *fields),
            ("PEXPIRE", chain_key(scope), keep_ms),
            *self._active(key),
            writes=True,
        )

    def append_step(self, scope: Scope, step: Mapping[str, Any]) -> None:
        """Add a step to the session's task chain.

        Args:
            scope: With its session.
            step: JSON; its `message_hash`, if any, lets `forget` find it.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer, or refuses writes.
            ValueError: The scope has no session.
            TypeError: The step is not JSON.
        """
        key = session_key(scope)
        self._link.run(
            ("EVAL", _APPEND, 1, chain_key(scope), self._ttl_ms, self._max_steps, orjson.dumps(dict(step))),
            ("PEXPIRE", key, self._ttl_ms),
            *self._active(key),
            writes=True,
        )

    def steps(self, scope: Scope) -> list[dict[str, Any]]:
        """The session's task chain, oldest first; reading slides the TTL. Entries that are not ours are left out.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
            ValueError: The scope has no session.
        """
        reply, *_ = self._link.run(("LRANGE", chain_key(scope), 0, -1), *self._slide(scope, self._ttl_ms))
        entries = (decode_object(text) for text in reply) if isinstance(reply, list) else ()
        return [entry for entry in entries if entry is not None]

    def end(self, scope: Scope) -> bool:
        """Delete the session's hash and chain, and take it off the idle set; False when there was no hash.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
            ValueError: The scope has no session.
        """
        key = session_key(scope)
        deleted, *_ = self._link.run(("DEL", key), ("DEL", chain_key(scope)), ("ZREM", IDLE_KEY, key), writes=True)
        return bool(deleted)

    def idle_sessions(self, before: datetime, limit: int = 100) -> list[Scope]:
        """Sessions last active before `before`, the longest idle first; they stay listed until ended or claimed.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
        """
        (members,) = self._link.run(("ZRANGEBYSCORE", IDLE_KEY, "-inf", f"({before.timestamp()}", "LIMIT", 0, limit))
        scopes = {
            member: scope_of(member.decode("utf-8", "replace"))
            for member in (members if isinstance(members, list) else ())
        }
        foreign = [member for member, scope in scopes.items() if scope is None]
        if foreign:
            # Left in place they would fill the page and hide real sessions.
            self._link.run(("ZREM", IDLE_KEY, *foreign), writes=True)
        return [scope for scope in scopes.values() if scope is not None]

    def claim_idle(self, scope: Scope) -> bool:
        """Take a session off the idle set and leave its data to the TTL; True for the one caller that took it.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
            ValueError: The scope has no session.
        """
        (removed,) = self._link.run(("ZREM", IDLE_KEY, session_key(scope)), writes=True)
        return bool(removed)

    def cache_get(self, key: str) -> bytes | None:
        """A cached value, or None."""
        (value,) = self._link.run(("GET", cache_key(key)))
        return value if isinstance(value, bytes) else None

    def cache_put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Cache a value for `ttl_s` seconds; names come from `session_keys.cache_name`."""
        self._link.run(("SET", cache_key(key), value, "PX", _ms(ttl_s)), writes=True)

    def forget(self, scope: Scope, message_hashes: Collection[str], *, shared: bool = False) -> None:
        """Delete what this user's sessions made from these messages, and all the user's cached recalls.

        The text may still stand in the append-only file: call `rewrite` afterwards.

        Args:
            scope: Whose; agent and session do not narrow it, since one message may have been told to several.
            message_hashes: May be empty: then only the cache is cleared.
            shared: Whether what all users of the tenant had cached goes too.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer; what was deleted by then stays deleted.
        """
        for keys in self._scan(user_pattern(scope)):
            cached = [key for key in keys if key.startswith(b"recall:")]
            owned = [key for key in keys if key.startswith((b"session:", b"chain:"))] if message_hashes else []
            self._remove([("EVAL", _FORGET, 1, key, *message_hashes) for key in owned], cached)
        for keys in self._scan(tenant_cache_pattern(scope)) if shared else ():
            self._remove([], keys)

    def clear(self, scope: Scope, *, session_id: str | None, agent_id: str | None) -> None:
        """Delete all slots, task chains and cached recalls of a user; `rewrite` as for `forget`.

        Args:
            scope: Whose.
            session_id: Of this session only.
            agent_id: Of this agent only.

        Raises:
            WorkingMemoryUnavailable: As for `forget`.
        """
        for keys in self._scan(user_pattern(scope)):
            meant = [key for key in keys if _meant(key, session_id, agent_id)]
            self._remove([], meant)

    def _scan(self, pattern: str) -> Iterator[list[bytes]]:
        cursor = 0
        while True:
            (reply,) = self._link.run(("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT))
            cursor = int(reply[0])
            yield reply[1]
            if cursor == 0:
                return

    def _remove(self, commands: list[Command], keys: Sequence[bytes]) -> None:
        if keys:
            commands.append(("UNLINK", *keys))
        if commands:
            self._link.run(*commands, writes=True)

    def rewrite(self) -> bool:
        """Have Redis write its append-only file anew, so that deleted text leaves the disk.

        Returns:
            True when a rewrite that starts after this call is under way or scheduled; False when one is already
            running (its snapshot may be older than the deletion: call again) or the server offers none.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
        """
        if self._discard is not None:
            self._discard()
        (reply,) = self._link.run(("BGREWRITEAOF",), expected=(ResponseError,))
        return not isinstance(reply, ResponseError)

    def healthy(self) -> bool:
        """Whether Redis answered, and took writes, the last time; asks again when it had not, once a second at most."""
        return self._link.healthy()

    def close(self) -> None:
        """Drop connections."""
        self._link.close()

    def _slide(self, scope: Scope, ttl_ms: int) -> tuple[Command, Command]:
        return ("PEXPIRE", session_key(scope), ttl_ms), ("PEXPIRE", chain_key(scope), ttl_ms)

    def _active(self, key: str) -> tuple[Command, Command]:
        now = self._clock()
        # Without the second one sessions that nobody ends would stay listed for ever.
        return ("ZADD", IDLE_KEY, now, key), ("ZREMRANGEBYSCORE", IDLE_KEY, "-inf", now - _IDLE_KEPT_S)


def _meant(key: bytes, session_id: str | None, agent_id: str | None) -> bool:
    session, agent = named_in(key.decode())
    return session_id in (None, session) and agent_id in (None, agent)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
