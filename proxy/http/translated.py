"""Answers of models that litellm calls for us: chat JSON and server-sent events, journalled like any other."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from aiohttp import web

from proxy.call import Call
from proxy.errors import RequestError
from proxy.http.errors import error_response
from proxy.http.relay import cut
from proxy.metrics import Metrics
from proxy.record import Recorder
from proxy.refusal import Refused, TranslationFailed
from proxy.routes import Route
from proxy.translate import Events, Translated
from proxy.types import Answer
from proxy.wire.collect import JsonCollector, StreamCollector

_SKIPPED = Answer(status="aborted")
_KEY_HEADERS = ("Authorization", "x-api-key", "api-key")


class TranslatedAnswers:
    """Answers translated calls.

    Args:
        translated: Makes them.
        recorder: Journals them.
        metrics: Counts the provider's usage.
        forwards_key: Whether the client's own key goes upstream where an entry has none.
    """

    def __init__(self, translated: Translated, recorder: Recorder, metrics: Metrics, *, forwards_key: bool) -> None:
        self._forwards_key = forwards_key
        self._translated = translated
        self._recorder = recorder
        self._metrics = metrics

    async def answer(self, request: web.Request, call: Call, route: Route) -> web.StreamResponse:
        """Answer one call.

        Args:
            request: The client's.
            call: On its way; its journal is being opened.
            route: Where it goes.

        Returns:
            The finished response.
        """
        key = client_key(request) if self._forwards_key else None
        try:
            if call.stream:
                events = await self._translated.stream(call.body, route, key)
                return await self._stream(request, call, events)
            body = await self._translated.complete(call.body, route, key)
        except asyncio.CancelledError:
            self._recorder.abandon(call, _SKIPPED)
            raise
        except (Refused, TranslationFailed, RequestError) as error:
            self._recorder.void(call, f"the model could not be called: {type(error).__name__}")
            return _failure(error, call.headers)
        collector = JsonCollector()
        collector.feed(body)
        await self._complete(call, collector.answer(cut=False))
        return web.Response(body=body, content_type="application/json", headers=call.headers)

    async def _stream(self, request: web.Request, call: Call, events: Events) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", **call.headers})
        collector = StreamCollector()
        ended = False
        try:
            async with aclosing(events):
                await response.prepare(request)
                async for event in events:
                    collector.feed(event)
                    if collector.finished and not ended:
                        ended = True
                        await self._complete(call, collector.answer(cut=False))
                    await response.write(event)
                await response.write_eof()
        except ConnectionResetError:
            cut(request)
        finally:
            if not ended:
                self._recorder.abandon(call, collector.answer(cut=True))
        return response

    async def _complete(self, call: Call, answer: Answer) -> None:
        self._metrics.usage(answer.usage, memory=call.scope is not None)
        await self._recorder.complete(call, answer)


def client_key(request: web.Request) -> str | None:
    """The provider key that a client sent, in OpenAI's or Anthropic's manner; the bearer token before the others."""
    for name in _KEY_HEADERS:
        value = request.headers.get(name, "").strip()
        scheme, _, token = value.partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else value
        if key:
            return key
    return None


def _failure(error: Refused | TranslationFailed | RequestError, headers: dict[str, str]) -> web.Response:
    if isinstance(error, Refused):
        told = {**error.headers, **headers}
        return web.Response(body=error.body, status=error.status, headers=told, content_type="application/json")
    if isinstance(error, TranslationFailed):
        code = "upstream_unreachable" if error.unreachable else "translation_failed"
        error = RequestError(str(error), status=502, code=code, type_="api_error")
    return error_response(error, headers)
