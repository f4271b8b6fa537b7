"""The raw door, against the running product: everything under /v1 that has no memory goes and comes as it is."""

from __future__ import annotations

import http.client
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from tests.running import Running, running
from tests.scripted import Lane, Reply, ScriptedUpstream

JSON = {"Content-Type": "application/json"}


@dataclass
class CannedProvider:
    """Answers each connection with bytes that no HTTP library would write, and keeps what it was sent."""

    socket: socket.socket
    answers: list[bytes] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def serve(self) -> None:
        """Serve until the socket is shut."""
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                received = b""
                while not received.endswith(b"\r\n\r\n") and (piece := connection.recv(65_536)):
                    received += piece
                self.received.append(received)
                connection.sendall(self.answers.pop(0))


@pytest.fixture(scope="module")
def canned() -> Iterator[CannedProvider]:
    """A provider whose bytes the tests write themselves."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        provider = CannedProvider(listening)
        thread = threading.Thread(target=provider.serve, daemon=True)
        thread.start()
        yield provider
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.fixture(scope="module")
def product(
    provider: ScriptedUpstream, canned: CannedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """The product with the scripted provider for OpenAI's paths, and the canned one for Anthropic's."""
    config = {"upstream": {"base_url": provider.url, "anthropic_base_url": canned.address}}
    with running(tmp_path_factory.mktemp("relay"), config=config) as started:
        yield started


@pytest.fixture
def http_client(product: Running, lane: Lane) -> Iterator[httpx.Client]:
    """A plain client with this test's key."""
    with product.http() as client:
        client.headers = httpx.Headers({"Authorization": f"Bearer {lane.key}"})
        yield client


@contextmanager
def bare(
    product: Running, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
) -> Iterator[http.client.HTTPResponse]:
    """A request whose target is sent as it is written here."""
    connection = http.client.HTTPConnection(urlsplit(product.address).netloc, timeout=10)
    try:
        connection.request(method, target, body, dict(headers))
        yield connection.getresponse()
    finally:
        connection.close()


# ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_models_are_the_providers(product: Running, lane: Lane) -> None:
    lane.script(Reply([b'{"object": "list", "data": [{"id": "gpt-x", "object": "model"}]}']))
    with product.client(lane.key) as client:
        assert [model.id for model in client.models.list()] == ["gpt-x"]
    assert (lane.last.method, lane.last.path_qs, lane.last.body) == ("GET", "/v1/models", b"")
    assert lane.last.header("content-length") is None
    assert lane.last.header("transfer-encoding") is None


@pytest.mark.parametrize(
    "target",
    [
        "/v1/files?limit=2&order=desc",
        "/v1/files/a%2Fb%20c/content",
        "/v1/files/%E5%8C%97%E4%BA%AC?purpose=%e5%8c%97+x%20y%2B&empty=&=v&&a;b=[1]",
        "/v1/files?q=%zz&r=%25zz&tilde=%7e~&quote='\"|{}",
        "/v1/files/a//b/../c/./d?x=1?y=2",
        "/v1/",
    ],
)
def test_paths_and_queries_keep_their_escapes(product: Running, lane: Lane, target: str) -> None:
    with bare(product, "GET", target, {"Authorization": f"Bearer {lane.key}"}) as response:
        assert response.status == 200
    assert lane.last.path_qs == target


def test_stored_completions_are_read_from_the_provider(http_client: httpx.Client, lane: Lane) -> None:
    http_client.get("/v1/chat/completions?limit=1")
    http_client.delete("/v1/chat/completions/chatcmpl-1")
    assert [(one.method, one.path_qs) for one in lane.received] == [
        ("GET", "/v1/chat/completions?limit=1"),
        ("DELETE", "/v1/chat/completions/chatcmpl-1"),
    ]


