"""The official SDK's side: our tools as its `Server`, served statelessly as an ASGI application.

Importing it costs half a second and 30 MB, so `door` imports it when the first client comes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ListedTool

from proxy import __version__
from proxy.http.mcp.arguments import schema
from proxy.http.mcp.asgi import Application, Message, Receive, Send
from proxy.http.mcp.catalogue import TOOLS, Tool
from proxy.http.mcp.told import Answer
from proxy.http.mcp.words import INSTRUCTIONS

NAME = "sidemirror"
Call = Callable[[str, Mapping[str, Any]], Awaitable[Answer]]


def _listed(tool: Tool) -> ListedTool:
    return ListedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema(tool.arguments),
        output_schema=schema(tool.result),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads_only,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.repeatable,
            open_world_hint=False,
        ),
    )


_LISTED = {tool.name: _listed(tool) for tool in TOOLS}


def application(offered: Sequence[Tool], call: Call) -> Application:
    """An application for one request of one caller.

    Args:
        offered: The tools that the caller may use.
        call: Calls one of them, whatever its name.

    Returns:
        An ASGI application that keeps nothing from one request to the next, whatever the client's protocol version.
    """

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[_LISTED[tool.name] for tool in offered])

    async def call_tool(_context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        answer = await call(params.name, params.arguments or {})
        return CallToolResult(
            content=[TextContent(type="text", text=answer.text)],
            structured_content=answer.structured,
            is_error=answer.is_error,
        )

    server: Server[Any] = Server(
        NAME,
        version=__version__,
        title="Sidemirror",
        description="The user's long-term memory",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda name: _LISTED[name].input_schema if name in _LISTED else None,
    )

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        # Its task group must be left by the task that entered it: one manager a request, since it keeps nothing.
        sessions = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        async with sessions.run():
            await sessions.handle_request(scope, receive, send)

    return app
