"""What a client's body becomes for litellm, what its exceptions become for the client, and when litellm is imported."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import socket
import threading
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import make_mocked_request

from proxy import library, translate
from proxy.app import building
from proxy.arguments import FIELDS, arguments, steers
from proxy.config import Config
from proxy.errors import RequestError
from proxy.http.translated import TranslatedAnswers, client_key
from proxy.library import Library
from proxy.refusal import Refused, TranslationFailed, event, explain, said
from proxy.routes import Route, Routes
from proxy.settings import Model, Redis
from proxy.translate import DONE, Events, Translated

ROOT = Path(__file__).resolve().parent.parent
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def litellm() -> ModuleType:
    """litellm, as the product loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return library.load()


def route(litellm_name: str, **more: Any) -> Route:
    found = Routes([Model(name="a", litellm=litellm_name, **more)]).route("a")
    assert found is not None
    return found


def named(litellm: ModuleType, model: str, **fields: Any) -> dict[str, Any]:
    """The arguments besides those that every call has."""
    found = arguments(litellm, route(model), {"model": "a", "messages": MESSAGES, **fields})
    assert found.pop("model") == model
    assert found.pop("messages") == MESSAGES
    return found


# ── arguments ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_every_field_is_an_argument_of_litellms_and_the_rest_of_its_arguments_steer(litellm: ModuleType) -> None:
    api: Any = litellm
    known = set(inspect.signature(api.acompletion).parameters) - {"model", "messages", "stream", "kwargs"}
    assert known >= FIELDS
    assert {name for name in known - FIELDS if not steers(api, name)} == set()


def test_nothing_that_litellm_reads_from_its_caller_can_come_from_a_client(litellm: ModuleType) -> None:
    api: Any = litellm
    source = inspect.getsource(api.acompletion) + inspect.getsource(api.completion)
    read = set(re.findall(r'kwargs\.(?:get|pop)\(\s*"([^"]+)"', source))
    assert len(read) > 50
    found = named(litellm, "anthropic/claude-sonnet-4-5", **dict.fromkeys(read, "evil"))
    assert found == {"stream": False}


@pytest.mark.parametrize("model", ["anthropic/claude-3", "gemini/gemini-2.5-flash", "openai/gpt-4o", "bedrock/x"])
def test_arguments_are_those_on_the_list_alone(litellm: ModuleType, model: str) -> None:
    fields = {"api_base": "x", "zzz": 1, "temperature": 1, "aws_region_name": "x", "mock_response": "x", "top_k": 3}
    found = named(litellm, model, **fields)
    assert set(found) <= {"stream", "temperature", "extra_body", "top_k"}
    assert set(found.get("extra_body", {})) <= {"zzz", "top_k"}


def test_a_field_that_is_null_is_left_out(litellm: ModuleType) -> None:
    assert named(litellm, "openai/gpt-4o", temperature=None, zzz=None, metadata=None) == {"stream": False}


def test_the_stream_is_asked_for_only_by_true(litellm: ModuleType) -> None:
    assert named(litellm, "openai/gpt-4o", stream=True)["stream"] is True
    assert named(litellm, "openai/gpt-4o", stream="yes")["stream"] is False


def test_stream_options_reach_every_provider(litellm: ModuleType) -> None:
    options = {"include_usage": True}
    for model in ("anthropic/claude-3", "gemini/gemini-2.5-flash", "openai/gpt-4o", "demo/echo"):
        assert named(litellm, model, stream=True, stream_options=options)["stream_options"] == options


@pytest.mark.parametrize("messages", [None, "Hi", [1], {"role": "user"}])
def test_messages_must_be_a_list_of_objects(litellm: ModuleType, messages: Any) -> None:
    with pytest.raises(RequestError, match="list of objects"):
        arguments(litellm, route("openai/gpt-4o"), {"messages": messages})


@pytest.mark.parametrize("metadata", ["text", 5, ["a"], {"user_id": 5}, {}])
def test_metadata_without_a_user_is_left_out_for_other_dialects(litellm: ModuleType, metadata: Any) -> None:
    assert named(litellm, "anthropic/claude-3", metadata=metadata) == {"stream": False}


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("model", "entry_key", "client_key", "sent"),
    [
        ("anthropic/a", "sk-entry", "sk-client", "sk-entry"),
        ("anthropic/a", None, "sk-client", "sk-client"),
        ("anthropic/a", None, None, "none"),
        ("bedrock/a", None, "sk-client", None),
        ("bedrock/a", "sk-entry", "sk-client", "sk-entry"),
        ("vertex_ai/a", None, None, None),
    ],
)
async def test_which_key_goes_upstream(
    monkeypatch: pytest.MonkeyPatch, model: str, entry_key: str | None, client_key: str | None, sent: str | None
) -> None:
    calls: list[dict[str, Any]] = []

    async def acompletion(**called: Any) -> Any:
        calls.append(called)
        return SimpleNamespace(model_dump=lambda **_: {"choices": [{}]})

    monkeypatch.setattr(library, "load", lambda: SimpleNamespace(acompletion=acompletion))
    monkeypatch.setattr(translate, "arguments", lambda *_: {})
    answer = await Translated(Library()).complete(b"{}", route(model, api_key=entry_key), client_key)
    assert [call["api_key"] for call in calls] == [sent]
    assert [call["max_retries"] for call in calls] == [0]
    assert orjson.loads(answer)["choices"] == [{"finish_reason": None, "message": {"content": None}}]


