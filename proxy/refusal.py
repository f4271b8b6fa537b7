"""What a provider answered in place of an answer, dug out of the exception that litellm made of it. Pure.

litellm rewrites statuses, bodies and headers, but keeps the provider's response in the chain of causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp
import orjson

from proxy.errors import SidemirrorError

_TOLD = re.compile(
    r"retry-after(?:-ms)?|x-should-retry|(?:x-|anthropic-)?ratelimit-.*|(?:x-|anthropic-)?request-id", re.IGNORECASE
)
"""Headers that clients act upon; the others belong to the connection or to a body of another dialect."""
_ADVICE = re.compile(r"\.? *(?:To drop these|Handle with|Original exception|Received Model Group)\b.*", re.DOTALL)
_PREFIX = re.compile(r"(?:litellm\.)?\w*(?:Error|Exception)(?: \w+Error)?(?::| -) ")
_MAX_CHARS = 2_000
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refused(SidemirrorError):
    """The provider did not take a translated call.

    Args:
        status: Its HTTP status.
        body: JSON: the provider's own where it is an error object, else one in OpenAI's shape.
        headers: Its `retry-after`, rate limits and request id.
    """

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(f"the provider answered {status}")
        self.status = status
        self.body = body
        self.headers = headers


class TranslationFailed(SidemirrorError):
    """litellm could not make the call.

    Args:
        message: What happened.
        unreachable: No connection to the provider, or it broke.
    """

    def __init__(self, message: str, *, unreachable: bool) -> None:
        super().__init__(message)
        self.unreachable = unreachable


def explain(error: BaseException, model: str) -> Refused | TranslationFailed:
    """What to tell the client of a failed call.

    Args:
        error: What litellm raised.
        model: The model's full name, for messages.

    Returns:
        The provider's refusal; or, where it never answered, what went wrong.
    """
    response = provider_response(error)
    if response is not None:
        headers = {name: value for name, value in response.headers.items() if _TOLD.fullmatch(name)}
        return Refused(response.status_code, _body(response.content, response.status_code), headers)
    if any(_is_of_transport(cause) for cause in chain(error)):
        return TranslationFailed(f"{model} cannot be reached ({type(error).__name__})", unreachable=True)
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 400 <= status < 600 and type(error).__name__ != "APIConnectionError":
        return Refused(status, _shaped(said(error), status), {})
    return TranslationFailed(f"the call to {model} could not be made: {said(error)}", unreachable=False)


def event(error: BaseException) -> dict[str, Any]:
    """An error in mid-stream as the data of a server-sent event."""
    response = provider_response(error)
    status = response.status_code if response is not None else getattr(error, "status_code", 500)
    shaped: dict[str, Any] = orjson.loads(_shaped(said(error), status if isinstance(status, int) else 500))
    return shaped


def provider_response(error: BaseException) -> Any | None:
    """The provider's HTTP error response in an exception's chain of causes; litellm's stand-ins have no headers."""
    found = None
    for cause in chain(error):
        response = getattr(cause, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(status, int) and status >= 400 and len(getattr(response, "headers", ())) > 0:
            found = response
    return found


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what caused it, outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def said(error: BaseException) -> str:
    """An exception's message, without litellm's prefixes and its advice to people who configure litellm.

    >>> said(ValueError("litellm.BadRequestError: x does not support y. To drop these, set `litellm.drop_params`"))
    'x does not support y'
    """
    text = str(getattr(error, "message", "") or error)
    while _PREFIX.match(text):
        text = _PREFIX.sub("", text, count=1)
    return _ADVICE.sub("", text).strip()[:_MAX_CHARS] or type(error).__name__


def _is_of_transport(error: BaseException) -> bool:
    # httpx is litellm's business, and not imported here.
    named = any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
    return named or isinstance(error, (aiohttp.ClientError, ConnectionError, TimeoutError))


def _body(content: bytes, status: int) -> bytes:
    try:
        parsed = orjson.loads(content)
    except orjson.JSONDecodeError:
        return _shaped(
            content.decode("utf-8", "replace").strip()[:_MAX_CHARS] or f"the provider answered {status}", status
        )
    if isinstance(parsed, list) and len(parsed) == 1:  # Gemini wraps the errors of its streams
        content, parsed = orjson.dumps(parsed[0]), parsed[0]
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return content
    return _shaped(content.decode("utf-8", "replace")[:_MAX_CHARS], status)


def _shaped(message: str, status: int) -> bytes:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "code": str(status), "param": None}})
