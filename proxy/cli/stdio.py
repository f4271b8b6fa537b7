"""MCP over stdio, handed to the `/mcp` of a running proxy: one place does the work, whichever way an agent comes.

In: where the proxy runs, and whose memories; then the protocol on stdin. Out: the protocol on stdout. The proxy may be
restarted meanwhile: nothing is kept from one call to the next, and while it is away each call says so.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final, Self

import aiohttp
import orjson
from mcp import MCPError, stdio_server
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from mcp.types.version import LATEST_HANDSHAKE_VERSION

from proxy import __version__
from proxy.cli.client import Target
from proxy.errors import SidemirrorError

_NAME: Final = "sidemirror"
_TIMEOUT_S: Final = 60.0
_KEEPALIVE_S: Final = 15.0
_HEADERS: Final = {"Accept": "application/json", "MCP-Protocol-Version": LATEST_HANDSHAKE_VERSION}
_ADVICE: Final = {401: "; give a key with --key", 403: "; name the user with --user, or give their key with --key"}


class RemoteTools:
    """The tools of a running proxy. Used with ``async with``.

    Args:
        target: Which proxy, and whose memories.
        timeout_s: How long one call may take.
        keepalive_s: How long an unused connection is kept.
    """

    def __init__(self, target: Target, *, timeout_s: float = _TIMEOUT_S, keepalive_s: float = _KEEPALIVE_S) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._keepalive_s = keepalive_s
        self._ids = count(1)
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            headers={**self._target.headers(), **_HEADERS},
            connector=aiohttp.TCPConnector(keepalive_timeout=self._keepalive_s),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def hello(self) -> dict[str, Any]:
        """What the proxy says of itself: its server info and instructions.

        Raises:
            SidemirrorError: It does not answer, or refuses.
        """
        about = {"name": _NAME, "version": __version__}
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": about}
        said = await self.ask("initialize", params)
        if said.get("serverInfo", {}).get("name") != _NAME:
            raise _foreign(self._target.url, 200)
        return said

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request of the protocol.

        Args:
            method: E.g. ``tools/call``.
            params: Its parameters.

        Returns:
            Its result.

        Raises:
            SidemirrorError: The proxy does not answer, or refuses.
        """
        assert self._http is not None, "use it with 'async with'"
        url = self._target.url
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        try:
            async with self._http.post(f"{url.rstrip('/')}/mcp", json=body) as response:
                return _result(response.status, await response.read(), url)
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise SidemirrorError(
                f"no proxy answers at {url}; start it with 'sidemirror serve', or name another with --url"
            ) from error
        except (aiohttp.ClientError, ValueError) as error:
            raise SidemirrorError(f"--url {url!r} cannot be called: {error}") from error


def _result(status: int, data: bytes, url: str) -> dict[str, Any]:
    """The result of an answer; errors of the protocol and our own both have a message."""
    try:
        answer = orjson.loads(data)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise _foreign(url, status)
    match answer:
        case {"result": dict() as result} if status < 400:
            return result
        case {"error": {"message": str() as said}}:
            raise SidemirrorError(f"{url} refuses (HTTP {status}): {said}{_ADVICE.get(status, '')}")
        case _:
            raise _foreign(url, status)


def _foreign(url: str, status: int) -> SidemirrorError:
    return SidemirrorError(
        f"what answers at {url} is no Sidemirror with MCP (HTTP {status}); name its address with --url, without /mcp"
    )


def server(tools: RemoteTools, hello: dict[str, Any]) -> Server[Any]:
    """An MCP server that hands every call on.

    Args:
        tools: Where to.
        hello: What the proxy said of itself.
    """

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        try:
            return ListToolsResult.model_validate(await tools.ask("tools/list", {}))
        except SidemirrorError as error:
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error

    async def call_tool(_context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        asked = {"name": params.name, "arguments": params.arguments or {}}
        try:
            return CallToolResult.model_validate(await tools.ask("tools/call", asked))
        except SidemirrorError as error:
            text = f"Memory cannot be reached: {error}. Go on without it, and tell the user."
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)

    info = hello["serverInfo"]
    return Server(
        info["name"],
        version=info["version"],
        title=info.get("title"),
        description=info.get("description"),
        instructions=hello.get("instructions"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve(target: Target) -> None:
    """Serve until stdin ends.

    Args:
        target: Which proxy, and whose memories.

    Raises:
        SidemirrorError: The proxy does not answer, or refuses: told at once, since an agent shows it where it starts.
    """
    async with RemoteTools(target) as tools:
        served = server(tools, await tools.hello())
        async with stdio_server() as (incoming, outgoing):
            await served.run(incoming, outgoing, served.create_initialization_options())
