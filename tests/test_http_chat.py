"""`POST /v1/chat/completions` with real clients, against the running product and the scripted provider."""

from __future__ import annotations

import copy
import gzip
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.running import Running, eventually
from tests.scripted import Lane, Reply, chunk, completion, stream

CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}
OPEN, CLOSE = "<recalled_memories>", "</recalled_memories>"
TEA = "The user drinks green tea."
ASK = "Which green tea does the user drink?"
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
PARALLEL = [
    {"id": f"call_{city}", "type": "function", "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'}}
    for city in ("北京", "Bergen")
]


def remember(product: Running, user: str, content: str = TEA) -> None:
    """Store a preference of the user's."""
    with product.http(user) as http:
        http.post("/memory/records", json={"content": content, "kind": "preference"}).raise_for_status()


def post(product: Running, lane: Lane, user: str, body: bytes, **headers: str) -> httpx.Response:
    """Send a chat request as bytes."""
    with product.http(user) as http:
        named = {"Authorization": f"Bearer {lane.key}", **JSON, **headers}
        return http.post(CHAT, content=body, headers=named)


def without_block(value: Any, count: int) -> Any:
    """A request's JSON with the block cut out, wherever it stands; past `count` messages, the one made to hold it."""
    value = copy.deepcopy(value)
    made = len(value["messages"]) - count
    kept = []
    for message in value["messages"]:
        content = message.get("content")
        if isinstance(content, str) and OPEN in content:
            before, _, rest = content.partition(OPEN)
            message["content"] = before.removesuffix("\n\n") + rest.partition(CLOSE)[2]
            if made and message == {"role": "system", "content": ""}:
                continue
        elif isinstance(content, list):
            message["content"] = [part for part in content if not (isinstance(part, dict) and OPEN in str(part))]
        kept.append(message)
    value["messages"] = kept
    return value


# ── openai ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_said_in_one_session_is_given_to_the_model_in_the_next(product: Running, lane: Lane, user: str) -> None:
    with product.client(lane.key, user=user) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "我更喜欢深色模式。"}]
        )
        product.ledger(raw.headers["x-memory-request-id"], user)
        again = client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "界面用什么模式好？请按我的喜好来。"}]
        )
    assert raw.headers["x-memory-session"] != again.headers["x-memory-session"]
    assert int(again.headers["x-memory-injected"]) >= 1
    assert "深色模式" in lane.last.system


def test_an_answer_comes_whole_with_unknown_fields(product: Running, lane: Lane, user: str) -> None:
    reply = completion("Hello.", reasoning_content="thinking", refusal=None, annotations=[], x_new={"a": 1})
    body = json.loads(reply.body[0])
    body |= {"service_tier": "default", "system_fingerprint": "fp", "provider": "X", "created": 1.5}
    body["choices"][0] |= {"logprobs": {"content": [{"token": "Hello", "logprob": -0.1, "top_logprobs": []}]}}
    lane.script(Reply([json.dumps(body).encode()]))
    with product.client(lane.key, user=user) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "Hi, how are you today?"}], logprobs=True
        )
    assert json.loads(raw.content) == body
    answer = raw.parse()
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].message.model_extra == {"reasoning_content": "thinking", "x_new": {"a": 1}}


