"""`models:` against the running product: names, keys, bytes on the same wire, translation to Anthropic and Gemini."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import openai
import pytest

from tests.dialects import (
    MESSAGE_START,
    OVERLOADED,
    anthropic,
    anthropic_end,
    anthropic_text,
    anthropic_tool,
    error,
    gemini,
    gemini_body,
    gemini_stream,
    streamed,
    text,
    tool_use,
)
from tests.running import Running, eventually, running
from tests.scripted import Lane, Received, Reply, ScriptedUpstream, completion
from tests.test_http_stream import RULES

CLAUDE = "claude-sonnet-4-5"
GEMINI = "gemini-2.5-flash"
QUESTION = "How do I get from the station to the harbour?"
FACT = "I prefer dark mode in every editor."
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def product(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product with models of every kind; all of them answer from the scripted provider."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "policies").mkdir()
    (folder / "policies" / "words.yaml").write_text(RULES, encoding="utf-8")
    plain, v1 = provider.url.removesuffix("/v1"), provider.url
    models = [
        {"name": "claude-*", "litellm": "anthropic/claude-*", "api_base": plain},
        {"name": "gemini-*", "litellm": "gemini/gemini-*", "api_base": plain},
        {"name": "fast-*", "litellm": "openai/*", "api_base": v1},
        {"name": "fast-mini", "litellm": "groq/llama-3.3-70b-versatile", "api_base": v1},
        {"name": "keyed", "litellm": "openai/gpt-4o", "api_base": v1, "api_key": "sk-entry"},
        {"name": "keyed-claude", "litellm": f"anthropic/{CLAUDE}", "api_base": plain, "api_key": "sk-entry"},
        {"name": "translated", "litellm": "openai/gpt-4o", "api_base": v1, "wire": "litellm"},
        {"name": "no-system", "litellm": "openai/old-model", "api_base": v1, "system_role": "none"},
        {"name": "nowhere", "litellm": f"anthropic/{CLAUDE}", "api_base": "http://127.0.0.1:1"},
        {"name": "parrot", "litellm": "demo/echo"},
    ]
    surroundings = {
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "ANTHROPIC_API_KEY": "sk-of-the-machine",
        "OPENAI_API_KEY": "sk-of-the-machine",
    }
    config = {"upstream": {"base_url": v1}, "recall": {"deadline_ms": 5000}, "models": models}
    with running(folder, config=config, env=surroundings) as started:
        yield started


@pytest.fixture(scope="module")
def entry_lane(provider: ScriptedUpstream) -> Lane:
    """The provider's side for the key that config.yaml holds."""
    return provider.lane("sk-entry")


