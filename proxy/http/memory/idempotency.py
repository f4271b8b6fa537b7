"""`Idempotency-Key`: a request that is sent again is answered as the first time, and nothing is done twice.

In: an owner, a key, a fingerprint of the whole request. Out: the answer, kept in the store for a day. Forgetting a
record takes its text out of kept answers too: such a repeat is then told that the record is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b

from aiohttp import web

from proxy.errors import RequestError, StoreUnavailable
from proxy.http.operation import ETAG, IDEMPOTENCY_KEY, REPLAYED
from proxy.plugs import KeptAnswer, Store
from proxy.scope import Scope

KEPT_FOR = timedelta(hours=24)
_MAX_KEY_CHARS = 255


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that may be given again.

    Args:
        status: HTTP status.
        body: JSON.
        memory_id: The record whose text is in it, if any.
        etag: That record's ETag.
        replayed: Whether it is that of an earlier request.
    """

    status: int
    body: str
    memory_id: str | None = None
    etag: str | None = None
    replayed: bool = False

    def response(self) -> web.Response:
        """The same as a response."""
        headers = {ETAG.name: self.etag} if self.etag is not None else {}
        if self.replayed:
            headers[REPLAYED.name] = "true"
        return web.Response(
            body=self.body.encode(),
            status=self.status,
            headers=headers,
            content_type="application/json",
            charset="utf-8",
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """One request under its key, while it is worked on.

    Args:
        key: Its key; None when it has none, and everything here does nothing.
        kept: The answer to an earlier request with this key.
    """

    key: str | None
    kept: KeptAnswer | None

    def replay(self, asked: str) -> Reply | None:
        """The earlier answer; None when there is none.

        Raises:
            RequestError: 422, when the earlier request was another one; 410, when its record was forgotten since.
        """
        if self.kept is None:
            return None
        if self.kept.fingerprint != asked:
            raise RequestError(
                "this key was used for another request: take a new key for a new request",
                status=422,
                code="idempotency_key_reused",
                param=IDEMPOTENCY_KEY.name,
            )
        if self.kept.body is None:
            raise RequestError(
                "this request was answered before, and the record that it wrote was forgotten since; with a new key it "
                "is written again",
                status=410,
                code="forgotten",
                param=IDEMPOTENCY_KEY.name,
            )
        return Reply(self.kept.status, self.kept.body, self.kept.memory_id, self.kept.etag, replayed=True)


@dataclass(frozen=True)
class Idempotency:
    """Kept answers. Thread-safe.

    Args:
        store: Where they lie.
        clock: Returns now, aware UTC.
    """

    store: Store
    clock: Callable[[], datetime]
    _busy: set[tuple[str, str]] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def once(self, scope: Scope, key: str | None, asked: str, work: Callable[[], Reply]) -> Reply:
        """Do it, or answer as the first time. To be run on one thread, so that no client's going away tears it apart.

        Args:
            scope: Whose.
            key: The request's; None does it whatever came before.
            asked: The request's fingerprint.
            work: What it asks for.

        Raises:
            RequestError: As for `hold` and `Claim.replay`, and what `work` raises: that is not kept.
        """
        with self.hold(scope, key):
            claim = self.look_up(scope, key)
            if (earlier := claim.replay(asked)) is not None:
                return earlier
            reply = work()
            self.keep(scope, claim, asked, reply)
            return reply

    @contextmanager
    def hold(self, scope: Scope, key: str | None) -> Iterator[None]:
        """Hold a key while its request is worked on.

        Raises:
            RequestError: 409, while another request with the key is worked on.
        """
        if key is None:
            yield
            return
        held = (scope.partition("user"), key)
        with self._lock:
            if held in self._busy:
                raise RequestError(
                    "a request with this key is being worked on: wait for its answer, then send it again",
                    status=409,
                    code="idempotency_key_busy",
                    param=IDEMPOTENCY_KEY.name,
                )
            self._busy.add(held)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(held)

    def look_up(self, scope: Scope, key: str | None) -> Claim:
        """The key with what was answered to it before."""
        if key is None:
            return Claim(None, None)
        return Claim(key, self.store.kept_answer(scope, key, since=self.clock() - KEPT_FOR))

    def keep(self, scope: Scope, claim: Claim, asked: str, reply: Reply) -> None:
        """Remember the answer to a claimed request."""
        key = claim.key
        if key is None:
            return
        now = self.clock()
        answer = KeptAnswer(asked, reply.status, reply.body, reply.memory_id, reply.etag)
        # It is done, whether or not that can be remembered.
        with suppress(StoreUnavailable):
            self.store.transact(lambda tx: tx.keep_answer(scope, key, answer, now, now - KEPT_FOR)).result()


def key_of(request: web.Request) -> str | None:
    """The request's key.

    Raises:
        RequestError: 400, for one that is empty, too long, or given twice with different values.
    """
    given = set(request.headers.getall(IDEMPOTENCY_KEY.name, ()))
    if not given:
        return None
    key = given.pop()
    if given or not 1 <= len(key) <= _MAX_KEY_CHARS or not key.isprintable():
        raise RequestError(
            f"give one key, of 1 to {_MAX_KEY_CHARS} printable characters",
            code="invalid_idempotency_key",
            param=IDEMPOTENCY_KEY.name,
        )
    return key


def fingerprint(request: web.Request, scope: Scope, body: bytes) -> str:
    """Names a whole request: where it went, for whom, and what it said."""
    return started_fingerprint(request, scope, body).hexdigest()


def started_fingerprint(request: web.Request, scope: Scope, body: bytes = b"") -> blake2b:
    """The same for a body that comes in pieces: to be updated with them."""
    owner = (scope.tenant, scope.user_id, scope.agent_id, scope.session_id or "")
    where = "\0".join([request.method, request.path, request.query_string, *owner])
    return blake2b(where.encode("utf-8", "surrogatepass") + b"\0" + body, digest_size=20)
