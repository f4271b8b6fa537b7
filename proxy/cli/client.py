"""The memory API of a running proxy, as commands call it.

In: where it runs, a key, whose memories. Out: its JSON answers, records as `Memory` values, streams of lines; every way
in which a proxy can fail to answer becomes a sentence that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import aiohttp
import orjson

from proxy.config import Config, default_path, load
from proxy.errors import SidemirrorError
from proxy.identity import AGENT, USER
from proxy.store.data_dir import living_address
from proxy.store.records import memory_from_json
from proxy.types import Memory

PAGE = 500
"""Records per page: the most that the API gives."""

_FIELDS = frozenset(field.name for field in fields(Memory))
_ALL_AGENTS = "*"
_SHORT = aiohttp.ClientTimeout(total=60, connect=10)
_LONG = aiohttp.ClientTimeout(total=None, connect=10)
"""Of streams: they take as long as they take."""
_ADVICE = {
    401: "; give a key with --key",
    403: "; name the user with --user, and a key that may act for them with --key",
}


_CONFLICTS = (409, 412)
_NDJSON = "application/x-ndjson"
Query = Mapping[str, str | int | list[str]]


class NotFound(SidemirrorError):
    """The proxy has no such thing, or none that this user may read."""


class Conflict(SidemirrorError):
    """The record is not as it must be for this: it changed, or another one holds its place."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API answered.

    Args:
        status: HTTP status.
        data: Its JSON object.
        etag: Of the record in it.
    """

    status: int
    data: dict[str, Any]
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Which proxy, and whose memories.

    Args:
        url: The proxy's address, e.g. ``http://127.0.0.1:8080``.
        key: Bearer key; None sends none.
        user: User id; None leaves it to the key or the proxy's default user.
        agent: Agent id; ``*`` means all of the user's agents, where a request can mean that.
    """

    url: str
    key: str | None = None
    user: str | None = None
    agent: str | None = None

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        named = {USER: self.user, AGENT: None if self.agent == _ALL_AGENTS else self.agent}
        bearer = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return {**bearer, **{name: value for name, value in named.items() if value is not None}}


def local_url(config: Config | None = None) -> str:
    """Where the proxy of this folder's configuration runs, or would run.

    Args:
        config: Settings; by default those that `serve` would read here.
    """
    settings = config or load(default_path(), os.environ)
    return living_address(settings.data_dir) or f"http://{settings.server.host}:{settings.server.port}"