@pytest.mark.parametrize(("forwards_key", "passed"), [(True, "sk-client"), (False, None)])
async def test_a_key_of_our_own_never_goes_upstream(forwards_key: bool, passed: str | None) -> None:
    keys: list[str | None] = []

    async def complete(_body: bytes, _route: Route, key: str | None) -> bytes:
        keys.append(key)
        return b"{}"

    async def done(*_: object) -> None:
        return None

    translated: Any = SimpleNamespace(complete=complete)
    recorder: Any = SimpleNamespace(complete=done)
    metrics: Any = SimpleNamespace(usage=lambda *_, **__: None)
    call: Any = SimpleNamespace(stream=False, body=b"{}", headers={}, scope=None)
    request = make_mocked_request("POST", "/v1/chat/completions", headers={"Authorization": "Bearer sk-client"})
    answers = TranslatedAnswers(translated, recorder, metrics, forwards_key=forwards_key)
    await answers.answer(request, call, route("anthropic/a"))
    assert keys == [passed]


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({}, None),
        ({"Authorization": "Bearer sk-1"}, "sk-1"),
        ({"authorization": "bearer  sk-1 "}, "sk-1"),
        ({"x-api-key": "sk-2"}, "sk-2"),
        ({"api-key": "sk-3", "Authorization": "Bearer "}, "sk-3"),
        ({"x-api-key": "sk-2", "Authorization": "Bearer sk-1"}, "sk-1"),
    ],
)
def test_the_clients_key_is_found_in_either_manner(headers: dict[str, str], key: str | None) -> None:
    assert client_key(make_mocked_request("POST", "/", headers=headers)) == key


# ── exceptions ─────────────────────────────────────────────────────────────────────────────────────────────────────
class Wrapped(Exception):
    """Like litellm's: a status of its own, and a response without headers."""

    def __init__(self, message: str, status: int, response: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status
        self.response = response or SimpleNamespace(status_code=status, headers={}, content=b"")


class TransportError(Exception):
    """Like httpx's."""


def caused(outer: Exception, *causes: BaseException) -> Exception:
    """An exception with its chain of causes."""
    error: BaseException = outer
    for cause in causes:
        error.__cause__ = cause
        error = cause
    return outer


def test_the_providers_response_is_found_in_the_chain_of_causes() -> None:
    response = SimpleNamespace(
        status_code=529, headers={"Retry-After": "7", "Server": "x"}, content=b'{"error": {"message": "m"}}'
    )
    found = explain(caused(Wrapped("x", 500), Wrapped("y", 500, response)), "anthropic/a")
    assert isinstance(found, Refused)
    assert (found.status, found.body, found.headers) == (529, response.content, {"Retry-After": "7"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the provider answered 503"),
        (b"plain", "plain"),
        (b'{"detail": "x"}', '{"detail": "x"}'),
        (b"\xff", "\ufffd"),
    ],
)
def test_a_body_that_is_no_error_object_is_put_in_openais_shape(content: bytes, message: str) -> None:
    response = SimpleNamespace(status_code=503, headers={"a": "b"}, content=content)
    found = explain(Wrapped("x", 500, response), "anthropic/a")
    assert isinstance(found, Refused)
    assert orjson.loads(found.body) == {
        "error": {"message": message, "type": "api_error", "code": "503", "param": None}
    }


def test_an_error_in_a_list_is_taken_out_of_it() -> None:
    response = SimpleNamespace(status_code=400, headers={"a": "b"}, content=b'[{"error": {"message": "m"}}]')
    found = explain(Wrapped("x", 400, response), "gemini/a")
    assert isinstance(found, Refused)
    assert orjson.loads(found.body) == {"error": {"message": "m"}}


def test_a_refusal_of_litellms_own_has_its_status() -> None:
    found = explain(Wrapped("litellm.UnsupportedParamsError: a does not support b. To drop these, set x", 400), "a/b")
    assert isinstance(found, Refused)
    assert (found.status, orjson.loads(found.body)["error"]["message"]) == (400, "a does not support b")


@pytest.mark.parametrize("cause", [TransportError(), ConnectionResetError(), TimeoutError()])
def test_a_broken_connection_is_told_from_a_failed_translation(cause: Exception) -> None:
    found = explain(caused(Wrapped("x", 500), cause), "anthropic/a")
    assert isinstance(found, TranslationFailed)
    assert found.unreachable
    other = explain(KeyError("choices"), "anthropic/a")
    assert isinstance(other, TranslationFailed)
    assert not other.unreachable


def test_a_ring_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert isinstance(explain(one, "a/b"), TranslationFailed)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("litellm.MidStreamFallbackError: litellm.APIError: Overloaded Original exception: APIError: x", "Overloaded"),
        ("litellm.RateLimitError: AnthropicException - slow down", "slow down"),
        ("", "Wrapped"),
        ("x" * 5_000, "x" * 2_000),
    ],
)
def test_messages_lose_what_litellm_put_around_them(text: str, plain: str) -> None:
    assert said(Wrapped(text, 500)) == plain
    assert event(Wrapped(text, 500))["error"]["message"] == plain


