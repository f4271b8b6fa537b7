"""Errors of our own, in OpenAI's shape; the provider's own errors never come through here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from proxy.errors import RequestError, StoreUnavailable, VersionConflict
from proxy.http.answers import json_answer

log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def error_response(error: RequestError, headers: dict[str, str] | None = None) -> web.Response:
    """An error as OpenAI's clients read it.

    Args:
        error: What went wrong.
        headers: More headers.

    Returns:
        The JSON response.
    """
    body = {"error": {"message": str(error), "type": error.type, "code": error.code, "param": error.param}}
    return json_answer(body, status=error.status, headers=headers)


def not_supported_yet(what: str) -> RequestError:
    """What a later version brings is refused, never half-built."""
    return RequestError(f"{what} is not supported yet", status=501, code="not_supported_yet", type_="api_error")


@web.middleware
async def errors_in_openai_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what a door raises into an error response."""
    try:
        return await handler(request)
    except RequestError as error:
        return error_response(error)
    except VersionConflict as error:
        return error_response(RequestError(str(error), status=412, code="version_conflict"))
    except StoreUnavailable as error:
        return error_response(RequestError(str(error), status=503, code="store_unavailable", type_="api_error"))
    except web.HTTPRequestEntityTooLarge as error:
        limit = f"the body is larger than {request.client_max_size // 2**20} MiB (server.max_body_mb); send less"
        return error_response(RequestError(limit, status=413, code="body_too_large"), _close(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        what = f"{request.method} {request.path}: {error.reason}"
        return error_response(RequestError(what, status=error.status, code=_code(error)), _allowed(error))
    except ConnectionResetError:
        raise
    except Exception as error:
        log.exception("request_failed", error_type=type(error).__name__)
        if request.writer.output_size > 0:
            raise  # an answer has begun: another one would be written into it
        message = "Sidemirror failed to handle this request; its log says more"
        return error_response(RequestError(message, status=500, code="internal_error", type_="api_error"))


def _code(error: web.HTTPException) -> str:
    return {404: "not_found", 405: "method_not_allowed"}.get(error.status, "invalid_request")


def _allowed(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}


def _close(error: web.HTTPException) -> dict[str, str]:
    # The rest of a body that is too large is not read.
    return {"Connection": "close"}
