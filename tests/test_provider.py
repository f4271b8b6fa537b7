"""The guard of the same-wire list: what we send to a provider is what litellm itself sends for the same request.

litellm calls a scripted server here, once for each provider; then our own request for the same client body is compared
with what arrived: path, key header, body. A provider that fails this leaves `SAME_WIRE`.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

import httpx
import pytest
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from proxy.library import Library, load
from proxy.provider import Endpoint, NotSameWire, Providers, resolve
from proxy.routes import SAME_WIRE, Route, Routes
from proxy.settings import Model
from proxy.upstream import forwarded
from proxy.wire import chat
from proxy.wire.splice import parse
from tests.scripted import completion

KEY = "sk-the-clients"
MODELS = {
    "baseten": "zai-org/GLM-4.7",
    "cerebras": "llama-3.3-70b",
    "dashscope": "qwen-plus",
    "deepinfra": "meta-llama/Llama-3.3-70B-Instruct",
    "deepseek": "deepseek-chat",
    "groq": "llama-3.3-70b-versatile",
    "minimax": "MiniMax-M2.1",
    "mistral": "mistral-large-latest",
    "moonshot": "kimi-latest",
    "nvidia_nim": "meta/llama3-70b-instruct",
    "openai": "gpt-4o",
    "perplexity": "sonar-pro",
    "sambanova": "Meta-Llama-3.3-70B-Instruct",
    "together_ai": "Qwen/Qwen2.5-7B-Instruct-Turbo",
    "volcengine": "deepseek-v3-2-251201",
    "xai": "grok-4-fast",
    "zai": "glm-4.6",
}
LEFT_OUT = ("deepinfra", "mistral", "moonshot", "openrouter", "tencent")
"""Providers of the same dialect for which litellm changes the address or the body: they are translated."""
WITHOUT_ADDRESS = {"hosted_vllm", "llamafile", "lm_studio"}
BODY: Mapping[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "北京天气？"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "北京"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "user", "content": "Thanks. And tomorrow?"},
    ],
    "temperature": 0.2,
    "top_p": 0.9,
    "max_tokens": 50,
    "stop": ["X"],
    "seed": 7,
    "n": 1,
    "user": "ada",
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "response_format": {"type": "json_object"},
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Tells the weather.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
}
UNKNOWN = {"x_unknown": {"deep": [1, 2.5, None]}}


@dataclass(frozen=True)
class Sent:
    """One request, as a provider would see it."""

    url: str
    authorization: str | None
    body: dict[str, Any]


class Captured(Exception):
    """Raised in place of the network."""


def route(provider: str, api_base: str | None = None, **more: Any) -> Route:
    """The route of a model of this provider."""
    model = f"{provider}/{MODELS.get(provider, 'some-model')}"
    found = Routes([Model(name="client-name", litellm=model, api_base=api_base, **more)]).route("client-name")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def litellm() -> ModuleType:
    """litellm, as the product loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load()


@pytest.fixture(scope="module")
def sent(litellm: ModuleType) -> Iterator[dict[tuple[str, str, bool], Sent]]:
    """What litellm sends, by provider, kind of address and whether it streams."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield asyncio.run(_all_sent(litellm))


def client_body(litellm: Any, provider: str, *, stream: bool) -> dict[str, Any]:
    """The common parameters, as far as litellm says that the provider has them."""
    model = MODELS.get(provider, "some-model")
    known = set(litellm.get_supported_openai_params(model=model, custom_llm_provider=provider) or ())
    body = {key: value for key, value in BODY.items() if key == "messages" or key in known}
    if stream:
        body.pop("response_format", None)  # litellm asks Groq for no stream then, and cuts the whole answer up
    return {"model": "client-name", **body, **({"stream": True} if stream else {})}


async def _all_sent(litellm: Any) -> dict[tuple[str, str, bool], Sent]:
    arrived: list[Sent] = []

    async def answer(request: web.Request) -> web.Response:
        arrived.append(Sent(str(request.url), request.headers.get("Authorization"), await request.json()))
        return web.Response(body=b"".join(completion().body), content_type="application/json")

    app = web.Application()
    app.router.add_post("/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}/base/v9"
    result = {}
    try:
        for provider in (*sorted(SAME_WIRE), *LEFT_OUT):
            for stream in (False, True):
                arrived.clear()
                await _call(litellm, provider, base, stream=stream)
                assert len(arrived) == 1, provider
                result[provider, "own", stream] = arrived[0]
            if provider in SAME_WIRE - WITHOUT_ADDRESS:
                result[provider, "default", False] = await _captured(litellm, provider)
    finally:
        await runner.cleanup()
        await litellm.close_litellm_async_clients()
    return result


async def _call(litellm: Any, provider: str, base: str | None, *, stream: bool) -> None:
    body = client_body(litellm, provider, stream=stream)
    body["model"] = f"{provider}/{MODELS.get(provider, 'some-model')}"
    try:
        answer = await litellm.acompletion(
            **json.loads(json.dumps(body)), extra_body=UNKNOWN, api_base=base, api_key=KEY, max_retries=0, timeout=10
        )
        if stream:
            await answer.aclose()
    except litellm.exceptions.APIConnectionError:
        pass  # what it makes of the answer is not asked here


async def _captured(litellm: Any, provider: str) -> Sent:
    """The request that litellm would send to the provider's own address."""
    found: list[Sent] = []

    async def send(_client: object, request: httpx.Request, **_: object) -> NoReturn:
        found.append(Sent(str(request.url), request.headers.get("authorization"), json.loads(request.content)))
        raise Captured

    patch = pytest.MonkeyPatch()
    patch.setattr(httpx.AsyncClient, "send", send)
    try:
        await _call(litellm, provider, None, stream=False)
    except Exception:  # noqa: BLE001 - litellm makes one of its own of ours
        pass
    finally:
        patch.undo()
    return found[0]