def body(model: str, question: str = QUESTION, **more: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": model, "messages": [{"role": "user", "content": question}], **more}


def post(
    product: Running, lane: Lane | None, content: Mapping[str, Any] | bytes, user: str, **headers: str
) -> httpx.Response:
    """Send it, and read the whole answer."""
    named = {"Content-Type": "application/json", **headers}
    if lane is not None:
        named["Authorization"] = f"Bearer {lane.key}"
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    with product.http(user) as http:
        return http.post("/v1/chat/completions", content=data, headers=named, timeout=60)


def events(response: httpx.Response) -> list[Any]:
    """The events of a streamed answer; the end mark is "[DONE]"."""
    assert response.headers["content-type"].startswith("text/event-stream")
    found = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [event if event == "[DONE]" else json.loads(event) for event in found]


def deltas(response: httpx.Response) -> str:
    """The text of a streamed answer."""
    chunks = [event for event in events(response) if event != "[DONE]" and event.get("choices")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def kept(product: Running, response: httpx.Response, user: str) -> tuple[list[str], list[str]]:
    """What was remembered of the user's calls: their words, and whole answers."""
    product.ledger(response.headers["x-memory-request-id"], user)
    records = product.records(user)
    return (
        [record["content"] for record in records if record["kind"] == "said"],
        [record["content"] for record in records if record["kind"] == "summary"],
    )


def teach(product: Running, user: str) -> None:
    """A fact that will be recalled."""
    with product.http(user) as http:
        answer = http.post("/memory/records", json={"content": FACT, "kind": "fact", "scope": "user"})
        answer.raise_for_status()


def claude_system(received: Received) -> str:
    return "\n".join(block["text"] for block in received.json["system"])


# ── the same wire ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_renamed_request_keeps_every_other_byte(product: Running, lane: Lane, user: str) -> None:
    messages = '[{"role":"user","content":"\\u5317京"}]'
    sent = '{ "temperature":1.50,"x":{"a":[1e2,null]}, "model" : "fast-gpt-5.1" ,"messages":' + messages + "}"
    answer = completion("OK", reasoning_content="hm")
    lane.script(answer)
    response = post(product, lane, sent.encode(), user)
    assert response.content == b"".join(answer.body)
    assert lane.last.path_qs == "/v1/chat/completions"
    assert lane.last.body.decode() == sent.replace("fast-gpt-5.1", "gpt-5.1")


def test_block_and_new_name_are_put_in_together(product: Running, lane: Lane, user: str) -> None:
    teach(product, user)
    response = post(product, lane, body("fast-gpt-4o", "Which mode do I prefer in my editor?", seed=1), user)
    assert response.headers["x-memory-injected"] == "1"
    assert lane.last.json["model"] == "gpt-4o"
    assert lane.last.json["seed"] == 1
    assert FACT in lane.last.system


def test_an_exact_name_wins_over_a_pattern(product: Running, lane: Lane, user: str) -> None:
    post(product, lane, body("fast-mini"), user)
    assert lane.last.json["model"] == "llama-3.3-70b-versatile"


def test_a_name_under_no_entry_goes_to_the_upstream_as_it_is(product: Running, lane: Lane, user: str) -> None:
    for model in ("gpt-4o", "anthropic/claude-3", "my-claude-x"):
        post(product, lane, body(model), user)
        assert lane.last.json["model"] == model


@pytest.mark.parametrize(("model", "header"), [("keyed", "authorization"), ("keyed-claude", "x-api-key")])
def test_an_entrys_key_takes_the_place_of_the_clients(
    product: Running, lane: Lane, entry_lane: Lane, user: str, model: str, header: str
) -> None:
    entry_lane.script(anthropic(text("OK")) if model == "keyed-claude" else completion())
    assert post(product, lane, body(model), user).status_code == 200
    assert entry_lane.last.header(header) in ("Bearer sk-entry", "sk-entry")
    assert lane.key not in str(entry_lane.last.headers)
    assert lane.received == []


def test_memory_goes_to_the_first_user_message_where_there_is_no_system_role(
    product: Running, lane: Lane, user: str
) -> None:
    teach(product, user)
    said = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Which mode do I prefer in my editor?"},
    ]
    post(product, lane, {"model": "no-system", "messages": said}, user)
    first, *others = lane.last.json["messages"]
    assert first["role"] == "user"
    assert first["content"].startswith("Hello.\n\n")
    assert FACT in first["content"]
    assert others == said[1:]


def test_errors_on_the_same_wire_come_back_byte_for_byte(product: Running, lane: Lane, user: str) -> None:
    lane.script(error(429, b'{"error": {"message" : "slow down"}}', retry_after="7"))
    response = post(product, lane, body("fast-gpt-4o"), user)
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    assert response.content == b'{"error": {"message" : "slow down"}}'


# ── Anthropic ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_claude_answers_a_chat_call(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("先坐地铁。"), cache_read_input_tokens=4))
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": QUESTION}]
    response = post(product, lane, {"model": CLAUDE, "messages": messages, "temperature": 0.5, "stop": ["X"]}, user)
    assert response.status_code == 200
    answer = response.json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "先坐地铁。"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert response.headers["x-memory-status"] == "ok"
    sent = lane.last
    assert (sent.path_qs, sent.header("x-api-key")) == ("/v1/messages", lane.key)
    assert sent.json["model"] == CLAUDE
    assert sent.json["temperature"] == 0.5
    assert sent.json["stop_sequences"] == ["X"]
    assert claude_system(sent) == "Be kind."
    assert kept(product, response, user) == ([QUESTION], ["先坐地铁。"])


def test_memory_arrives_in_claudes_system_prompt(product: Running, lane: Lane, user: str) -> None:
    teach(product, user)
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Which mode do I prefer in my editor?"},
    ]
    lane.script(anthropic(text("Dark.")))
    response = post(product, lane, {"model": CLAUDE, "messages": messages}, user)
    assert response.headers["x-memory-injected"] == "1"
    assert claude_system(lane.last).startswith("Be kind.")
    assert FACT in claude_system(lane.last)
    assert FACT not in json.dumps(lane.last.json["messages"])