def test_a_stream_comes_chunk_by_chunk_with_its_usage(product: Running, lane: Lane, user: str) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    last = (
        b"data: " + json.dumps({"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage}).encode()
    )
    lane.script(
        stream(
            b": keep-alive\n\n",
            chunk({"role": "assistant", "reasoning_content": "hm"}, logprobs=None),
            *(chunk({"content": text}, index=index) for text in ("你", "好") for index in (0, 1)),
            chunk({}, finish="stop"),
            chunk({}, finish="length", index=1),
            last + b"\n\n",
        )
    )
    with product.client(lane.key, user=user) as client:
        pieces = list(
            client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "你好吗？今天过得怎么样？"}],
                n=2,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    texts = ["", ""]
    for piece in pieces:
        for choice in piece.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["你好", "你好"]
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.total_tokens == 5
    assert lane.last.json["n"] == 2
    assert lane.last.json["stream_options"] == {"include_usage": True}


async def test_async_clients_are_served_side_by_side(product: Running, lane: Lane, user: str) -> None:
    lane.script(*(stream(chunk({"content": "a"}), chunk({"content": "b"}, finish="stop")) for _ in range(8)))
    messages: Any = [{"role": "user", "content": "Say a, then b, please."}]
    async with openai.AsyncOpenAI(
        base_url=f"{product.address}/v1", api_key=lane.key, default_headers={"X-Memory-User": user}, max_retries=0
    ) as client:
        streams = [await client.chat.completions.create(model="m", messages=messages, stream=True) for _ in range(8)]
        for one in streams:
            pieces = [piece.choices[0].delta.content async for piece in one]
            assert pieces == ["a", "b"]
        assert (await client.chat.completions.create(model="m", messages=messages)).choices[0].message.content == "OK"


def test_parallel_tool_calls_go_both_ways_and_a_tool_loop_gets_nothing_new(
    product: Running, lane: Lane, user: str
) -> None:
    remember(product, user)
    lane.script(completion("", content=None, tool_calls=PARALLEL))
    messages: list[Any] = [{"role": "user", "content": "What is the weather, and which green tea fits it?"}]
    with product.client(lane.key, user=user) as client:
        asked = client.chat.completions.with_raw_response.create(
            model="m", messages=messages, tools=[WEATHER], parallel_tool_calls=True, tool_choice="auto"
        )
        answer = asked.parse().choices[0]
        assert answer.finish_reason == "tool_calls"
        assert [call.id for call in answer.message.tool_calls or ()] == ["call_北京", "call_Bergen"]
        block = lane.last.system
        assert TEA in block
        messages.append({"role": "assistant", "content": None, "tool_calls": PARALLEL})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "rain"} for call in PARALLEL]
        remember(product, user, "The user also likes rain and weather talk.")
        looped = client.chat.completions.with_raw_response.create(model="m", messages=messages, tools=[WEATHER])
    assert looped.headers["x-memory-session"] == asked.headers["x-memory-session"]
    assert lane.last.system == block
    assert without_block(lane.last.json, len(messages))["messages"] == messages


def test_streamed_tool_calls_are_put_together_by_the_client(product: Running, lane: Lane, user: str) -> None:
    pieces = []
    for index, call in enumerate(PARALLEL):
        pieces.append(
            chunk({"tool_calls": [{"index": index, **call, "function": {"name": "weather", "arguments": ""}}]})
        )
        for letter in call["function"]["arguments"]:  # type: ignore[index]
            pieces.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": letter}}]}))
    lane.script(stream(*pieces, chunk({}, finish="tool_calls")))
    with (
        product.client(lane.key, user=user) as client,
        client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "What is the weather in both?"}], tools=[WEATHER]
        ) as events,
    ):
        calls = events.get_final_completion().choices[0].message.tool_calls or ()
    assert [(call.id, call.function.arguments) for call in calls] == [
        ("call_北京", '{"city": "北京"}'),
        ("call_Bergen", '{"city": "Bergen"}'),
    ]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


@pytest.mark.parametrize("parts", [[PICTURE], [SOUND], [PICTURE, SOUND, {"type": "file", "file": {"file_id": "f"}}]])
def test_messages_with_pictures_and_sound_get_memory_too(
    product: Running, lane: Lane, user: str, parts: list[Any]
) -> None:
    remember(product, user)
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": ASK}, *parts]}]
    with product.client(lane.key, user=user) as client:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=messages, modalities=["text"])
    assert raw.headers["x-memory-injected"] == "1"
    assert TEA in lane.last.system
    assert without_block(lane.last.json, len(messages))["messages"] == messages
    account = product.ledger(raw.headers["x-memory-request-id"], user)
    assert account["written"]["status"] == "done"


def test_a_message_of_a_picture_alone_goes_through(product: Running, lane: Lane, user: str) -> None:
    messages: Any = [{"role": "user", "content": [PICTURE]}]
    with product.client(lane.key, user=user) as client:
        assert client.chat.completions.create(model="m", messages=messages).choices[0].message.content == "OK"
    assert lane.last.json["messages"] == messages


