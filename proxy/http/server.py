"""The web application: which door has which path, and the limits that hold for all."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web
from aiohttp.http import SERVER_SOFTWARE

from proxy.http.errors import errors_in_openai_shape

MAX_HEADER_BYTES = 65_536


def application(routes: Iterable[web.RouteDef], *, max_body_bytes: int) -> web.Application:
    """Put the doors together.

    Args:
        routes: All routes; the first match wins.
        max_body_bytes: A larger body is answered 413.

    Returns:
        The application.
    """
    app = web.Application(middlewares=[errors_in_openai_shape], client_max_size=max_body_bytes)
    app.add_routes(routes)
    app.on_response_prepare.append(_leave_unsigned)
    return app


async def _leave_unsigned(request: web.Request, response: web.StreamResponse) -> None:
    """The server's own name goes nowhere, least of all into a provider's relayed answer."""
    if response.headers.get("Server") == SERVER_SOFTWARE:
        del response.headers["Server"]


def runner(app: web.Application, *, shutdown_timeout_s: float) -> web.AppRunner:
    """A runner that cancels a call whose client has gone, and leaves bodies as they came.

    Args:
        app: The application.
        shutdown_timeout_s: How long calls in flight may go on at shutdown.
    """
    return web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        auto_decompress=False,
        shutdown_timeout=shutdown_timeout_s,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    )
