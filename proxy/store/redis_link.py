"""One Redis server as the working layer sees it: pipelined round trips, or `WorkingMemoryUnavailable` at once.

In: commands. Out: their replies. Errors of every kind become one, and a breaker keeps an outage from costing more than
one attempt a second. Safe to share between threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from proxy.errors import WorkingMemoryUnavailable
from proxy.store.breaker import Breaker
from proxy.store.redis_url import connection_pool, shown

Command = tuple[str | bytes | int | float, ...]

_REFUSALS = ("OOM ", "READONLY ", "MISCONF ", "NOREPLICAS ")
_REASON_CHARS = 300


class RedisLink:
    """Sends commands in one round trip each, under a deadline and behind a breaker.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        timeout_s: Deadline of each wait on the socket, seconds.
        clock: Monotonic seconds, for the breaker.

    Raises:
        ValueError: The URL is wrong.
    """

    def __init__(self, url: str, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._pool = connection_pool(url, timeout_s)
        self._address = shown(url)
        self._asked = False
        self._link = Breaker(clock=clock)
        # A full or read-only Redis answers reads as before, so refused writes must not stop those.
        self._writes = Breaker(clock=clock)

    def with_timeout(self, timeout_s: float) -> RedisLink:
        """The same server under another deadline. One may find it too slow and the other not, but what it refuses to
        write for one it refuses for both."""
        other = RedisLink(self._url, timeout_s, self._clock)
        other._writes = self._writes
        return other

    def run(self, *commands: Command, writes: bool = False, expected: tuple[type[RedisError], ...] = ()) -> list[Any]:
        """Send commands in one round trip.

        Args:
            commands: Name and arguments each.
            writes: Whether any of them writes.
            expected: Error replies that the caller handles; those of a wrong type always come back in place.

        Returns:
            One reply per command, as the server gives it (RESP 2: a hash is a flat list of fields and values); errors
            of an expected kind in place.

        Raises:
            WorkingMemoryUnavailable: No connection, no answer in time, an error reply, or the breaker is open.
        """
        if not ((not writes or self._writes.admits()) and self._link.admits()):
            reason = self._link.reason or self._writes.reason
            raise WorkingMemoryUnavailable(f"Redis at {self._address} failed ({reason}); it is asked again in a second")
        self._asked = True
        try:
            replies = self._round_trip(commands)
            for reply in replies:
                if isinstance(reply, RedisError) and not isinstance(reply, expected) and not _is_wrong_type(reply):
                    raise reply
        except (RedisError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"[:_REASON_CHARS]
            (self._writes if writes and _is_refusal(error) else self._link).failed(reason)
            raise WorkingMemoryUnavailable(
                f"Redis at {self._address}: {reason}; "
                "calls go on without working memory; check that it runs and that redis.url is right"
            ) from error
        self._link.succeeded()
        if writes:
            self._writes.succeeded()
        return replies

    def healthy(self) -> bool:
        """Whether Redis answered, and took writes, the last time; asks again when it had not, once a second at most."""
        if self._asked and not self._link.is_open and not self._writes.is_open:
            return True
        try:
            # A PING would not notice a Redis that is full or read-only.
            self.run(("SET", "sidemirror:health", 1, "PX", 1000), writes=True)
        except WorkingMemoryUnavailable:
            return False
        return True

    def close(self) -> None:
        """Drop connections."""
        self._pool.disconnect()

    def _round_trip(self, commands: tuple[Command, ...]) -> list[Any]:
        # On the connection itself: redis-py's pipeline around it takes more time than Redis.
        connection: Any = self._pool.get_connection()
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            return [_reply(connection) for _ in commands]
        except BaseException:
            # Replies that nobody read would be taken for those to the next commands.
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _is_wrong_type(error: RedisError) -> bool:
    return isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")


def _is_refusal(error: Exception) -> bool:
    # Old servers wrap a script's error in another one, so the code may stand anywhere.
    return isinstance(error, OutOfMemoryError | ReadOnlyError) or (
        isinstance(error, ResponseError) and any(code in str(error) for code in _REFUSALS)
    )