class MemoryClient:
    """One user's memory API. Used with ``async with``.

    Args:
        target: Which proxy, and whose memories.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(headers=self._target.headers(), timeout=_SHORT)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Query | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One request to the API.

        Args:
            method: HTTP method.
            path: Below ``/memory/``, e.g. ``records``; ids in it are escaped already.
            params: Query; a list is a parameter that is repeated.
            body: JSON body.

        Returns:
            The answer's JSON object.

        Raises:
            NotFound: There is no such thing.
            Conflict: There is, but not as it must be for this.
            SidemirrorError: The proxy does not answer, or refuses.
        """
        return (await self.exchange(method, path, params=params, body=body)).data

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Query | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """As `request`, with headers both ways."""
        async with self._called(method, path, params=params, json=body, headers=headers) as response:
            data = _answer(response.status, await response.read(), self._target.url)
            return Answer(response.status, data, response.headers.get("ETag"))

    async def send_lines(self, path: str, lines: bytes, *, params: Query | None = None) -> dict[str, Any]:
        """Send JSON lines.

        Args:
            path: Below ``/memory/``.
            lines: They.
            params: Query.

        Returns:
            What became of them; lines that did not come in stand under ``errors``.

        Raises:
            SidemirrorError: As for `request`.
        """
        headers = {"Content-Type": _NDJSON}
        async with self._called("POST", path, params=params, data=lines, headers=headers, timeout=_LONG) as response:
            data = await response.read()
            return _answer(response.status, data, self._target.url, partial=response.status == 422)

    async def receive(self, path: str, *, params: Query | None = None) -> AsyncIterator[bytes]:
        """The answer as it comes, in pieces.

        Raises:
            SidemirrorError: As for `request`.
        """
        async with self._called("GET", path, params=params, timeout=_LONG) as response:
            if response.content_type != _NDJSON:
                _answer(response.status, await response.read(), self._target.url)
                raise SidemirrorError(f"what answers at {self._target.url} cannot export; it is of an older version")
            async for piece in response.content.iter_any():
                yield piece

    @asynccontextmanager
    async def _called(self, method: str, path: str, **named: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._http is not None, "use it with 'async with'"
        url = f"{self._target.url.rstrip('/')}/memory/{path}"
        with _told(self._target.url):
            async with self._http.request(method, url, **named) as response:
                yield response

    async def holder(self, memory_id: str) -> str | None:
        """The agent under which one of the user's records can be read; None for the one asked as.

        Args:
            memory_id: Of the record.

        Raises:
            NotFound: None of the user's agents has it.
        """
        try:
            await self.request("GET", f"records/{memory_id}")
        except NotFound:
            every = MemoryClient(replace(self._target, agent=_ALL_AGENTS))
            every._http = self._http
            async for record in every.records(state="all"):
                if record.id == memory_id:
                    return record.agent_id
            raise
        return None

    async def records(
        self, *, told: Callable[[int], object] = lambda _: None, **filters: str | int | list[str]
    ) -> AsyncIterator[Memory]:
        """Every record that the user may read, newest first, page by page.

        Args:
            told: Called after each page with how many records have come so far.
            filters: Of `GET /memory/records`, e.g. ``state="all"``.

        Raises:
            SidemirrorError: As for `request`.
        """
        params: dict[str, str | int | list[str]] = {"limit": PAGE, **filters}
        if self._target.agent == _ALL_AGENTS:
            params["agent_id"] = _ALL_AGENTS
        count = 0
        while True:
            page = await self.request("GET", "records", params=params)
            count += len(page["data"])
            told(count)
            for record in page["data"]:
                yield memory_of(record)
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]

    async def record(self, memory_id: str) -> Memory | None:
        """One record in any state; None when there is none that the user may read."""
        try:
            return memory_of(await self.request("GET", f"records/{memory_id}"))
        except NotFound:
            return None

    async def injected(self, request_id: str) -> list[str]:
        """Ids of the memories that stood in one call; none where the call is not known any more."""
        try:
            ledger = await self.request("GET", f"requests/{request_id}")
        except NotFound:
            return []
        return [str(item) for item in ledger["injected"].get("items", ())]


def memory_of(record: Mapping[str, Any]) -> Memory:
    """A record of the API as a `Memory`; fields that a newer proxy adds are left out."""
    return memory_from_json(orjson.dumps({name: record[name] for name in record if name in _FIELDS}).decode())


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Ways of not being answered, as sentences."""
    try:
        yield
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        raise SidemirrorError(
            f"no proxy answers at {url}; start it with 'sidemirror serve', or name another with --url"
        ) from error
    except (aiohttp.ClientError, ValueError) as error:
        raise SidemirrorError(f"--url {url!r} cannot be called: {error}") from error


def _answer(status: int, data: bytes, url: str, *, partial: bool = False) -> dict[str, Any]:
    """The JSON object of an answer; a refusal is known by OpenAI's error shape, which every one of ours has.

    Args:
        status: HTTP status.
        data: The body.
        url: Who answered.
        partial: Whether a refusal may come with an account of what was done all the same.
    """
    try:
        answer = orjson.loads(data)
    except orjson.JSONDecodeError:
        answer = None
    refusal = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or (status >= 400 and not isinstance(refusal, dict)):
        raise SidemirrorError(
            f"what answers at {url} is no Sidemirror (HTTP {status}); name its address with --url, without /v1"
        )
    if not isinstance(refusal, dict) or (partial and "errors" in answer):
        return answer
    said = str(refusal.get("message", ""))
    if status == 404:
        raise NotFound(said)
    if status in _CONFLICTS:
        raise Conflict(said)
    raise SidemirrorError(f"{url} refuses (HTTP {status}): {said}{_ADVICE.get(status, '')}")