def test_a_tool_goes_round_with_claude(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("Let me see."), tool_use("toolu_1", "weather", city="北京"), stop="tool_use"))
    first = post(product, lane, body(CLAUDE, "北京天气？", tools=[TOOL], tool_choice="required"), user).json()
    message = first["choices"][0]["message"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    (call,) = message["tool_calls"]
    assert (call["id"], call["type"], call["function"]["name"]) == ("toolu_1", "function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "北京"}
    sent = lane.last.json
    assert sent["tool_choice"]["type"] == "any"
    assert sent["tools"][0]["input_schema"]["required"] == ["city"]

    lane.script(anthropic(text("晴。")))
    said = [
        {"role": "user", "content": "北京天气？"},
        {"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"},
    ]
    assert post(product, lane, {"model": CLAUDE, "messages": said, "tools": [TOOL]}, user).status_code == 200
    _, assistant, result = lane.last.json["messages"]
    assert assistant["content"][1] == {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "weather",
        "input": {"city": "北京"},
    }
    assert result["role"] == "user"
    assert result["content"][0]["tool_use_id"] == "toolu_1"
    assert "sunny" in json.dumps(result["content"][0]["content"])


def test_claude_streams(product: Running, lane: Lane, user: str) -> None:
    lane.script(streamed(MESSAGE_START, *anthropic_text("先坐", "地铁。"), *anthropic_end()))
    asked = body(CLAUDE, stream=True, stream_options={"include_usage": True})
    response = post(product, lane, asked, user)
    found = events(response)
    assert found[-1] == "[DONE]"
    assert deltas(response) == "先坐地铁。"
    assert all(event["object"] == "chat.completion.chunk" for event in found[:-1])
    assert all("finish_reason" in choice for event in found[:-1] for choice in event["choices"])
    assert [event["choices"][0]["finish_reason"] for event in found[:-2]] == [None, None, "stop"]
    assert found[-2]["choices"] == []
    assert (found[-2]["usage"]["prompt_tokens"], found[-2]["usage"]["completion_tokens"]) == (10, 5)
    assert kept(product, response, user) == ([QUESTION], ["先坐地铁。"])


def test_claude_streams_a_tool_call(product: Running, lane: Lane, user: str) -> None:
    call = anthropic_tool("toolu_1", "weather", '{"ci', 'ty": "北京"}', index=1)
    lane.script(streamed(MESSAGE_START, *anthropic_text("Hm."), *call, *anthropic_end("tool_use")))
    with (
        product.client(lane.key, user=user) as client,
        client.chat.completions.stream(
            model=CLAUDE,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[TOOL],  # type: ignore[list-item]
        ) as stream,
    ):
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls is not None
    (found,) = final.choices[0].message.tool_calls
    assert (found.id, found.function.name) == ("toolu_1", "weather")
    assert json.loads(found.function.arguments) == {"city": "北京"}
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.content == "Hm."


# ── Gemini ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_gemini_answers_with_memory_in_its_system_instruction(product: Running, lane: Lane, user: str) -> None:
    teach(product, user)
    lane.script(gemini({"text": "Dark."}))
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Which mode do I prefer in my editor?"},
    ]
    response = post(product, lane, {"model": GEMINI, "messages": messages, "max_tokens": 9}, user)
    answer = response.json()
    assert answer["choices"][0]["message"]["content"] == "Dark."
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == 15
    sent = lane.last
    assert sent.path_qs == f"/models/{GEMINI}:generateContent"
    assert sent.header("x-goog-api-key") == lane.key
    system = sent.json["system_instruction"]["parts"][0]["text"]
    assert system.startswith("Be kind.")
    assert FACT in system
    assert FACT not in json.dumps(sent.json["contents"])
    assert sent.json["generationConfig"]["max_output_tokens"] == 9


def test_gemini_streams(product: Running, lane: Lane, user: str) -> None:
    lane.script(gemini_stream(gemini_body({"text": "先坐"}, finish=None), gemini_body({"text": "地铁。"})))
    response = post(product, lane, body(GEMINI, stream=True), user)
    assert lane.last.path_qs == f"/models/{GEMINI}:streamGenerateContent?alt=sse"
    assert deltas(response) == "先坐地铁。"
    assert events(response)[-1] == "[DONE]"
    assert kept(product, response, user) == ([QUESTION], ["先坐地铁。"])


def test_a_tool_goes_round_with_gemini(product: Running, lane: Lane, user: str) -> None:
    lane.script(gemini({"functionCall": {"name": "weather", "args": {"city": "北京"}}}))
    first = post(product, lane, body(GEMINI, "北京天气？", tools=[TOOL]), user).json()
    message = first["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "北京"}
    declared = lane.last.json["tools"][0]["function_declarations"][0]
    assert declared["name"] == "weather"

    lane.script(gemini({"text": "晴。"}))
    said = [
        {"role": "user", "content": "北京天气？"},
        message,
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
    ]
    assert post(product, lane, {"model": GEMINI, "messages": said, "tools": [TOOL]}, user).status_code == 200
    contents = lane.last.json["contents"]
    assert contents[1]["parts"][0]["function_call"] == {"name": "weather", "args": {"city": "北京"}}
    assert contents[2]["parts"][0]["function_response"]["name"] == "weather"


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def claude_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("model", "status", "told"),
    [
        (CLAUDE, 400, claude_error("invalid_request_error", "max_tokens: 太大")),
        (CLAUDE, 401, claude_error("authentication_error", "invalid x-api-key")),
        (CLAUDE, 404, claude_error("not_found_error", "model: x")),
        (CLAUDE, 429, claude_error("rate_limit_error", "slow down")),
        (CLAUDE, 500, claude_error("api_error", "oops")),
        (CLAUDE, 529, claude_error("overloaded_error", "Overloaded")),
        (GEMINI, 400, {"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}),
        (GEMINI, 429, {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}}),
        (GEMINI, 503, {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}),
        ("translated", 429, {"error": {"message": "slow", "type": "tokens", "code": "rate", "param": None}}),
        ("translated", 500, {"error": {"message": "oops", "type": "server_error", "code": None, "param": None}}),
    ],
)
def test_a_providers_error_keeps_status_body_and_retry_after(
    product: Running, lane: Lane, user: str, model: str, status: int, told: dict[str, Any], stream: bool
) -> None:
    lane.script(error(status, told, retry_after="7", anthropic_ratelimit_requests_remaining="0", set_cookie="a=b"))
    response = post(product, lane, body(model, stream=stream), user)
    assert response.status_code == status
    assert response.json() == told
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["retry-after"] == "7"
    assert response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert "set-cookie" not in response.headers
    assert response.headers["x-memory-status"] == "ok"
    assert len(lane.received) == 1, "retries are the client's business"
    assert kept(product, response, user) == ([], [])


def test_an_error_without_an_error_object_comes_in_openais_shape(product: Running, lane: Lane, user: str) -> None:
    lane.script(Reply([b"<html>Bad gateway</html>"], status=502, headers={"Content-Type": "text/html"}))
    response = post(product, lane, body(CLAUDE), user)
    assert response.status_code == 502
    assert response.json() == {
        "error": {"message": "<html>Bad gateway</html>", "type": "api_error", "code": "502", "param": None}
    }


def test_an_openai_client_raises_the_error_it_knows(product: Running, lane: Lane, user: str) -> None:
    lane.script(error(429, claude_error("rate_limit_error", "slow down"), retry_after="7"))
    with (
        product.client(lane.key, user=user) as client,
        pytest.raises(openai.RateLimitError, match="slow down") as raised,
    ):
        client.chat.completions.create(model=CLAUDE, messages=[{"role": "user", "content": "Hi"}])
    assert raised.value.response.headers["retry-after"] == "7"


def test_a_provider_that_cannot_be_reached_is_a_502(product: Running, lane: Lane, user: str) -> None:
    response = post(product, lane, body("nowhere"), user)
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_unreachable"
    assert lane.key not in response.text


def test_messages_that_are_no_list_are_refused(product: Running, lane: Lane, user: str) -> None:
    response = post(product, lane, {"model": CLAUDE, "messages": "Hi"}, user)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    assert lane.received == []


# ── streams that end badly ─────────────────────────────────────────────────────────────────────────────────────────
HALF = [MESSAGE_START, *anthropic_text("先坐地", "铁")[:-1]]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (streamed(*HALF, OVERLOADED), "Overloaded"),
        (streamed(*HALF), "ended before"),
        (streamed(*HALF, cut=True), ""),
    ],
    ids=["an error event", "no end", "a broken connection"],
)
def test_a_stream_that_fails_halfway_ends_with_an_error_event(
    product: Running, lane: Lane, user: str, reply: Reply, message: str
) -> None:
    lane.script(reply)
    response = post(product, lane, body(CLAUDE, stream=True), user)
    found = events(response)
    assert response.status_code == 200
    assert deltas(response) == "先坐地铁"
    assert "[DONE]" not in found
    assert message in found[-1]["error"]["message"]
    assert found[-1]["error"]["type"] == "api_error"
    assert kept(product, response, user) == ([QUESTION], [])