@pytest.mark.parametrize("content", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_the_block_stands_in_a_developer_message_and_the_message_stays_one(
    product: Running, lane: Lane, user: str, content: Any
) -> None:
    remember(product, user)
    messages: Any = [{"role": "developer", "content": content}, {"role": "user", "content": ASK}]
    with product.client(lane.key, user=user) as client:
        client.chat.completions.create(model="m", messages=messages)
    assert [message["role"] for message in lane.last.json["messages"]] == ["developer", "user"]
    assert lane.last.system.startswith("Be brief.")
    assert TEA in lane.last.system
    assert without_block(lane.last.json, len(messages))["messages"] == messages


def test_fields_nobody_knows_reach_the_provider(product: Running, lane: Lane, user: str) -> None:
    extra = {"top_k": 40, "provider": {"order": ["x"]}, "chat_template_kwargs": {"thinking": False}, "空": None}
    with product.client(lane.key, user=user) as client:
        client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Tell me about the weather."}],
            metadata={"run": "1"},
            seed=2**60,
            temperature=0.0,
            reasoning_effort="low",
            store=True,
            extra_body=extra,
            extra_headers={"X-Trace": "t-1"},
            extra_query={"api-version": "2026-01-01"},
        )
    sent = lane.last.json
    assert {key: sent[key] for key in extra} == extra
    assert (sent["metadata"], sent["seed"], sent["store"]) == ({"run": "1"}, 2**60, True)
    assert lane.last.header("x-trace") == "t-1"
    assert lane.last.path_qs == f"{CHAT}?api-version=2026-01-01"


def test_the_owner_may_be_named_in_the_body(product: Running, lane: Lane, user: str) -> None:
    remember(product, user)
    metadata = {"user_id": user, "session_id": "s-1"}
    with product.client(lane.key) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": ASK}], metadata=metadata
        )
    assert raw.headers["x-memory-session"] == "s-1"
    assert TEA in lane.last.system
    assert lane.last.json["metadata"] == metadata


def test_an_error_event_raises_in_the_client(product: Running, lane: Lane, user: str) -> None:
    event = b'data: {"error":{"message":"overloaded","type":"server_error","code":"529"}}\n\n'
    lane.script(stream(chunk({"content": "half"}), event))
    with product.client(lane.key, user=user) as client:
        pieces = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Go on, tell me."}], stream=True
        )
        assert next(pieces).choices[0].delta.content == "half"
        with pytest.raises(openai.APIError, match="overloaded"):
            next(pieces)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, openai.AuthenticationError), (404, openai.NotFoundError), (429, openai.RateLimitError)],
)
def test_the_providers_errors_are_the_clients_and_nothing_is_remembered(
    product: Running, lane: Lane, user: str, status: int, error: type[openai.APIStatusError]
) -> None:
    body = {"error": {"message": "no", "type": "t", "code": "c", "param": "model", "more": 1}}
    lane.script(Reply([json.dumps(body).encode()], status, {**JSON, "retry-after": "11"}))
    with product.client(lane.key, user=user) as client, pytest.raises(error) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "I prefer dark mode."}])
    assert caught.value.body == body["error"]
    assert caught.value.response.headers["retry-after"] == "11"
    account = product.ledger(caught.value.response.headers["x-memory-request-id"], user)
    assert account["written"]["status"] == "failed"
    assert product.records(user) == []


def test_a_compressed_request_passes_unread(product: Running, lane: Lane, user: str) -> None:
    packed = gzip.compress(json.dumps({"messages": [{"role": "user", "content": "I prefer dark mode."}]}).encode())
    response = post(product, lane, user, packed, **{"Content-Encoding": "gzip"})
    assert (response.status_code, response.json()["choices"][0]["message"]["content"]) == (200, "OK")
    assert response.headers["x-memory-status"] == "skipped:content-encoding"
    assert (lane.last.body, lane.last.header("content-encoding")) == (packed, "gzip")


# ── langchain ──────────────────────────────────────────────────────────────────────────────────────────────────────
def langchain(product: Running, lane: Lane, user: str, **more: Any) -> ChatOpenAI:
    """langchain-openai's client."""
    return ChatOpenAI(
        model="m",
        base_url=f"{product.address}/v1",
        api_key=SecretStr(lane.key),
        default_headers={"X-Memory-User": user},
        max_retries=0,
        **more,
    )


def test_langchain_gets_memory_and_its_answer(product: Running, lane: Lane, user: str) -> None:
    remember(product, user)
    answer = langchain(product, lane, user).invoke([SystemMessage("Be brief."), HumanMessage(ASK)])
    assert answer.content == "OK"
    assert TEA in lane.last.system


async def test_langchain_streams(product: Running, lane: Lane, user: str) -> None:
    for _ in range(2):
        lane.script(stream(*(chunk({"content": text}) for text in ("一", "二", "三")), chunk({}, finish="stop")))
    model = langchain(product, lane, user, stream_usage=True)
    assert "".join(str(piece.content) for piece in model.stream("从一数到三，好吗？")) == "一二三"
    assert "".join([str(piece.content) async for piece in model.astream("再从一数到三，好吗？")]) == "一二三"
    assert lane.last.json["stream_options"] == {"include_usage": True}


