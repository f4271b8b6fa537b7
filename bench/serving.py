"""How the provider and the bare relay are served: uvloop, a free port, the address on stdout, until stdin closes.

Since their stdin closes with the bench, neither outlives it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import uvloop
from aiohttp import web

from proxy.http.server import runner

Handler = Callable[[web.Request], object]


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    """For a server that needs nothing beside itself."""
    yield


def serve(app: web.Application, around: AbstractAsyncContextManager[object] | None = None) -> None:
    """Serve with the very runner that the product uses.

    Args:
        app: The application.
        around: Entered before, left after.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as run:
        run.run(_serve(app, around or nothing()))


async def _serve(app: web.Application, around: AbstractAsyncContextManager[object]) -> None:
    async with around:
        web_runner = runner(app, shutdown_timeout_s=1.0)
        await web_runner.setup()
        try:
            await web.TCPSite(web_runner, "127.0.0.1", 0).start()
            sys.stdout.write(f"http://127.0.0.1:{web_runner.addresses[0][1]}\n")
            sys.stdout.flush()
            await _stdin_closes()
        finally:
            await web_runner.cleanup()


async def _stdin_closes() -> None:
    loop, closed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 1) else closed.set())
    await closed.wait()
    loop.remove_reader(sys.stdin.fileno())