def test_an_error_as_the_first_event_has_a_status_of_its_own(product: Running, lane: Lane, user: str) -> None:
    lane.script(streamed(OVERLOADED))
    response = post(product, lane, body(CLAUDE, stream=True), user)
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "Overloaded"
    assert kept(product, response, user) == ([], [])


@pytest.mark.parametrize("model", [CLAUDE, GEMINI, "translated"])
def test_the_providers_call_ends_when_the_client_goes(product: Running, lane: Lane, user: str, model: str) -> None:
    never = threading.Event()
    pieces: dict[str, Sequence[bytes]] = {
        CLAUDE: HALF,
        GEMINI: [b"data: " + json.dumps(gemini_body({"text": "先坐"}, finish=None)).encode() + b"\r\n\r\n"],
        "translated": [b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'],
    }
    lane.script(streamed(*pieces[model], b": never\n\n", hold={len(pieces[model]): never}))
    with product.http(user) as http:
        asked = http.stream(
            "POST",
            "/v1/chat/completions",
            json=body(model, stream=True),
            headers={"Authorization": f"Bearer {lane.key}"},
        )
        with asked as response:
            next(response.iter_lines())
    try:
        assert lane.gone.wait(1.0)
    finally:
        never.set()
    assert kept(product, response, user) == ([QUESTION], [])


def test_a_client_that_goes_before_the_answer_ends_the_providers_call(product: Running, lane: Lane, user: str) -> None:
    never = threading.Event()
    reply = anthropic(text("late"))
    lane.script(Reply(reply.body, headers=reply.headers, hold={-1: never}))
    with product.http(user) as http, pytest.raises(httpx.ReadTimeout):
        http.post(
            "/v1/chat/completions",
            json=body(CLAUDE),
            headers={"Authorization": f"Bearer {lane.key}"},
            timeout=httpx.Timeout(10, read=0.3),
        )
    try:
        assert lane.gone.wait(1.0)
    finally:
        never.set()


# ── what a client cannot do ────────────────────────────────────────────────────────────────────────────────────────
STEERING: dict[str, Any] = {
    "api_base": "http://127.0.0.1:1",
    "base_url": "http://127.0.0.1:1",
    "api_key": "sk-evil",
    "custom_llm_provider": "openai",
    "model_list": [{"model_name": CLAUDE, "litellm_params": {"model": "openai/x"}}],
    "fallbacks": ["demo/echo"],
    "mock_response": "evil",
    "mock_tool_calls": [],
    "mock_timeout": True,
    "mock_delay": 60,
    "extra_headers": {"x-evil": "1"},
    "headers": {"x-evil": "1"},
    "provider_specific_header": {"custom_llm_provider": "anthropic", "extra_headers": {"x-evil": "1"}},
    "organization": "evil",
    "azure": True,
    "azure_ad_token": "evil",
    "deployment_id": "evil",
    "aws_access_key_id": "evil",
    "vertex_project": "evil",
    "num_retries": 5,
    "max_retries": 5,
    "timeout": 0.001,
    "drop_params": True,
    "additional_drop_params": ["messages"],
    "extra_body": {"model": "evil"},
    "client": "evil",
    "litellm_metadata": {"model_group": "evil"},
    "prompt_id": "evil",
    "litellm_system_prompt": "evil",
    "_skip_mcp_handler": False,
    "langfuse_host": "http://127.0.0.1:1",
}


@pytest.mark.parametrize("model", [CLAUDE, GEMINI, "translated"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_client_can_neither_redirect_nor_mock_a_call(
    product: Running, lane: Lane, user: str, model: str, stream: bool
) -> None:
    replies = {CLAUDE: anthropic(text("real")), GEMINI: gemini({"text": "real"}), "translated": completion("real")}
    streams = {
        CLAUDE: streamed(MESSAGE_START, *anthropic_text("real"), *anthropic_end()),
        GEMINI: gemini_stream(gemini_body({"text": "real"})),
        "translated": streamed(
            b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"real"},"finish_reason":"stop"}]}\n\n',
            b"data: [DONE]\n\n",
        ),
    }
    lane.script(streams[model] if stream else replies[model])
    response = post(product, lane, body(model, stream=stream, **STEERING), user)
    assert response.status_code == 200, response.text
    assert (deltas(response) if stream else response.json()["choices"][0]["message"]["content"]) == "real"
    assert len(lane.received) == 1
    assert "evil" not in lane.last.body.decode()
    assert "evil" not in str(lane.last.headers)