def test_langchain_goes_through_a_tool_loop_in_one_session(product: Running, lane: Lane, user: str) -> None:
    lane.script(completion("", content=None, tool_calls=PARALLEL), completion("Rain in both."))
    model = langchain(product, lane, user, include_response_headers=True).bind_tools([WEATHER])
    question = HumanMessage("What is the weather in both cities?")
    first = model.invoke([question])
    assert isinstance(first, AIMessage)
    results = [ToolMessage("rain", tool_call_id=str(call["id"])) for call in first.tool_calls]
    last = model.invoke([question, first, *results])
    assert last.content == "Rain in both."
    assert [message["role"] for message in lane.last.json["messages"]][-4:] == ["user", "assistant", "tool", "tool"]
    sessions = [answer.response_metadata["headers"]["x-memory-session"] for answer in (first, last)]
    assert sessions[0] == sessions[1]


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────────
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | text, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=8
)
ours = {"model", "messages", "metadata", "user", "safety_identifier", "stream"}
fields = st.dictionaries(text.filter(lambda name: name not in ours), values, max_size=5)
content = text | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": text}) | st.just(PICTURE), max_size=3)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": content},
    optional={"name": text, "tool_call_id": text, "x": values},
)
layouts = st.sampled_from(
    [
        {"ensure_ascii": False, "separators": (",", ":")},
        {"ensure_ascii": True, "indent": 2},
        {"ensure_ascii": False, "separators": (" , ", "\t:\r\n")},
    ]
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(more=fields, messages=st.lists(message, min_size=1, max_size=4), layout=layouts)
def test_with_nothing_to_inject_the_provider_gets_the_very_bytes(
    product: Running, lane: Lane, more: Mapping[str, Any], messages: list[Any], layout: Mapping[str, Any]
) -> None:
    sent = json.dumps({**more, "messages": messages, "model": "m"}, **layout).encode()
    response = post(product, lane, f"user-{secrets.token_hex(6)}", sent)
    assert response.status_code == 200
    assert lane.last.body == sent


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(more=fields, messages=st.lists(message, max_size=3), layout=layouts, picture=st.booleans())
def test_with_a_block_injected_the_rest_is_json_equal(
    product: Running,
    lane: Lane,
    more: Mapping[str, Any],
    messages: list[Any],
    layout: Mapping[str, Any],
    picture: bool,
) -> None:
    user = f"user-{lane.key[3:]}"
    if not product.records(user):
        remember(product, user)
    asked = [{"type": "text", "text": ASK}, PICTURE] if picture else ASK
    request = {"model": "m", **more, "messages": [*messages, {"role": "user", "content": asked}]}
    sent = json.dumps(request, **layout).encode()
    response = post(product, lane, user, sent, **{"X-Memory-Mode": "read"})
    assert response.headers["x-memory-injected"] == "1"
    assert lane.last.body.count(OPEN.encode()) == 1
    assert without_block(lane.last.json, len(messages) + 1) == request


# ── node ───────────────────────────────────────────────────────────────────────────────────────────────────────────
NODE = """
import OpenAI from "openai";
const client = new OpenAI({maxRetries: 0});
const messages = [{role: "user", content: "你好，请从一数到三。"}];
const whole = await client.chat.completions.create({model: "m", messages});
const pieces = await client.chat.completions.create({model: "m", messages, stream: true});
let text = "";
for await (const piece of pieces) text += piece.choices[0]?.delta?.content ?? "";
console.log(JSON.stringify([whole.choices[0].message.content, text]));
"""


def test_the_node_client_works_too(product: Running, lane: Lane, user: str, tmp_path: Path) -> None:
    node, modules = shutil.which("node"), os.environ.get("SIDEMIRROR_TEST_NODE_MODULES")
    if node is None or modules is None:
        pytest.skip("needs node, and SIDEMIRROR_TEST_NODE_MODULES naming a node_modules with `npm i openai` in it")
    (tmp_path / "node_modules").symlink_to(Path(modules).resolve())
    (tmp_path / "chat.mjs").write_text(NODE, encoding="utf-8")
    lane.script(
        completion("一二三"), stream(*(chunk({"content": part}) for part in "一二三"), chunk({}, finish="stop"))
    )
    env = {**os.environ, "OPENAI_BASE_URL": f"{product.address}/v1", "OPENAI_API_KEY": lane.key}
    done = subprocess.run([node, "chat.mjs"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["一二三", "一二三"]
    assert len(eventually(lambda: lane.received)) == 2
