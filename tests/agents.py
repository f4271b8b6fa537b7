"""Agents as tests play them: the official MCP client, and what it was answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import TextContent


@dataclass(frozen=True)
class Said:
    """What a tool answered."""

    text: str
    data: dict[str, Any]
    is_error: bool

    @property
    def contents(self) -> list[str]:
        """The contents of the memories found."""
        return [one["content"] for one in self.data["memories"]]


@dataclass(frozen=True)
class Agent:
    """A connected client."""

    client: mcp.Client

    async def call(self, tool: str, /, **arguments: Any) -> Said:
        """Call a tool."""
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert isinstance(content, TextContent)
        return Said(content.text, result.structured_content or {}, result.is_error)

    async def done(self, tool: str, /, **arguments: Any) -> Said:
        """Call a tool that must not fail."""
        said = await self.call(tool, **arguments)
        assert not said.is_error, said.text
        return said

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must fail, and return what it says."""
        said = await self.call(tool, **arguments)
        assert said.is_error, said.text
        assert said.data == {}
        return said.text

    async def tools(self) -> list[str]:
        """The names of the tools offered."""
        return [tool.name for tool in (await self.client.list_tools()).tools]


@asynccontextmanager
async def agent(address: str, *, mode: str = "auto", **headers: str) -> AsyncIterator[Agent]:
    """Connect to a proxy's `/mcp`; headers by their names with underscores.

    Args:
        address: The proxy's.
        mode: ``auto`` takes the newest version of the protocol, ``legacy`` the newest with a handshake.
        headers: `user` and `agent` stand for X-Memory-User and X-Memory-Agent.
    """
    known = {"user": "X-Memory-User", "agent": "X-Memory-Agent"}
    named = {known.get(name, name.replace("_", "-").title()): value for name, value in headers.items()}
    async with (
        create_mcp_http_client(headers=named) as http,
        mcp.Client(streamable_http_client(f"{address}/mcp", http_client=http), mode=mode) as client,
    ):
        yield Agent(client)