def test_a_clients_tools_do_not_reach_servers_through_litellm(product: Running, lane: Lane, user: str) -> None:
    lane.script(completion("real"))
    tools = [{"type": "mcp", "server_url": "litellm_proxy", "server_label": "x", "require_approval": "never"}]
    response = post(product, lane, body("translated", tools=tools), user)
    assert response.json()["choices"][0]["message"]["content"] == "real"
    assert lane.last.json["tools"] == tools


@pytest.mark.parametrize("model", [CLAUDE, "translated"])
def test_the_machines_own_keys_and_addresses_are_never_used(
    product: Running, provider: ScriptedUpstream, user: str, model: str
) -> None:
    response = post(product, None, body(model), user)
    assert response.status_code == 401, "it went to the entry's address, with no key"
    assert "sk-of-the-machine" not in provider.stray
    assert provider.stray["none"]


def test_a_key_sent_anthropics_way_goes_upstream(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("OK")))
    with product.http(user) as http:
        answer = http.post("/v1/chat/completions", json=body(CLAUDE), headers={"x-api-key": lane.key})
    assert answer.status_code == 200
    assert lane.last.header("x-api-key") == lane.key


# ── what becomes of fields ─────────────────────────────────────────────────────────────────────────────────────────
def test_unknown_fields_reach_a_provider_of_the_same_dialect(product: Running, lane: Lane, user: str) -> None:
    extra: dict[str, Any] = {
        "x_unknown": {"a": 1},
        "metadata": {"a": "b"},
        "safety_identifier": "s",
        "store": True,
        "top_k": 5,
    }
    post(product, lane, body("translated", **extra), user)
    assert {name: lane.last.json[name] for name in extra} == extra


