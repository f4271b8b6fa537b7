"""The answer is the same however the bytes were cut up, and whatever shape the provider gave its stream."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.types import Answer, ToolCall
from proxy.wire import collect
from proxy.wire.collect import JsonCollector, StreamCollector

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "x_future": {"a": 1}}


def chunk(
    delta: Any = None, finish: str | None = None, index: int = 0, *, usage: Any = None, **more: Any
) -> dict[str, Any]:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish, "logprobs": None}
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [choice], "usage": usage, **more}


def usage_only() -> dict[str, Any]:
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}


def sse(*events: Any, done: bool = True, end: str = "\n", prefix: str = "data: ") -> bytes:
    lines = [prefix + (event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)) for event in events]
    return "".join(line + end * 2 for line in [*lines, *([f"{prefix}[DONE]"] if done else [])]).encode(
        "utf-8", "surrogatepass"
    )


def fed(pieces: Iterable[bytes]) -> StreamCollector:
    collector = StreamCollector()
    for piece in pieces:
        collector.feed(piece)
    return collector


def collected(pieces: Iterable[bytes], *, cut: bool = False) -> Answer:
    return fed(pieces).answer(cut=cut)


def call(index: int | None, call_id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    item: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        item["index"] = index
    if call_id is not None:
        item |= {"id": call_id, "type": "function"}
    if name is not None:
        item["function"]["name"] = name
    return item


HELLO = [chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"})]


# ── any cutting ────────────────────────────────────────────────────────────────────────────────────────────────────
def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


EVENTS = st.one_of(
    st.text(max_size=6).map(lambda text: chunk({"content": text})),
    st.sampled_from(["[DONE]", "data: [DONE]", "\n\ndata: [DONE]\n\n", "\r"]).map(
        lambda text: chunk({"content": text})
    ),
    st.text(max_size=4).map(lambda text: chunk({"reasoning_content": text})),
    st.text(max_size=4).map(lambda text: chunk({"content": text}, index=1)),
    st.builds(lambda i, text: chunk({"tool_calls": [call(i, arguments=text)]}), st.integers(0, 2), st.text(max_size=4)),
    st.builds(lambda i: chunk({"tool_calls": [call(i, f"call_{i}", f"tool_{i}")]}), st.integers(0, 2)),
    st.sampled_from([chunk(finish="stop"), usage_only(), {"error": {"message": "boom"}}, "not json", "{", "[1]", ""]),
)
LINES = st.builds(
    lambda event, prefix, end: (prefix + (event if isinstance(event, str) else json.dumps(event)) + end).encode(),
    EVENTS,
    st.sampled_from(["data: ", "data:", "data:  ", "data:\t", ": comment ", "event: message", "id: 1\ndata:"]),
    st.sampled_from(["\n\n", "\r\n\r\n", "\r\r", "\n"]),
)


@settings(max_examples=300)
@given(
    st.lists(LINES, max_size=12),
    st.sampled_from([b"", b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data:[DONE]", b'data: {"cho']),
    st.lists(st.integers(0, 2_000), max_size=12),
)
@example([b'data: {\r\ndata: "choices": [{"delta": {"content": "a"}}]}\r\n\r\n'], b"", [8])
def test_any_cutting_gives_the_same_answer(lines: list[bytes], last: bytes, cuts: list[int]) -> None:
    data = b"".join(lines) + last
    whole = fed([data])
    with patch.object(collect, "_PARSE_AT_BYTES", 0):  # else so little is parsed in one go
        cut_up = fed(pieces(data, cuts))
        bytewise = fed(data[number : number + 1] for number in range(len(data)))
    assert whole.finished == cut_up.finished == bytewise.finished
    assert whole.answer(cut=False) == cut_up.answer(cut=False) == bytewise.answer(cut=False)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8), st.data())
def test_all_text_arrives(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    stream = sse(*(chunk({"content": text}) for text in texts), chunk(finish="stop"), usage_only(), end=end)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    answer = collected(pieces(stream, cuts))
    assert answer == Answer("".join(texts), (), "stop", "complete", USAGE)


# ── shapes ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_usage_only_last_chunk_is_kept() -> None:
    answer = collected([sse(*HELLO, chunk(finish="stop"), usage_only())])
    assert answer == Answer("Hello", finish_reason="stop", usage=USAGE)


def test_an_answer_of_reasoning_only_has_no_text_and_is_complete() -> None:
    answer = collected([sse(chunk({"reasoning_content": "hm"}), chunk({"reasoning": "hm"}), chunk(finish="stop"))])
    assert answer == Answer("", finish_reason="stop")


def test_parallel_tool_calls_are_put_together_from_their_pieces() -> None:
    answer = collected(
        [
            sse(
                chunk({"role": "assistant", "content": None, "tool_calls": [call(0, "a", "search")]}),
                chunk({"tool_calls": [call(0, arguments='{"q":')]}),
                chunk({"tool_calls": [call(1, "b", "read"), call(0, arguments=' "x"}')]}),
                chunk({"tool_calls": [call(1, arguments='{"p')]}),
                chunk({"tool_calls": [call(1, arguments='":1}')]}),
                chunk(finish="tool_calls"),
            )
        ]
    )
    assert answer.tool_calls == (ToolCall("a", "search", '{"q": "x"}'), ToolCall("b", "read", '{"p":1}'))
    assert (answer.text, answer.finish_reason, answer.status) == ("", "tool_calls", "complete")


@pytest.mark.parametrize("index", [None, 0])
def test_whole_calls_without_indexes_of_their_own_stay_apart(index: int | None) -> None:
    first, second = call(index, "a", "search", "{}"), call(index, "b", "search", '{"n":2}')
    answer = collected([sse(chunk({"tool_calls": [first]}), chunk({"tool_calls": [second]}), chunk(finish="stop"))])
    assert answer.tool_calls == (ToolCall("a", "search", "{}"), ToolCall("b", "search", '{"n":2}'))


def test_a_tool_name_repeated_with_every_piece_is_one_name() -> None:
    parts = [call(0, "a", "search", piece) for piece in ("{", '"q"', ":1}")]
    answer = collected([sse(*(chunk({"tool_calls": [part]}) for part in parts))])
    assert answer.tool_calls == (ToolCall("a", "search", '{"q":1}'),)


def test_of_several_choices_the_first_counts() -> None:
    mixed = [
        chunk({"content": "A1"}, index=0),
        chunk({"content": "B1"}, index=1),
        {"choices": [*chunk({"content": "B2"}, index=1)["choices"], *chunk({"content": "A2"}, index=0)["choices"]]},
        chunk({"tool_calls": [call(0, "b", "other")]}, index=1),
        chunk(finish="length", index=1),
        chunk(finish="stop", index=0),
    ]
    assert collected([sse(*mixed)]) == Answer("A1A2", finish_reason="stop")


def test_a_finish_reason_makes_an_answer_complete_without_done() -> None:
    assert collected([sse(*HELLO, chunk(finish="stop"), done=False)]).status == "complete"


def test_done_makes_an_answer_complete_without_a_finish_reason() -> None:
    assert collected([sse(*HELLO)]) == Answer("Hello")


def test_a_stream_that_just_ends_is_aborted_with_what_was_said() -> None:
    assert collected([sse(*HELLO, done=False)]) == Answer("Hello", status="aborted")


def test_a_cut_in_the_middle_of_a_chunk_keeps_what_came_before() -> None:
    data = sse(*HELLO, done=False)
    assert collected([data[:-12]], cut=True) == Answer("Hel", status="aborted")


def test_a_last_chunk_without_its_line_end_counts() -> None:
    assert collected([sse(*HELLO, done=False).rstrip()]).text == "Hello"


def test_a_client_that_leaves_after_done_leaves_a_complete_answer() -> None:
    assert collected([sse(*HELLO, chunk(finish="stop"))], cut=True).status == "complete"
    assert collected([sse(*HELLO, chunk(finish="stop"), done=False)], cut=True).status == "aborted"


@pytest.mark.parametrize(
    "error",
    [
        b'data: {"error": {"message": "overloaded", "code": 529}}\n\n',
        b'event: error\ndata: {"message": "overloaded"}\n\n',
        b"event:error\r\ndata: overloaded\r\n\r\n",
        b'data: {"choices": [], "error": "overloaded"}\n\ndata: [DONE]\n\n',
    ],
)
def test_an_error_event_makes_the_answer_failed(error: bytes) -> None:
    answer = collected([sse(*HELLO, done=False), error])
    assert (answer.text, answer.status) == ("Hello", "failed")


def test_an_empty_error_field_is_none() -> None:
    assert collected([sse(*HELLO, chunk(finish="stop", error=None))]).status == "complete"


def test_comments_other_fields_and_blank_lines_are_passed_over() -> None:
    noise = b": OPENROUTER PROCESSING\n\n\n\nretry: 100\nid: 7\nevent: message\n"
    assert collected([noise, sse(*HELLO[:2], done=False), noise, sse(HELLO[2])]).text == "Hello"


@pytest.mark.parametrize("prefix", ["data: ", "data:", "data:  ", "data:\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_white_space_and_line_ends_may_be_any(prefix: str, end: str) -> None:
    answer = collected([sse(*HELLO, chunk(finish="stop"), prefix=prefix, end=end)])
    assert answer == Answer("Hello", finish_reason="stop")


def test_an_event_may_have_several_data_lines() -> None:
    event = json.dumps(chunk({"content": "Hello"}), indent=1)
    data = b"".join(b"data: " + line.encode() + b"\r\n" for line in event.splitlines()) + b"\r\n"
    assert collected([data, sse(chunk({"content": "!"}))]).text == "Hello!"


def test_events_without_a_blank_line_between_them_are_read() -> None:
    assert collected([sse(*HELLO).replace(b"\n\n", b"\n")]) == Answer("Hello")


def test_a_broken_event_does_not_spoil_the_next() -> None:
    assert collected([sse("{oops", *HELLO)]).text == "Hello"


@pytest.mark.parametrize(
    "event",
    [
        "null",
        "5",
        "[]",
        "{}",
        '{"choices": null}',
        '{"choices": [null, 1]}',
        '{"choices": [{"delta": 5}]}',
        '{"choices": [{"delta": {"tool_calls": [null, {}, {"function": 3, "index": "x"}], "content": 7}}]}',
        '{"choices": [{"finish_reason": 3}], "usage": "none"}',
        "[" * 5_000,
        '{"a": ' * 5_000,
    ],
)
def test_events_of_an_odd_shape_never_raise(event: str) -> None:
    assert collected([sse(event, *HELLO)]).text == "Hello"


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hello"}]
    assert collected([sse(chunk({"content": parts}))]).text == "Hello"


def test_a_character_cut_between_two_chunks_is_put_together() -> None:
    data = rb'data: {"choices":[{"delta":{"content":"\ud83d"}}]}' + b"\n\n"
    data += rb'data: {"choices":[{"delta":{"content":"\ude00 \ud800"}}]}' + b"\n\n"
    assert collected([data]).text == "😀 \ufffd"


def test_a_number_past_any_float_does_not_lose_its_event() -> None:
    digits = "9" * 5_000
    assert collected([sse(f'{{"created": {digits}, "choices": [{{"delta": {{"content": "Hi"}}}}]}}')]).text == "Hi"


# ── the end mark ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("mark", [b"data: [DONE]\n\n", b"data:[DONE]", b"data:  [DONE]\r\n\r\n"])
def test_the_end_mark_is_seen_wherever_it_is_cut(mark: bytes) -> None:
    for before in (b"", sse(*HELLO, done=False)):
        for after in (b"", b": a comment that is rather long, longer than the mark itself\n\n"):
            for at in range(len(mark)):
                assert fed([before + mark[:at]]).finished == (b"[DONE]" in mark[:at])
                assert fed([before + mark[:at], mark[at:] + after]).finished


@pytest.mark.parametrize("text", ["[DONE]", "data: [DONE]", "\ndata: [DONE]\n\n", "a [DONE]"])
def test_an_answer_that_says_done_is_not_taken_for_the_end(text: str) -> None:
    said, end = sse(chunk({"content": text}), done=False), sse(chunk({"content": "!"}), chunk(finish="stop"))
    assert not fed([said]).finished
    collector = fed([said, end])
    assert collector.finished
    assert collector.answer(cut=False).text == f"{text}!"


# ── size ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_hundred_thousand_chunks_are_read_in_linear_time() -> None:
    event = sse(chunk({"content": "x"}), done=False)
    started = time.process_time()
    answer = collected([event] * 100_000)
    assert time.process_time() - started < 5
    assert len(answer.text) == 100_000


def test_one_endless_line_is_read_in_linear_time() -> None:
    start, end = json.dumps(chunk({"content": "@"})).encode().split(b"@")
    started = time.process_time()
    answer = collected([b"data: " + start, *[b"x" * 1_000] * 30_000, end + b"\n\n"])
    assert time.process_time() - started < 5
    assert len(answer.text) == 30_000_000


# ── without a stream ───────────────────────────────────────────────────────────────────────────────────────────────
def whole(body: Any, *, cut: bool = False) -> Answer:
    collector = JsonCollector()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    for piece in pieces(data, [3, 10]):
        collector.feed(piece)
    assert not collector.finished
    return collector.answer(cut=cut)


def completion(message: Any, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": USAGE, **more}


def test_a_json_answer_is_read_whole() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]
    answer = whole(completion({"role": "assistant", "content": "Hello", "tool_calls": calls}))
    assert answer == Answer("Hello", (ToolCall("a", "search", "{}"),), "stop", "complete", USAGE)


def test_a_json_answer_in_parts_is_read_whole() -> None:
    assert whole(completion({"content": [{"type": "text", "text": "Hello"}]})).text == "Hello"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "no"}}, "failed"),
        (completion({"content": "x"}, error={"message": "no"}), "failed"),
        (b"", "aborted"),
        (b"<html>", "aborted"),
        (b'{"choices": [', "aborted"),
        ([], "aborted"),
        ({"choices": []}, "aborted"),
        ({"choices": [None]}, "aborted"),
        ({"choices": [{"message": None}]}, "aborted"),
        (completion({}, finish=3), "complete"),
    ],
)
def test_a_json_answer_that_is_none_has_a_status_that_says_so(body: Any, status: str) -> None:
    assert whole(body) == Answer(status=status, usage=whole(body).usage)  # type: ignore[arg-type]


def test_a_json_answer_that_was_cut_is_aborted() -> None:
    assert whole(completion({"content": "Hello"}), cut=True) == Answer(status="aborted")