# ── streams ────────────────────────────────────────────────────────────────────────────────────────────────────────
class Chunks:
    """litellm's stream."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)
        self.closed = False

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> Any:
        if not self.items:
            raise StopAsyncIteration
        item = self.items.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    async def aclose(self) -> None:
        self.closed = True


def piece(**fields: Any) -> Any:
    return SimpleNamespace(model_dump=lambda **_: fields)


async def test_events_end_with_the_end_mark() -> None:
    events = Events(piece(choices=[{"index": 0}]), Chunks(piece(usage={"a": 1})), "a/b")
    assert [event async for event in events] == [
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":null}]}\n\n',
        b'data: {"usage":{"a":1}}\n\n',
        DONE,
    ]


async def test_half_a_character_passes() -> None:
    first = await anext(Events(piece(text="\ud83d"), Chunks(), "a/b"))
    assert first == b'data: {"text": "\\ud83d"}\n\n'


async def test_a_failure_is_the_last_event() -> None:
    events = [event async for event in Events(piece(), Chunks(ValueError("broke"), piece()), "a/b")]
    assert len(events) == 2
    assert orjson.loads(events[1].removeprefix(b"data: "))["error"]["message"] == "broke"


async def test_closing_ends_the_providers_call_even_before_the_first_event() -> None:
    chunks = Chunks(piece())
    events = Events(piece(), chunks, "a/b")
    await events.aclose()
    assert chunks.closed
    assert [event async for event in events] == []


# ── litellm itself ─────────────────────────────────────────────────────────────────────────────────────────────────
async def test_litellm_is_imported_once_in_a_thread_while_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    go_on = threading.Event()

    def slow() -> ModuleType:
        threads.append(threading.current_thread())
        assert go_on.wait(10)
        return ModuleType("litellm")

    monkeypatch.setattr(library, "load", slow)
    shared = Library()
    waiting = [asyncio.create_task(shared.warm()) for _ in range(3)]
    await asyncio.sleep(0)  # the loop is free meanwhile
    go_on.set()
    first, *others = await asyncio.gather(*waiting)
    assert all(found is first for found in others)
    assert await shared.warm() is first
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_failed_import_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [ImportError("disk"), ModuleType("litellm")]

    def load() -> ModuleType:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        found: ModuleType = outcome
        return found

    monkeypatch.setattr(library, "load", load)
    shared = Library()
    with pytest.raises(ImportError):
        await shared.warm()
    assert (await shared.warm()).__name__ == "litellm"


@pytest.mark.parametrize("entries", [(), (Model(name="a", litellm="anthropic/a"),)], ids=["no models", "a model"])
async def test_litellm_is_warmed_after_the_start_only_where_models_need_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entries: tuple[Model, ...]
) -> None:
    loaded = asyncio.Event()
    loop = asyncio.get_running_loop()

    def load() -> ModuleType:
        loop.call_soon_threadsafe(loaded.set)
        return ModuleType("litellm")

    monkeypatch.setattr(library, "load", load)
    config = Config(
        data_dir=tmp_path / "data",
        models=entries,
        redis=Redis(url="redis://127.0.0.1:1"),
        policies=(ROOT / "policies",),
    )
    async with building(config):
        if entries:
            await asyncio.wait_for(loaded.wait(), 10)
    assert loaded.is_set() is bool(entries)


def test_addresses_in_the_surroundings_move_no_provider(monkeypatch: pytest.MonkeyPatch, litellm: ModuleType) -> None:
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_API_BASE", "DEEPSEEK_API_BASE"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert library.load() is litellm
    assert not {"OPENAI_BASE_URL", "ANTHROPIC_API_BASE", "DEEPSEEK_API_BASE"} & set(os.environ)
    api: Any = litellm
    assert api.get_llm_provider("deepseek/x")[3] == "https://api.deepseek.com/beta"


def test_no_tokenizer_is_looked_up_on_a_hub(monkeypatch: pytest.MonkeyPatch, litellm: ModuleType) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **_: asked.append(args))
    api: Any = litellm
    for model in ("meta-llama/Llama-3.3-70B-Instruct", "command-r-plus", "claude-2", "deepseek/deepseek-chat"):
        assert api.token_counter(model=model, text="How many?") == 0
    assert asked == []


def test_no_file_of_the_working_directory_is_read(litellm: ModuleType) -> None:
    assert os.environ["LITELLM_MODE"] == "PRODUCTION"
    api: Any = litellm
    assert api.litellm_mode == "PRODUCTION"
    assert api.drop_params is False