def test_native_fields_reach_claude(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("OK")))
    extra: dict[str, Any] = {
        "top_k": 5,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "ada", "x": "y"},
    }
    assert post(product, lane, body(CLAUDE, max_tokens=2048, **extra), user).status_code == 200
    sent = lane.last.json
    assert (sent["top_k"], sent["thinking"], sent["metadata"]) == (5, extra["thinking"], {"user_id": "ada"})


def test_native_fields_reach_gemini(product: Running, lane: Lane, user: str) -> None:
    lane.script(gemini({"text": "OK"}))
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    assert post(product, lane, body(GEMINI, safetySettings=safety), user).status_code == 200
    assert lane.last.json["safetySettings"] == safety


def test_fields_that_say_what_holds_anyway_do_not_fail_a_call(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("OK")))
    asked = body(CLAUDE, n=1, frequency_penalty=0, presence_penalty=0.0, logprobs=False, seed=None)
    assert post(product, lane, asked, user).status_code == 200


# ── the losses of translation, as docs/providers.md lists them ─────────────────────────────────────────────────────
def claude_says(product: Running, lane: Lane, user: str, **fields: Any) -> httpx.Response:
    lane.script(anthropic(text("OK")))
    return post(product, lane, {**body(CLAUDE), **fields}, user)


