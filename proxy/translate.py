"""Calls through litellm: a chat body in, chat JSON or server-sent events out, whatever the provider speaks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
import structlog

from proxy import refusal
from proxy.arguments import arguments
from proxy.library import Library
from proxy.refusal import Refused, TranslationFailed
from proxy.routes import Route

log = structlog.get_logger(__name__)
DONE = b"data: [DONE]\n\n"
_NO_KEY = "none"
"""Sent where nobody has a key: else litellm would take one from the environment, which the client was not given."""
_AMBIENT = frozenset({"bedrock", "oci", "sagemaker", "sagemaker_chat", "vertex_ai", "vertex_ai_beta"})
"""Providers that sign requests, with the credentials of the machine; a client's key means nothing to them."""


class Events:
    """A translated stream: one server-sent event at a time, [DONE] last; `aclose` ends the provider's call.

    Args:
        first: The first chunk; None for an empty stream.
        rest: litellm's stream after it.
        model: The model's full name, for the log.
    """

    def __init__(self, first: Any | None, rest: Any, model: str) -> None:
        self._first = first
        self._rest = rest
        self._model = model
        self._ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            chunk = self._first if self._first is not None else await anext(self._rest, None)
        except Exception as error:  # noqa: BLE001 - litellm has no one root; each is told the client as an event
            self._ended = True
            log.warning("stream_failed", model=self._model, error_type=type(error).__name__)
            return _event(refusal.event(error))
        self._first = None
        if chunk is None:
            self._ended = True
            return DONE
        return _event(_chunk(chunk))

    async def aclose(self) -> None:
        """Break the provider's call off, if it is not over."""
        self._ended = True
        await _close(self._rest)


class Translated:
    """The models that litellm calls for us.

    Args:
        library: litellm.
    """

    def __init__(self, library: Library) -> None:
        self._library = library

    async def complete(self, body: bytes, route: Route, client_key: str | None) -> bytes:
        """Answer a call that asks for no stream.

        Args:
            body: The chat request, a JSON object.
            route: Where it goes.
            client_key: The key that came with it, if it may go upstream.

        Returns:
            The chat completion as JSON.

        Raises:
            RequestError: `messages` is missing or no list of objects.
            Refused: The provider answered with an error.
            TranslationFailed: The call could not be made.
        """
        answer = await self._call(body, route, client_key)
        return _json(_completion(answer))

    async def stream(self, body: bytes, route: Route, client_key: str | None) -> Events:
        """Answer a call that asks for a stream; errors before its first event have their own status.

        Args and Raises: as for `complete`.

        Returns:
            The events; the caller closes them.
        """
        chunks = await self._call(body, route, client_key)
        try:
            first = await anext(chunks, None)
        except Exception as error:
            raise _explained(error, route) from error
        except BaseException:
            await _close(chunks)
            raise
        return Events(first, chunks, route.model)

    async def _call(self, body: bytes, route: Route, client_key: str | None) -> Any:
        litellm: Any = await self._library.warm()
        named = arguments(litellm, route, json.loads(body))
        try:
            return await litellm.acompletion(
                **named,
                api_base=route.entry.api_base,
                api_key=key_for(route, client_key),
                max_retries=0,
                num_retries=0,
                _skip_mcp_handler=True,
            )
        except Exception as error:
            raise _explained(error, route) from error


def _explained(error: Exception, route: Route) -> Refused | TranslationFailed:
    found = refusal.explain(error, route.model)
    status = found.status if isinstance(found, Refused) else None
    log.warning("translated_call_failed", model=route.model, status=status, error_type=type(error).__name__)
    return found


def key_for(route: Route, client_key: str | None) -> str | None:
    """The key to call with, so that litellm takes none from the environment but where a provider signs requests.

    Args:
        route: Where the call goes.
        client_key: The key that came with it, if it may go upstream.
    """
    if route.api_key is not None:
        return route.api_key
    return None if route.provider in _AMBIENT else client_key or _NO_KEY


def _completion(answer: Any) -> dict[str, Any]:
    body: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    for choice in body.get("choices", ()):
        choice.setdefault("finish_reason", None)
        choice.setdefault("message", {}).setdefault("content", None)
    return body


def _chunk(chunk: Any) -> dict[str, Any]:
    body: dict[str, Any] = chunk.model_dump(mode="json", exclude_none=True)
    for choice in body.get("choices", ()):
        choice.setdefault("delta", {})
        choice.setdefault("finish_reason", None)
    return body


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + _json(data) + b"\n\n"


def _json(data: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(data)
    except TypeError:  # half a character, which only an escape can hold, or a number past 64 bits
        return json.dumps(data).encode()


async def _close(chunks: Any) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()
