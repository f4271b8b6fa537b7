"""`sidemirror mcp`: MCP over stdio, for agents that start their tools as a program of their own."""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import Coroutine
from typing import Annotated, Any, Protocol, cast

import typer

from proxy import log
from proxy.cli.client import Target, local_url


class _Stdio(Protocol):
    """What is used of `proxy.cli.stdio`."""

    def serve(self, target: Target) -> Coroutine[Any, Any, None]:
        """Serve until stdin ends."""


def mcp(
    url: Annotated[
        str | None, typer.Option(help="The proxy's address.  (default: the one that runs here, else config.yaml's)")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Key of the proxy, where it asks for one.", envvar="SIDEMIRROR_KEY")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Whose memories.  (default: the key's user, else the proxy's default user)")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="As which agent.  (default: the key's agent, else default)")] = None,
) -> None:
    """Serve MCP over stdio, handing every call to a running proxy.

    An agent starts this itself; docs/mcp.md shows its settings. Agents that speak HTTP need no command: they call
    the proxy's /mcp.

    Exit status: 0 when the agent closes stdin; 2 when no proxy answers, or it refuses.

    Example: sidemirror mcp --user ada --agent coder
    """
    log.configure("error")
    target = Target(url or local_url(), key, user, agent)
    # The SDK takes half a second to import, which the other commands need not wait for.
    stdio = cast(_Stdio, importlib.import_module("proxy.cli.stdio"))
    # There is nothing to put away, and the thread that waits for stdin cannot be woken.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(stdio.serve(target))
