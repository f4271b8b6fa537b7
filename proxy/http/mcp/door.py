"""The door `/mcp`: tells who asks before anything is read, then hands the request to the SDK."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol, cast

from aiohttp import web

from proxy import log
from proxy.auth import Principal
from proxy.errors import RequestError
from proxy.http.gate import Gate
from proxy.http.mcp import asgi
from proxy.http.mcp.catalogue import Tool
from proxy.http.mcp.told import Answer
from proxy.http.mcp.tools import Caller, Tools
from proxy.scope import Scope

PATH = "/mcp"


class _Call(Protocol):
    def __call__(self, name: str, arguments: Mapping[str, Any], /) -> Any: ...


class _Sdk(Protocol):
    """What is used of `proxy.http.mcp.sdk`."""

    def application(self, offered: Sequence[Tool], call: _Call) -> asgi.Application:
        """An ASGI application for one request."""


class McpDoor:
    """MCP over streamable HTTP, without sessions: each POST is answered with one JSON body, and nothing is kept.

    There is no stream to GET and no session to DELETE; both are answered 405, as the protocol has it.

    Args:
        tools: What is offered.
        gate: Tells who asks, and whose memories are meant.
        threads: Where the tools, which wait, run.
    """

    def __init__(self, tools: Tools, gate: Gate, threads: Executor) -> None:
        self._tools = tools
        self._gate = gate
        self._threads = threads
        self._sdk: _Sdk | None = None
        self._importing = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """The one route."""
        return [web.post(PATH, self.serve)]

    async def serve(self, request: web.Request) -> web.Response:
        """Answer one request.

        Args:
            request: Any message of the protocol, of any version that the SDK knows.

        Returns:
            The SDK's answer.

        Raises:
            RequestError: 401 for a wrong key; 403 for a foreign host or page, a key that may not use memory, or one
                that is bound to another user or agent.
        """
        principal = self._gate.enter(request, None)
        if not principal.may("memory:write"):
            principal.require("memory:read")
        caller = Caller(principal, self._owner(request, principal))

        async def call(name: str, arguments: Mapping[str, Any]) -> Answer:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._tools.call, caller, name, arguments)

        sdk = await self._imported()
        return await asgi.answer(sdk.application(self._tools.offered(caller), call), request)

    def _owner(self, request: web.Request, principal: Principal) -> Scope | None:
        try:
            return self._gate.owner(request, principal)
        except RequestError as error:
            # A client that names nobody may connect; each tool then tells it what is missing.
            if error.code != "no_identity":
                raise
            return None

    async def _imported(self) -> _Sdk:
        async with self._importing:
            if self._sdk is None:
                self._sdk = await asyncio.to_thread(_import)
        return self._sdk


def _import() -> _Sdk:
    module = importlib.import_module("proxy.http.mcp.sdk")
    log.adopt()
    return cast(_Sdk, module)
