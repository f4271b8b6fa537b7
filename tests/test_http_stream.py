"""Answers on their way, against the running product: bytes as they came and at once, and what is remembered of them."""

from __future__ import annotations

import gzip
import http.client
import json
import secrets
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.running import Running, eventually, running
from tests.scripted import Lane, Reply, ScriptedUpstream, chunk, completion, stream

QUESTION = "How do I get from the station to the harbour?"
ANSWER = "先坐地铁 to the old town 🚇，然后步行 ten minutes — that is all."
DONE = b"data: [DONE]\n\n"
RULES = """
version: 1
triggers:
  - id: said
    why: What the user says, for these tests.
    when: user_message
    extract: {verbatim: {of: message}}
    write: {memory_type: episodic, kind: said, confidence: 0.9}
    examples: [{user: hello there, expect: [{content: hello there}]}]
  - id: answered
    why: What was answered as a whole, for these tests.
    when: assistant_message
    extract: {verbatim: {of: message}}
    write: {memory_type: episodic, kind: summary, confidence: 0.9}
    examples: [{assistant: hello there, expect: [{content: hello there}]}]
"""


@pytest.fixture(scope="module")
def product(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product with rules that keep every question and every whole answer, word for word."""
    folder = tmp_path_factory.mktemp("stream")
    (folder / "policies").mkdir()
    (folder / "policies" / "words.yaml").write_text(RULES, encoding="utf-8")
    config = {"upstream": {"base_url": provider.url}, "recall": {"deadline_ms": 5000}}
    with running(folder, config=config) as started:
        yield started


def body(question: str = QUESTION, *, streamed: bool = True, **more: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": "m", "stream": streamed, "messages": [{"role": "user", "content": question}], **more}


@contextmanager
def asked(
    product: Running, lane: Lane, user: str, content: Mapping[str, Any], **headers: str
) -> Iterator[httpx.Response]:
    """Send a chat request; its answer is still to be read."""
    named = {"Authorization": f"Bearer {lane.key}", **headers}
    with (
        product.http(user) as http,
        http.stream("POST", "/v1/chat/completions", json=content, headers=named, timeout=10) as response,
    ):
        yield response


def remembered(product: Running, response: httpx.Response, user: str) -> tuple[list[str], list[str]]:
    """What was kept of a call: the user's words, and whole answers."""
    account = product.ledger(response.headers["x-memory-request-id"], user)
    assert account["written"]["status"] == "done"
    records = product.records(user)
    return (
        [record["content"] for record in records if record["kind"] == "said"],
        [record["content"] for record in records if record["kind"] == "summary"],
    )


def session_after(product: Running, lane: Lane, user: str, assistant: Mapping[str, Any]) -> str:
    """The session that a follow-up lands in, told only by the assistant's message that it sends back."""
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", **assistant},
        {"role": "user", "content": "And how long does the whole way take?"},
    ]
    with asked(product, lane, user, body(streamed=False, messages=messages)) as response:
        response.read()
        return str(response.headers["x-memory-session"])