def test_a_multipart_upload_arrives_byte_for_byte(product: Running, lane: Lane) -> None:
    content = bytes(range(256)) * 1_000
    lane.script(Reply([b'{"id": "file-1", "object": "file"}']))
    with product.client(lane.key) as client:
        assert client.files.create(file=("北京.bin", content), purpose="user_data").id == "file-1"
    assert content in lane.last.body
    kind = lane.last.header("content-type") or ""
    assert kind.startswith("multipart/form-data; boundary=")
    assert lane.last.body.startswith(b"--" + kind.partition("boundary=")[2].encode())
    assert lane.last.header("content-length") == str(len(lane.last.body))


def test_an_upload_of_unknown_length_is_passed_on_in_chunks(http_client: httpx.Client, lane: Lane) -> None:
    http_client.post("/v1/files", content=iter([b"a" * 70_000, b"b" * 70_000]))
    assert lane.last.body == b"a" * 70_000 + b"b" * 70_000
    assert lane.last.header("transfer-encoding") == "chunked"


def test_a_compressed_body_stays_compressed(http_client: httpx.Client, lane: Lane) -> None:
    packed = b"\x1f\x8b not really gzip"
    http_client.post("/v1/embeddings", content=packed, headers={"Content-Encoding": "gzip"})
    assert (lane.last.body, lane.last.header("content-encoding")) == (packed, "gzip")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method_is_passed_on_with_its_body(http_client: httpx.Client, lane: Lane, method: str) -> None:
    lane.script(Reply([b'{"deleted": true}'], headers=JSON))
    response = http_client.request(method, "/v1/vector_stores/vs_1", content=b'{"a":1}', headers=JSON)
    assert response.json() == {"deleted": True}
    assert (lane.last.method, lane.last.body) == (method, b'{"a":1}')


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_no_body_stays_no_body(http_client: httpx.Client, lane: Lane, method: str) -> None:
    assert http_client.request(method, "/v1/batches/b_1/cancel").status_code == 200
    assert (lane.last.method, lane.last.body) == (method, b"")


def test_headers_go_up_as_sent_but_not_ours_nor_those_of_one_connection(product: Running, lane: Lane) -> None:
    sent = {
        "Authorization": f"Bearer {lane.key}",
        "OpenAI-Organization": "org-1",
        "OpenAI-Beta": "assistants=v2",
        "Accept-Encoding": "br;q=1.0, zstd",
        "X-Odd": '  a,b ; c="d"',
        "X-Memory-User": "anna",
        "X-Memory-Anything": "else",
        "Connection": "keep-alive, X-Private",
        "X-Private": "1",
        "Proxy-Authorization": "Basic eA==",
    }
    with bare(product, "GET", "/v1/models", sent) as response:
        assert response.status == 200
    came = {name.lower(): value for name, value in lane.last.headers}
    assert came == {
        "host": urlsplit(lane.url).netloc,
        "authorization": f"Bearer {lane.key}",
        "openai-organization": "org-1",
        "openai-beta": "assistants=v2",
        "accept-encoding": "br;q=1.0, zstd",
        "x-odd": 'a,b ; c="d"',
    }


def test_headers_that_are_not_utf8_keep_their_letters(product: Running, lane: Lane) -> None:
    sent = {"Authorization": f"Bearer {lane.key}", "X-Title": "Café"}
    with bare(product, "GET", "/v1/models", sent) as response:
        assert response.status == 200
    assert lane.last.header("x-title") == "Café"


# ── answers ────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("status", [201, 202, 206, 400, 401, 403, 404, 409, 422, 429, 500, 503, 529])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/chat/completions"])
def test_status_body_and_headers_come_as_they_are(
    http_client: httpx.Client, lane: Lane, status: int, path: str
) -> None:
    body = b'{"error":{"message":"\xe5\x8c\x97","type":"x","code":null,"more":[1e400]}}\n'
    headers = CIMultiDict(
        {
            "Content-Type": "application/problem+json; charset=utf-8",
            "Retry-After": "7",
            "retry-after-ms": "6500",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-tokens": "6m0s",
            "x-request-id": "req_1",
            "x-should-retry": "false",
            "Server": "provider/1",
            "Date": "Mon, 02 Nov 2026 08:00:00 GMT",
        }
    )
    headers.add("Set-Cookie", "__cf_bm=a; path=/; HttpOnly")
    headers.add("Set-Cookie", "_cfuvid=b; path=/")
    lane.script(Reply([body], status=status, headers=headers))
    question = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    response = http_client.post(path, content=question, headers=JSON)
    assert (response.status_code, response.content) == (status, body)
    ours = [(name, value) for name, value in response.headers.multi_items() if not name.startswith("x-memory-")]
    wanted = [(name.lower(), value) for name, value in headers.items()] + [("content-length", str(len(body)))]
    assert sorted(ours) == sorted(wanted)


