"""Errors of our own, against the running product: in OpenAI's shape, not remembered, and never the end of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.running import Running, running
from tests.scripted import Lane, Reply

CHAT = "/v1/chat/completions"
HELLO = b'{"model":"m","messages":[{"role":"user","content":"Hello there, how are you?"}]}'
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def stranded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product with a provider that does not listen, and room for bodies of one MiB."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    config = {"upstream": {"base_url": f"http://127.0.0.1:{port}/v1"}, "server": {"max_body_mb": 1}}
    with running(tmp_path_factory.mktemp("stranded"), config=config) as started:
        yield started


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error in a response, once its shape is seen to be OpenAI's."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return error


# ── bodies ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b'{"model": "m", "messages": [', "not valid JSON", id="cut short"),
        pytest.param(b'{"model": "m",}', "not valid JSON", id="trailing comma"),
        pytest.param(HELLO + b"x", "extra text", id="text after it"),
        pytest.param(b'{"temperature": NaN}', "NaN is not JSON", id="NaN"),
        pytest.param(b"{'model': 'm'}", "double quotes", id="single quotes"),
        pytest.param("你好".encode("gb18030"), "not UTF-8", id="not UTF-8"),
        pytest.param(b'{"a": "\xff"}', "not UTF-8 (byte 7)", id="a byte that is not UTF-8"),
        pytest.param(b'[{"role": "user"}]', "not a JSON object", id="array"),
        pytest.param(b'"hello"', "not a JSON object", id="string"),
        pytest.param(b"null", "not a JSON object", id="null"),
        pytest.param(b"", "not a JSON object", id="empty"),
        pytest.param(b"model=m&prompt=hi", "not a JSON object", id="form"),
        pytest.param(b'{"a":' + b"[" * 100_000, "", id="deep, not closed"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep", id="deep"),
    ],
)
def test_a_body_that_is_no_json_object_is_400_and_does_not_go_on(
    product: Running, lane: Lane, body: bytes, says: str
) -> None:
    with product.http() as http:
        response = http.post(CHAT, content=body, headers={"Authorization": f"Bearer {lane.key}", **JSON})
    error = error_of(response, 400)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")
    assert says in error["message"]
    assert lane.received == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model":"m"}', id="no messages"),
        pytest.param(b'{"model":"m","messages":null}', id="null messages"),
        pytest.param(b'{"model":"m","messages":[]}', id="no message"),
        pytest.param(b'{"model":"m","messages":["hi"]}', id="messages that are no objects"),
        pytest.param(b'{"model":7,"stream":"yes","messages":{"role":"user"}}', id="odd types"),
        pytest.param(b'{"messages":[{"role":7,"content":{"a":1}},{"content":[1,null,"x"]},{}]}', id="odd messages"),
        pytest.param(b'{"messages":[{"role":"user","content":"\\ud83d"}]}', id="half a character"),
        pytest.param(b'{"messages":[{"role":"user","content":"a\\u0000b"}],"seed":1' + b"0" * 5_000 + b"}", id="NUL"),
        pytest.param(b'{"messages":[{"role":"user","content":' + b"[" * 400 + b"]" * 400 + b"}]}", id="rather deep"),
    ],
)
def test_json_that_makes_no_sense_goes_to_the_provider_who_says_so(product: Running, lane: Lane, body: bytes) -> None:
    lane.script(Reply([b'{"error":{"message":"no"}}'], 400))
    with product.http("nobody-in-particular") as http:
        response = http.post(CHAT, content=body, headers={"Authorization": f"Bearer {lane.key}", **JSON})
    assert (response.status_code, response.content) == (400, b'{"error":{"message":"no"}}')
    assert lane.last.body == body


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/memory/records"])
def test_a_body_that_is_too_large_is_413(stranded: Running, path: str) -> None:
    body = b'{"content":"' + b"x" * 2**20 + b'"}'
    with stranded.http() as http:
        error = error_of(http.post(path, content=body, headers=JSON), 413)
        assert http.get("/healthz").status_code == 200
    assert (error["type"], error["code"]) == ("invalid_request_error", "body_too_large")
    assert "server.max_body_mb" in error["message"]


@pytest.mark.parametrize("path", [CHAT, "/memory/records"])
def test_a_body_of_unknown_length_that_grows_too_large_is_413(stranded: Running, path: str) -> None:
    with stranded.http() as http:
        response = http.post(path, content=(b"x" * 65_536 for _ in range(17)), headers=JSON)
    assert error_of(response, 413)["code"] == "body_too_large"


# ── the provider cannot be reached ─────────────────────────────────────────────────────────────────────────────────
def test_an_unreachable_provider_is_502_and_the_ledger_says_so(stranded: Running, user: str) -> None:
    with stranded.http(user) as http:
        response = http.post(CHAT, content=HELLO, headers=JSON)
    error = error_of(response, 502)
    assert (error["type"], error["code"]) == ("api_error", "upstream_unreachable")
    assert "127.0.0.1" in error["message"]
    assert "upstream.base_url" in error["message"]
    account = stranded.ledger(response.headers["x-memory-request-id"], user)
    assert account["written"]["status"] == "failed"
    assert [one["reason"] for one in account["written"]["outcomes"]] == ["the provider could not be reached"]
    assert stranded.records(user) == []


def test_an_unreachable_provider_is_502_for_relayed_calls_and_streams_too(stranded: Running) -> None:
    streamed = HELLO.replace(b'"model"', b'"stream":true,"model"')
    with stranded.http() as http:
        for response in (http.get("/v1/models"), http.post(CHAT, content=streamed, headers=JSON)):
            assert error_of(response, 502)["code"] == "upstream_unreachable"


def test_the_sdk_reads_our_errors(stranded: Running) -> None:
    with stranded.client() as client, pytest.raises(openai.InternalServerError, match="cannot reach") as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_unreachable")


def test_memory_works_while_the_provider_does_not(stranded: Running, user: str) -> None:
    with stranded.http(user) as http:
        assert http.post("/memory/records", json={"content": "The user drinks tea."}).status_code == 201
    assert [record["content"] for record in stranded.records(user)] == ["The user drinks tea."]


# ── our own paths ──────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/models", "/memory", "/memory/nothing", "/chat/completions", "/healthz/"]
)
def test_unknown_paths_of_ours_are_404(product: Running, path: str) -> None:
    with product.http() as http:
        error = error_of(http.get(path), 404)
    assert error["code"] == "not_found"
    assert path in error["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/ui"),
    ],
)
def test_what_comes_later_is_501(product: Running, method: str, path: str) -> None:
    with product.http() as http:
        error = error_of(http.request(method, path), 501)
    assert (error["type"], error["code"]) == ("api_error", "not_supported_yet")
    assert "not supported yet" in error["message"]


def test_a_websocket_is_501(product: Running, lane: Lane) -> None:
    upgrade = {
        "Authorization": f"Bearer {lane.key}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    with product.http() as http:
        assert error_of(http.get("/v1/realtime?model=m", headers=upgrade), 501)["code"] == "not_supported_yet"
    assert lane.received == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/memory/records", {"GET", "HEAD", "POST"}),
        ("POST", "/memory/records/x", {"GET", "HEAD", "PATCH", "DELETE"}),
        ("DELETE", "/healthz", {"GET", "HEAD"}),
        ("GET", "/memory/search", {"POST"}),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_ones(
    product: Running, method: str, path: str, allowed: set[str]
) -> None:
    with product.http() as http:
        response = http.request(method, path)
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert set(response.headers["allow"].split(",")) == allowed


def test_bad_bodies_of_the_memory_api_name_the_field(product: Running, user: str) -> None:
    with product.http(user) as http:
        for body, code, param in [
            (b"{", "invalid_json", None),
            (b'{"content": ""}', "invalid_field", "content"),
            (b'{"content": "x", "kimd": "fact"}', "invalid_field", "kimd"),
        ]:
            error = error_of(http.post("/memory/records", content=body, headers=JSON), 400)
            assert (error["code"], error["param"]) == (code, param)


# ── the model inside ───────────────────────────────────────────────────────────────────────────────────────────────
def test_the_demo_model_answers_offline_and_refuses_what_is_no_conversation(stranded: Running, user: str) -> None:
    with stranded.http(user) as http:
        for body in ({}, {"messages": "hi"}, {"messages": [1], "stream": True}):
            error = error_of(http.post(CHAT, json={"model": "demo/echo", **body}), 400)
            assert error["param"] == "messages"
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "Hello there"}]}]
    with stranded.client(user=user) as client:
        whole = client.chat.completions.create(model="demo/echo", messages=messages)
        pieces = client.chat.completions.create(model="demo/echo", messages=messages, stream=True)
        streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert whole.choices[0].message.content == streamed
    assert streamed.startswith("You said: Hello there\n")


def test_nothing_of_this_was_an_internal_error(product: Running, stranded: Running) -> None:
    # A journal entry may be late on a busy machine; nothing else may go wrong.
    for running_product in (product, stranded):
        events = [json.loads(line) for line in running_product.errors if line.startswith("{")]
        assert [one for one in events if one["level"] == "error" and one.get("error_type") != "TimeoutError"] == []
        assert running_product.process.poll() is None