def events(text: str = ANSWER, *, size: int = 5) -> list[bytes]:
    """A usual stream: role, some pieces of text, the finish reason."""
    pieces = [chunk({"content": text[at : at + size]}) for at in range(0, len(text), size)]
    return [chunk({"role": "assistant", "content": ""}), *pieces, chunk({}, finish="stop")]


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
USAGE_ONLY = b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [], "usage": USAGE}).encode() + b"\n\n"
SHAPES: dict[str, list[bytes]] = {
    "plain": [*events(), DONE],
    "comments": [b": OPENROUTER PROCESSING\n\n", *events(), b": ping\n\n", DONE],
    "usage-only last chunk": [*events(), USAGE_ONLY, DONE],
    "no end mark": events(),
    "usage-only last chunk, no end mark": [*events(), USAGE_ONLY],
    "reasoning before the text": [chunk({"reasoning_content": "hm…"}), chunk({"reasoning": "so"}), *events(), DONE],
    "two choices": [piece for event in events() for piece in (event, chunk({"content": "other"}, index=1))] + [DONE],
    "carriage returns": [event.replace(b"\n", b"\r\n") for event in [*events(), DONE]],
    "no space after the colon": [event.replace(b"data: ", b"data:") for event in [*events(), DONE]],
    "ids, names and retry lines": [b"retry: 5\nid: 7\nevent: message\n" + event for event in events()] + [DONE],
    "no blank line at the end": [*events(), b"data: [DONE]"],
    "unknown fields and nulls": [
        chunk({"content": ANSWER, "tool_calls": None, "refusal": None, "x": [1]}, usage=None, error=None, citations=[]),
        chunk({"content": None}, finish="stop"),
        DONE,
    ],
    "one write": [b"".join([*events(), DONE])],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_comes_as_sent_and_its_answer_is_remembered(
    product: Running, lane: Lane, user: str, shape: str
) -> None:
    lane.script(Reply(SHAPES[shape], headers={"Content-Type": "text/event-stream"}, chunked=True))
    with asked(product, lane, user, body()) as response:
        came = b"".join(response.iter_raw())
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["x-memory-status"] == "ok"
    assert came == b"".join(SHAPES[shape])
    assert remembered(product, response, user) == ([QUESTION], [ANSWER])
    session = response.headers["x-memory-session"]
    assert session_after(product, lane, user, {"content": ANSWER}) == session


def test_text_that_quotes_the_end_mark_does_not_end_the_answer(product: Running, lane: Lane, user: str) -> None:
    said = "A stream ends with data: [DONE] and then it is over, for good."
    rest = threading.Event()
    lane.script(stream(*events(said, size=31), hold={2: rest}))
    with asked(product, lane, user, body()) as response:
        reads = response.iter_raw()
        while b"[DONE]" not in next(reads):
            pass
        rest.set()
        assert b"".join(reads).endswith(DONE)
    assert remembered(product, response, user) == ([QUESTION], [said])


def test_a_stream_of_tool_calls_alone_leads_back_to_its_session(product: Running, lane: Lane, user: str) -> None:
    first, second = [
        {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": "ferry", "arguments": ""}}
        for index in (0, 1)
    ]
    lane.script(
        stream(
            chunk({"role": "assistant", "content": None, "tool_calls": [first]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"to": "海'}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '港"}'}}, second]}),
            chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
            chunk({}, finish="tool_calls"),
        )
    )
    with asked(product, lane, user, body()) as response:
        response.read()
    assert remembered(product, response, user) == ([QUESTION], [])
    calls = [
        {"id": f"call_{index}", "type": "function", "function": {"name": "ferry", "arguments": arguments}}
        for index, arguments in enumerate(['{"to": "海港"}', "{}"])
    ]
    session = session_after(product, lane, user, {"content": None, "tool_calls": calls})
    assert session == response.headers["x-memory-session"]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=60),
    end=st.sampled_from([b"\n", b"\r\n"]),
    packed=st.booleans(),
    cuts=st.sets(st.integers(1, 900), max_size=12),
    data=st.data(),
)
def test_wherever_the_provider_cuts_its_stream_bytes_and_memory_are_the_same(
    product: Running, lane: Lane, text: str, end: bytes, packed: bool, cuts: set[int], data: st.DataObject
) -> None:
    whole = b"".join([*events(text), DONE]).replace(b"\n", end)
    sent = gzip.compress(whole) if packed else whole
    places = [0, *sorted(cut for cut in cuts if cut < len(sent)), len(sent)]
    pieces = [sent[start:stop] for start, stop in pairwise(places)]
    headers = {"Content-Type": "text/event-stream", **({"Content-Encoding": "gzip"} if packed else {})}
    chunked = data.draw(st.booleans(), label="chunked")
    lane.script(Reply(pieces, headers=headers, chunked=chunked))
    user = f"user-{secrets.token_hex(6)}"
    with asked(product, lane, user, body()) as response:
        came = b"".join(response.iter_raw())
    assert came == sent
    assert remembered(product, response, user)[0] == [QUESTION]
    assert session_after(product, lane, user, {"content": text}) == response.headers["x-memory-session"]


@pytest.mark.parametrize("streamed", [True, False])
def test_each_read_is_forwarded_at_once(product: Running, lane: Lane, user: str, streamed: bool) -> None:
    released = [threading.Event() for _ in range(3)]
    pieces = SHAPES["plain"][1:4] if streamed else [b"\n", b" ", completion(ANSWER).body[0]]
    kind = "text/event-stream" if streamed else "application/json"
    hold = dict(enumerate(released))
    lane.script(Reply(pieces, headers={"Content-Type": kind}, chunked=True, hold=hold))
    with asked(product, lane, user, body(streamed=streamed)) as response:
        assert response.status_code == 200
        reads = response.iter_raw()
        for piece, event in zip(pieces, released, strict=True):
            event.set()
            assert next(reads) == piece


def test_json_of_known_length_is_forwarded_at_once_too(product: Running, lane: Lane, user: str) -> None:
    whole = completion(ANSWER).body[0]
    second = threading.Event()
    lane.script(Reply([whole[:40], whole[40:]], hold={1: second}))
    with asked(product, lane, user, body(streamed=False)) as response:
        reads = response.iter_raw()
        assert next(reads) == whole[:40]
        second.set()
        assert b"".join(reads) == whole[40:]
    assert remembered(product, response, user) == ([QUESTION], [ANSWER])


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_answers_are_relayed_undecoded_and_still_remembered(
    product: Running, lane: Lane, user: str, streamed: bool, encoding: str
) -> None:
    plain = SHAPES["plain"] if streamed else completion(ANSWER).body
    packer = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
    pieces = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in plain] + [packer.flush()]
    kind = "text/event-stream" if streamed else "application/json"
    lane.script(Reply(pieces, headers={"Content-Type": kind, "Content-Encoding": encoding}, chunked=streamed))
    with asked(
        product, lane, user, body(streamed=streamed), **{"Accept-Encoding": f"br, {encoding}, zstd"}
    ) as response:
        came = b"".join(response.iter_raw())
    assert lane.last.header("accept-encoding") == encoding
    assert response.headers["content-encoding"] == encoding
    assert came == b"".join(pieces)
    assert remembered(product, response, user) == ([QUESTION], [ANSWER])


