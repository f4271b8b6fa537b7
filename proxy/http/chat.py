"""The door of Chat Completions: memory before, the provider's bytes between, write-back after."""

from __future__ import annotations

import asyncio
from time import perf_counter

import aiohttp
import uuid_utils
from aiohttp import web

from proxy.call import Call
from proxy.http.errors import error_response
from proxy.http.gate import Gate
from proxy.http.relay import SideCopy, pass_on, relay, unreachable, with_query
from proxy.http.translated import TranslatedAnswers
from proxy.metrics import Metrics
from proxy.pipeline import Pipeline
from proxy.provider import NotSameWire, Providers
from proxy.record import Recorder
from proxy.types import Answer
from proxy.upstream import Upstream, UpstreamUnreachable
from proxy.wire import chat
from proxy.wire.collect import Collector, JsonCollector, StreamCollector

_SKIPPED = Answer(status="aborted")
_ENCODED = "skipped:content-encoding"


class ChatDoor:
    """`POST /v1/chat/completions`.

    Args:
        pipeline: The call's way through memory, up to the upstream call.
        recorder: Journals it from then on.
        upstream: The provider on the same wire.
        providers: Those of `models:` on the same wire.
        translated: Answers for models that are called through litellm.
        metrics: Counts calls and the provider's usage.
        gate: Tells who asks; a foreign page's calls go through without memory.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        recorder: Recorder,
        upstream: Upstream,
        providers: Providers,
        translated: TranslatedAnswers,
        metrics: Metrics,
        gate: Gate,
    ) -> None:
        self._pipeline = pipeline
        self._recorder = recorder
        self._upstream = upstream
        self._providers = providers
        self._translated = translated
        self._metrics = metrics
        self._gate = gate

    def routes(self) -> list[web.RouteDef]:
        """This door's one route."""
        return [web.post("/v1/chat/completions", self.handle)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call."""
        principal = self._gate.admit(request, "chat")
        if _is_encoded(request):
            self._metrics.memory_status(_ENCODED)
            said = {"X-Memory-Request-Id": str(uuid_utils.uuid7()), "X-Memory-Status": _ENCODED}
            said |= {"X-Memory-Injected": "0", "X-Memory-Tokens": "0"}
            return await pass_on(request, self._upstream, chat.PATH, said)
        data = await request.read()
        call = await self._pipeline.begin(
            data,
            request.headers,
            principal,
            default_user=self._gate.default_user,
            refusal=None if self._gate.is_own_page(request) else "foreign-origin",
        )
        self._recorder.forwarded(call)
        if call.route is None or call.route.is_same_wire:
            response = await self._answer(request, call)
        else:
            response = await self._translated.answer(request, call, call.route)
        self._metrics.request(chat.PATH, response.status)
        return response

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        path, started = with_query(chat.PATH, request), perf_counter()
        try:
            chosen = self._upstream if call.route is None else await self._providers.upstream(call.route)
            upstream = await chosen.open(
                "POST", path, request.headers, call.body, side_copy=call.journalled is not None
            )
        except (NotSameWire, UpstreamUnreachable) as error:
            self._recorder.void(call, "the provider could not be reached")
            return error_response(unreachable(error), call.headers)
        except asyncio.CancelledError:
            self._recorder.abandon(call, _SKIPPED)
            raise
        try:
            return await self._relay(request, call, upstream)
        finally:
            upstream.close()
            self._metrics.upstream_seconds(perf_counter() - started)

    async def _relay(self, request: web.Request, call: Call, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        if upstream.status >= 400:
            self._recorder.void(call, f"the provider answered {upstream.status}")
            return await relay(request, upstream, call.headers)
        stream = upstream.content_type == "text/event-stream"
        collector: Collector = StreamCollector() if stream else JsonCollector()
        copy = SideCopy(collector, upstream.headers.get("Content-Encoding", ""))

        ended = False

        async def before_end() -> None:
            nonlocal ended
            ended = True
            answer = collector.answer(cut=False)
            self._metrics.usage(answer.usage, memory=call.scope is not None)
            await self._recorder.complete(call, answer)

        try:
            return await relay(request, upstream, call.headers, copy, before_end)
        finally:
            # A client may well leave between an answer's end mark and the end of its bytes: that answer is whole.
            if not ended:
                self._recorder.abandon(call, collector.answer(cut=True))


def _is_encoded(request: web.Request) -> bool:
    """Whether the body is compressed: it is not read then, and goes to the provider as it came."""
    return request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity")
