"""The memory API of a running proxy, as commands call it.

In: where it runs, a key, whose memories. Out: its JSON answers, and records as `Memory` values; every way in which a
proxy can fail to answer becomes a sentence that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, fields
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
_ADVICE = {
    401: "; give a key with --key",
    403: "; name the user with --user, and a key that may act for them with --key",
}


class NotFound(SidemirrorError):
    """The proxy has no such thing, or none that this user may read."""


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
        self._http = aiohttp.ClientSession(headers=self._target.headers())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One request to the API.

        Args:
            method: HTTP method.
            path: Below ``/memory/``, e.g. ``records``; ids in it are escaped already.
            params: Query.
            body: JSON body.

        Returns:
            The answer's JSON object.

        Raises:
            NotFound: There is no such thing.
            SidemirrorError: The proxy does not answer, or refuses.
        """
        assert self._http is not None, "use it with 'async with'"
        url = f"{self._target.url.rstrip('/')}/memory/{path}"
        try:
            async with self._http.request(method, url, params=params, json=body) as response:
                return _answer(response.status, await response.read(), self._target.url)
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise SidemirrorError(
                f"no proxy answers at {self._target.url}; start it with 'sidemirror serve', or name another with --url"
            ) from error
        except (aiohttp.ClientError, ValueError) as error:
            raise SidemirrorError(f"--url {self._target.url!r} cannot be called: {error}") from error

    async def records(
        self, *, told: Callable[[int], object] = lambda _: None, **filters: str | int
    ) -> AsyncIterator[Memory]:
        """Every record that the user may read, newest first, page by page.

        Args:
            told: Called after each page with how many records have come so far.
            filters: Of `GET /memory/records`, e.g. ``state="all"``.

        Raises:
            SidemirrorError: As for `request`.
        """
        params: dict[str, str | int] = {"limit": PAGE, **filters}
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


def _answer(status: int, data: bytes, url: str) -> dict[str, Any]:
    """The JSON object of an answer; a refusal is known by OpenAI's error shape, which every one of ours has."""
    try:
        answer = orjson.loads(data)
    except orjson.JSONDecodeError:
        answer = None
    refusal = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or (status >= 400 and not isinstance(refusal, dict)):
        raise SidemirrorError(
            f"what answers at {url} is no Sidemirror (HTTP {status}); name its address with --url, without /v1"
        )
    if not isinstance(refusal, dict):
        return answer
    said = str(refusal.get("message", ""))
    if status == 404:
        raise NotFound(said)
    raise SidemirrorError(f"{url} refuses (HTTP {status}): {said}{_ADVICE.get(status, '')}")