def test_an_encoding_nobody_asked_for_passes_and_only_the_answer_is_not_remembered(
    product: Running, lane: Lane, user: str
) -> None:
    sent = bytes(range(256)) * 3
    lane.script(Reply([sent], headers={"Content-Type": "application/json", "Content-Encoding": "br"}))
    with asked(product, lane, user, body(streamed=False)) as response:
        came = b"".join(response.iter_raw())
    assert (came, response.headers["content-encoding"]) == (sent, "br")
    assert remembered(product, response, user) == ([QUESTION], [])


def test_damaged_compression_passes_as_it_came(product: Running, lane: Lane, user: str) -> None:
    sent = gzip.compress(b"".join(SHAPES["plain"]))[:60] + b"not gzip any more" * 9
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    lane.script(Reply([sent[:70], sent[70:]], headers=headers, chunked=True))
    with asked(product, lane, user, body()) as response:
        assert b"".join(response.iter_raw()) == sent
    assert remembered(product, response, user) == ([QUESTION], [])


def test_with_memory_off_the_client_may_have_any_encoding(product: Running, lane: Lane, user: str) -> None:
    headers = {"Accept-Encoding": "br, zstd;q=0.5", "X-Memory-Mode": "off"}
    with asked(product, lane, user, body(streamed=False), **headers) as response:
        response.read()
    assert lane.last.header("accept-encoding") == "br, zstd;q=0.5"
    assert response.headers["x-memory-status"] == "off"


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "overloaded", "type": "server_error", "code": 529}}\n\n',
        b'event: error\ndata: {"message": "overloaded"}\n\n',
    ],
)
def test_an_error_event_passes_and_half_an_answer_is_not_remembered_as_a_whole_one(
    product: Running, lane: Lane, user: str, event: bytes
) -> None:
    sent = [*events()[:3], event, DONE]
    lane.script(Reply(sent, headers={"Content-Type": "text/event-stream"}, chunked=True))
    with asked(product, lane, user, body()) as response:
        assert b"".join(response.iter_raw()) == b"".join(sent)
    assert remembered(product, response, user) == ([QUESTION], [])


def test_the_providers_usage_is_counted(product: Running, lane: Lane, user: str) -> None:
    def counted() -> float:
        with product.http() as http:
            lines = http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("sidemirror_usage_tokens_total{"))

    before = counted()
    lane.script(stream(*events(), USAGE_ONLY))
    with asked(product, lane, user, body()) as response:
        response.read()
    assert counted() > before


# ── someone goes away ──────────────────────────────────────────────────────────────────────────────────────────────
def check_aborted(product: Running, lane: Lane, user: str, response: httpx.Response, said: str) -> None:
    """The words of the user are kept, the piece of an answer is no answer, yet it leads back to its session."""
    assert remembered(product, response, user) == ([QUESTION], [])
    assert session_after(product, lane, user, {"content": said}) == response.headers["x-memory-session"]


def test_a_client_that_leaves_closes_the_upstream_within_a_second(product: Running, lane: Lane, user: str) -> None:
    never = threading.Event()
    lane.script(stream(*events(), hold={3: never}))
    with asked(product, lane, user, body()) as response:
        reads = response.iter_raw()
        came = next(reads)
        while came.count(b"\n\n") < 3:
            came += next(reads)
    assert lane.gone.wait(1.0)
    check_aborted(product, lane, user, response, ANSWER[:10])


def test_a_client_that_leaves_before_the_answer_begins_closes_the_upstream(
    product: Running, lane: Lane, user: str
) -> None:
    never = threading.Event()
    lane.script(stream(*events(), hold={-1: never}))
    leave_unanswered(product, lane, user, "/v1/chat/completions", json.dumps(body()).encode())
    assert lane.gone.wait(1.0)
    wait_for_words(product, user)


def test_a_client_that_leaves_before_a_plain_answer_closes_the_upstream(
    product: Running, lane: Lane, user: str
) -> None:
    never = threading.Event()
    lane.script(Reply(completion(ANSWER).body, hold={0: never}))
    leave_unanswered(product, lane, user, "/v1/chat/completions", json.dumps(body(streamed=False)).encode())
    assert lane.gone.wait(1.0)
    wait_for_words(product, user)