def test_the_sdk_sees_the_providers_error(product: Running, lane: Lane) -> None:
    lane.script(Reply([b'{"error":{"message":"slow down","code":"rate"}}'], 429, {**JSON, "Retry-After": "9"}))
    with product.client(lane.key) as client, pytest.raises(openai.RateLimitError) as caught:
        client.embeddings.create(model="e", input="x")
    assert caught.value.response.headers["retry-after"] == "9"
    assert caught.value.code == "rate"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("path", ["/v1/files/f/content", "/v1/chat/completions"])
def test_redirects_are_the_clients_business(http_client: httpx.Client, lane: Lane, status: int, path: str) -> None:
    lane.script(Reply([b"moved"], status, {"Location": "https://elsewhere.example/v1/x?sig=%2B", **JSON}))
    response = http_client.post(path, content=b'{"messages":[{"role":"user","content":"hi"}]}', headers=JSON)
    assert (response.status_code, response.content) == (status, b"moved")
    assert response.headers["location"] == "https://elsewhere.example/v1/x?sig=%2B"
    assert len(lane.received) == 1


def test_head_has_the_length_and_no_body(http_client: httpx.Client, lane: Lane) -> None:
    lane.script(Reply(headers={"Content-Type": "application/pdf", "Content-Length": "1234"}, chunked=True))
    response = http_client.head("/v1/files/f/content")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == "1234"
    assert lane.last.method == "HEAD"
    assert http_client.get("/v1/models").status_code == 200


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_end_at_once(http_client: httpx.Client, lane: Lane, status: int) -> None:
    lane.script(Reply([], status, {"ETag": 'W/"1"', "Cache-Control": "private"}, chunked=True))
    response = http_client.get("/v1/models", headers={"If-None-Match": 'W/"1"'})
    assert (response.status_code, response.content) == (status, b"")
    assert response.headers["etag"] == 'W/"1"'
    assert "content-type" not in response.headers
    assert lane.last.header("if-none-match") == 'W/"1"'
    assert http_client.get("/v1/models").status_code == 200


def test_audio_comes_as_bytes(http_client: httpx.Client, lane: Lane) -> None:
    sound = [secrets.token_bytes(1_000) for _ in range(3)]
    lane.script(Reply(sound, headers={"Content-Type": "audio/mpeg"}, chunked=True))
    assert http_client.post("/v1/audio/speech", content=b"{}").content == b"".join(sound)


def test_an_http_1_0_client_gets_the_whole_answer(product: Running, lane: Lane) -> None:
    lane.script(Reply([b"one", b"two"], headers=JSON, chunked=True))
    with socket.create_connection(tuple(urlsplit(product.address).netloc.split(":")), timeout=10) as connection:  # type: ignore[arg-type]
        connection.sendall(f"GET /v1/models HTTP/1.0\r\nAuthorization: Bearer {lane.key}\r\n\r\n".encode())
        came = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = came.partition(b"\r\n\r\n")
    assert (b"chunked" in head.lower(), body) == (False, b"onetwo")