@pytest.mark.parametrize(
    "field", [{"seed": 1}, {"n": 2}, {"frequency_penalty": 0.5}, {"logprobs": True}, {"logit_bias": {"1": 5}}]
)
def test_loss_fields_the_provider_lacks_are_refused(product: Running, lane: Lane, user: str, field: Any) -> None:
    response = claude_says(product, lane, user, **field)
    assert response.status_code == 400
    assert next(iter(field)) in response.json()["error"]["message"]
    assert "litellm_settings" not in response.text, "advice for people who configure litellm helps nobody here"
    assert lane.received == []


def test_loss_hints_are_left_out(product: Running, lane: Lane, user: str) -> None:
    hints = {"store": True, "safety_identifier": "s", "prompt_cache_key": "k"}
    assert claude_says(product, lane, user, **hints).status_code == 200
    assert not set(hints) & set(lane.last.json)


def test_loss_unknown_fields_are_left_out_for_claude(product: Running, lane: Lane, user: str) -> None:
    assert claude_says(product, lane, user, x_unknown=1).status_code == 200
    assert "unknown" not in lane.last.body.decode()


def test_loss_names_of_litellms_own_options_are_left_out(product: Running, lane: Lane, user: str) -> None:
    post(product, lane, body("translated", tags=["a"], guardrails=["b"], cache={"c": 1}), user)
    assert not {"tags", "guardrails", "cache"} & set(lane.last.json)


def test_loss_metadata_keeps_the_user_alone(product: Running, lane: Lane, user: str) -> None:
    claude_says(product, lane, user, metadata={"user_id": "ada", "session_id": "s1"})
    assert lane.last.json["metadata"] == {"user_id": "ada"}


def test_loss_json_mode_without_a_schema_is_not_asked_for(product: Running, lane: Lane, user: str) -> None:
    claude_says(product, lane, user, response_format={"type": "json_object"})
    assert not {"response_format", "output_format", "output_config", "tools"} & set(lane.last.json)


def test_loss_the_developer_role_becomes_system(product: Running, lane: Lane, user: str) -> None:
    claude_says(
        product,
        lane,
        user,
        messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
    )
    assert claude_system(lane.last) == "Be brief."