def ours(litellm: Any, provider: str, endpoint: Endpoint, *, stream: bool) -> Sent:
    """The request that we would send for the same client body."""
    client = {**client_body(litellm, provider, stream=stream), **UNKNOWN}
    text = parse(json.dumps(client, ensure_ascii=False).encode())
    body = text.edited(chat.renamed(text, MODELS.get(provider, "some-model")))
    headers = CIMultiDictProxy(CIMultiDict({"Authorization": f"Bearer {KEY}"}))
    out = forwarded(headers, api_key=None, side_copy=True, streamed=False)
    return Sent(endpoint.url, out.get(endpoint.key_header), json.loads(body))


def without_nulls(value: Any) -> Any:
    """litellm leaves out what is null or false anyway; a provider reads both alike."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None and (k, v) != ("stream", False)}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", sorted(SAME_WIRE))
def test_what_we_send_is_what_litellm_sends(
    litellm: ModuleType, sent: dict[tuple[str, str, bool], Sent], provider: str, stream: bool
) -> None:
    theirs = sent[provider, "own", stream]
    base = theirs.url[: theirs.url.index("/base/v9")] + "/base/v9"
    mine = ours(litellm, provider, resolve(litellm, route(provider, base)), stream=stream)
    assert mine.url == theirs.url
    assert mine.authorization == theirs.authorization == f"Bearer {KEY}"
    assert without_nulls(mine.body) == without_nulls(theirs.body)


@pytest.mark.parametrize("provider", LEFT_OUT)
def test_the_guard_tells_who_does_not_belong_on_the_list(
    litellm: ModuleType, sent: dict[tuple[str, str, bool], Sent], provider: str
) -> None:
    theirs = sent[provider, "own", False]
    base = theirs.url[: theirs.url.index("/base/v9")] + "/base/v9"
    mine = ours(litellm, provider, resolve(litellm, route(provider, base)), stream=False)
    assert (mine.url, without_nulls(mine.body)) != (theirs.url, without_nulls(theirs.body))
    assert provider not in SAME_WIRE


@pytest.mark.parametrize("provider", sorted(SAME_WIRE - WITHOUT_ADDRESS))
def test_a_providers_own_address_is_the_one_litellm_uses(
    litellm: ModuleType, sent: dict[tuple[str, str, bool], Sent], provider: str
) -> None:
    theirs = sent[provider, "default", False]
    endpoint = resolve(litellm, route(provider))
    assert endpoint.url == theirs.url
    assert endpoint.url.startswith("https://")
    assert theirs.authorization == f"Bearer {KEY}"


@pytest.mark.parametrize("provider", ["anthropic", "novita", "no_such_provider", "azure"])
def test_providers_that_want_more_than_a_key_are_refused(litellm: ModuleType, provider: str) -> None:
    with pytest.raises(NotSameWire, match=f"{provider}/some-model"):
        resolve(litellm, route(provider))


def test_an_endpoint_holds_no_credential(litellm: ModuleType) -> None:
    endpoint = resolve(litellm, route("groq", api_key="sk-from-the-config"))
    assert endpoint == Endpoint("https://api.groq.com/openai/v1/chat/completions", "Authorization", "Bearer ")


async def test_an_upstream_is_opened_once_for_all_names_of_an_entry(litellm: ModuleType) -> None:
    entry = Model(name="g-*", litellm="groq/*", api_key="sk-1")
    routes = Routes([entry])
    one, two = routes.route("g-a"), routes.route("g-b")
    assert one is not None
    assert two is not None
    async with Providers(Library(), forwards_key=True) as providers:
        opened = await asyncio.gather(*(providers.upstream(found) for found in (one, two, one)))
    assert opened[0] is opened[1] is opened[2]