token = st.text("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12)
value = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
NAMED_BY_HTTP = {"connection", "keep-alive", "te", "trailer", "upgrade", "transfer-encoding", "proxy-connection"}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    status=st.sampled_from([200, 201, 400, 404, 418, 429, 500, 502, 599]),
    pieces=st.lists(st.binary(min_size=1, max_size=5_000), max_size=5),
    more=st.lists(st.tuples(token.map(lambda name: f"x-{name}"), value), max_size=6),
    kind=st.sampled_from(["application/json", "text/event-stream", "application/octet-stream", "TEXT/plain;x=1"]),
    chunked=st.booleans(),
    path=st.sampled_from(["/v1/responses", "/v1/chat/completions"]),
)
def test_whatever_the_provider_answers_is_what_the_client_gets(
    product: Running,
    lane: Lane,
    status: int,
    pieces: Sequence[bytes],
    more: Sequence[tuple[str, str]],
    kind: str,
    chunked: bool,
    path: str,
) -> None:
    headers = CIMultiDict([*more, ("Content-Type", kind)])
    lane.script(Reply(pieces, status, headers, chunked=chunked))
    sent = {"Authorization": f"Bearer {lane.key}", "X-Memory-User": "prop", **JSON}
    with bare(product, "POST", path, sent, b'{"messages":[{"role":"user","content":"x"}]}') as response:
        assert (response.status, response.read()) == (status, b"".join(pieces))
        came = [(name.lower(), value) for name, value in response.getheaders()]
    for name, said in headers.items():
        assert came.count((name.lower(), said.strip())) >= 1
    names = [name for name, _ in came if name.startswith("x-") and not name.startswith("x-memory-")]
    assert sorted(names) == sorted(name.lower() for name, _ in more)


# ── the other provider ─────────────────────────────────────────────────────────────────────────────────────────────
def test_messages_go_to_anthropics_base_with_their_key(product: Running, canned: CannedProvider) -> None:
    canned.answers.append(b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\nrequest-id: req_9\r\n\r\n{"type":"message"}'[:-1])
    sent = {"x-api-key": "sk-ant-1", "anthropic-version": "2023-06-01", "X-Memory-User": "anna", "Accept": "*/*"}
    with bare(product, "GET", "/v1/messages/batches?limit=1", sent) as response:
        assert response.read() == b'{"type":"message"'
        assert response.getheader("request-id") == "req_9"
    head = canned.received[-1].lower()
    assert head.startswith(b"get /v1/messages/batches?limit=1 http/1.1\r\n")
    assert b"\r\nx-api-key: sk-ant-1\r\n" in head
    assert b"\r\nanthropic-version: 2023-06-01\r\n" in head
    assert b"x-memory" not in head
    assert b"authorization" not in head


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens"])
def test_paths_of_anthropics_dialect_go_there_and_lookalikes_do_not(
    product: Running, canned: CannedProvider, lane: Lane, path: str
) -> None:
    canned.answers.append(b"HTTP/1.1 529 Overloaded\r\nContent-Length: 2\r\nretry-after: 3\r\n\r\n{}")
    with bare(product, "GET", path, {"x-api-key": lane.key}) as response:
        assert (response.status, response.reason, response.getheader("retry-after")) == (529, "Overloaded", "3")
    with bare(product, "GET", path.replace("messages", "messages2"), {"x-api-key": lane.key}) as response:
        assert response.status == 200
    assert lane.last.path_qs == path.replace("messages", "messages2")


def test_a_provider_that_speaks_oddly_is_still_understood(product: Running, canned: CannedProvider) -> None:
    canned.answers.append(
        b"HTTP/1.1 200 \xc3\xa9t\xc3\xa9\r\nX-Latin: Caf\xe9\r\nX-Utf8: Caf\xc3\xa9\r\n"
        b"X-Empty:\r\nConnection: close\r\n\r\nto the end"
    )
    with bare(product, "GET", "/v1/messages", {}) as response:
        assert response.read() == b"to the end"
        assert (response.getheader("x-empty"), response.getheader("content-length")) == ("", None)
        letters = [(response.getheader(name) or "").encode("latin-1").decode() for name in ("x-latin", "x-utf8")]
        assert letters == ["Café", "Café"]


def test_a_provider_that_does_not_speak_http_is_a_502(product: Running, canned: CannedProvider) -> None:
    canned.answers.append(b"SSH-2.0-OpenSSH_9.6\r\n")
    with bare(product, "GET", "/v1/messages", {}) as response:
        assert response.status == 502
        assert b'"upstream_unreachable"' in response.read()