def test_loss_a_missing_max_tokens_becomes_the_models_largest(product: Running, lane: Lane, user: str) -> None:
    claude_says(product, lane, user)
    assert lane.last.json["max_tokens"] > 1000


def test_loss_request_headers_stay_behind(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("OK")))
    post(product, lane, body(CLAUDE), user, **{"anthropic-beta": "x-1", "User-Agent": "mine/1", "X-Trace": "t"})
    assert lane.last.header("user-agent") != "mine/1"
    assert (lane.last.header("x-trace"), lane.last.header("anthropic-beta")) == (None, None)


def test_loss_response_headers_of_an_answer_stay_behind(product: Running, lane: Lane, user: str) -> None:
    reply = anthropic(text("OK"))
    lane.script(Reply(reply.body, headers={**reply.headers, "anthropic-ratelimit-requests-remaining": "5"}))
    assert "anthropic-ratelimit-requests-remaining" not in post(product, lane, body(CLAUDE), user).headers


def test_loss_ids_and_times_are_litellms(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("OK")))
    answer = post(product, lane, body(CLAUDE), user).json()
    assert answer["id"] != "msg_1"
    assert answer["created"] > 1_700_000_000


def test_loss_finish_reasons_are_openais(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("OK"), stop="max_tokens"))
    assert post(product, lane, body(CLAUDE), user).json()["choices"][0]["finish_reason"] == "length"
    lane.script(anthropic(text("OK"), stop="stop_sequence"))
    assert post(product, lane, body(CLAUDE), user).json()["choices"][0]["finish_reason"] == "stop"


def test_loss_the_kind_of_an_error_in_mid_stream_is_api_error(product: Running, lane: Lane, user: str) -> None:
    lane.script(streamed(*HALF, OVERLOADED))
    assert events(post(product, lane, body(CLAUDE, stream=True), user))[-1]["error"]["type"] == "api_error"


def test_loss_usage_that_a_provider_does_not_tell_is_zero(product: Running, lane: Lane, user: str) -> None:
    silent = gemini_body({"text": "a"})
    del silent["usageMetadata"]
    lane.script(gemini_stream(silent))
    asked = body(GEMINI, stream=True, stream_options={"include_usage": True})
    usage = events(post(product, lane, asked, user))[-2]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (0, 0)


def test_loss_query_parameters_stay_behind(product: Running, lane: Lane, user: str) -> None:
    lane.script(anthropic(text("OK")))
    with product.http(user) as http:
        http.post(
            "/v1/chat/completions?beta=1", json=body(CLAUDE), headers={"Authorization": f"Bearer {lane.key}"}
        ).raise_for_status()
    assert lane.last.path_qs == "/v1/messages"


# ── the built-in model, and litellm itself ─────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("model", ["parrot", "demo/echo"])
def test_the_built_in_model_answers_under_any_name(product: Running, lane: Lane, user: str, model: str) -> None:
    teach(product, user)
    question = "Which mode do I prefer in my editor?"
    whole = post(product, lane, body(model, question), user).json()["choices"][0]["message"]["content"]
    assert FACT in whole
    assert deltas(post(product, lane, body(model, question, stream=True), user)).startswith(f"You said: {question}")
    assert lane.received == []


def test_the_log_stays_json_and_holds_no_words_and_no_keys(product: Running, lane: Lane, user: str) -> None:
    lane.script(error(500, claude_error("api_error", "oops")), streamed(*HALF))
    post(product, lane, body(CLAUDE, "Secret question?"), user)
    post(product, lane, body(CLAUDE, "Secret question?", stream=True), user)
    eventually(lambda: any("translated_call_failed" in line for line in product.errors))
    for line in product.errors:
        json.loads(line)
    log = "".join(product.errors)
    assert "Secret question" not in log
    assert lane.key not in log
    assert "sk-entry" not in log