def test_a_client_of_a_relayed_call_that_leaves_closes_the_upstream(product: Running, lane: Lane, user: str) -> None:
    never = threading.Event()
    lane.script(Reply([b"{}"], hold={-1: never}))
    leave_unanswered(product, lane, user, "/v1/embeddings", b'{"input": "x"}')
    assert lane.gone.wait(1.0)


def leave_unanswered(product: Running, lane: Lane, user: str, path: str, data: bytes) -> None:
    """Send a request, and go once the provider has it."""
    connection = http.client.HTTPConnection(urlsplit(product.address).netloc, timeout=10)
    headers = {"Authorization": f"Bearer {lane.key}", "X-Memory-User": user, "Content-Type": "application/json"}
    connection.request("POST", path, data, headers)
    assert lane.started.acquire(timeout=10)
    connection.close()


def wait_for_words(product: Running, user: str) -> None:
    """The user's words are kept, and no answer."""
    records = eventually(lambda: product.records(user))
    assert [(record["kind"], record["content"]) for record in records] == [("said", QUESTION)]


def test_a_client_that_leaves_at_the_end_mark_leaves_a_whole_answer(product: Running, lane: Lane, user: str) -> None:
    end = threading.Event()
    shape = SHAPES["plain"]
    lane.script(Reply(shape, headers={"Content-Type": "text/event-stream"}, chunked=True, hold={len(shape): end}))
    with asked(product, lane, user, body()) as response:
        came = b""
        for piece in response.iter_raw():
            came += piece
            if came.endswith(DONE):
                break
    assert lane.gone.wait(1.0)
    assert remembered(product, response, user) == ([QUESTION], [ANSWER])


def test_when_the_provider_cuts_a_stream_the_clients_connection_is_cut_too(
    product: Running, lane: Lane, user: str
) -> None:
    cut = threading.Event()
    lane.script(stream(*events()[:3], done=False, cut=True, hold={3: cut}))
    with asked(product, lane, user, body()) as response:
        read_then_cut(response, b"".join(events()[:3]), cut)
    check_aborted(product, lane, user, response, ANSWER[:10])


@pytest.mark.parametrize("length", [True, False])
def test_when_the_provider_cuts_plain_json_the_clients_connection_is_cut_too(
    product: Running, lane: Lane, user: str, length: bool
) -> None:
    cut = threading.Event()
    whole = completion(ANSWER).body[0]
    headers = {"Content-Type": "application/json", **({"Content-Length": str(len(whole))} if length else {})}
    lane.script(Reply([whole[:50]], headers=headers, chunked=True, cut=True, hold={1: cut}))
    with asked(product, lane, user, body(streamed=False)) as response:
        read_then_cut(response, whole[:50], cut)
    assert remembered(product, response, user) == ([QUESTION], [])


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/speech"])
def test_when_the_provider_cuts_a_relayed_answer_the_clients_connection_is_cut_too(
    product: Running, lane: Lane, path: str
) -> None:
    cut = threading.Event()
    lane.script(Reply([b"half"], chunked=True, cut=True, hold={1: cut}))
    with (
        product.http(Authorization="") as http,
        http.stream("POST", path, headers={"Authorization": f"Bearer {lane.key}"}, content=b"x") as response,
    ):
        read_then_cut(response, b"half", cut)


def read_then_cut(response: httpx.Response, piece: bytes, cut: threading.Event) -> None:
    """Read what is there, have the provider cut, and see the connection break rather than end."""
    reads = response.iter_raw()
    came = b""
    while len(came) < len(piece):
        came += next(reads)
    assert came == piece
    cut.set()
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        next(reads)


def test_a_retry_after_an_answer_that_broke_off_is_remembered_once(product: Running, lane: Lane, user: str) -> None:
    cut = threading.Event()
    lane.script(stream(*events()[:3], done=False, cut=True, hold={3: cut}), stream(*events()))
    with asked(product, lane, user, body()) as broken:
        read_then_cut(broken, b"".join(events()[:3]), cut)
    with asked(product, lane, user, body()) as response:
        response.read()
    assert response.headers["x-memory-session"] == broken.headers["x-memory-session"]
    assert remembered(product, response, user) == ([QUESTION], [ANSWER])


def test_nobody_who_left_is_an_error_of_ours(product: Running) -> None:
    logged = [json.loads(line) for line in product.errors if line.startswith("{")]
    # A journal entry may be late on a busy machine; nothing else may go wrong.
    assert [one for one in logged if one["level"] == "error" and one.get("error_type") != "TimeoutError"] == []
    assert not any("Traceback" in line for line in product.errors)
