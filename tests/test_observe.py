"""Hashes that hold when a client sends a message again, the part of a request that is new, and its events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.observe import Conversation, content_hash, conversation, events, parsed, question, session_link, tool_status
from proxy.types import Answer, Event, Message, ToolCall
from proxy.wire.chat import messages
from proxy.wire.collect import JsonCollector, StreamCollector
from proxy.wire.splice import parse

AT = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)
CALLS = (ToolCall("1", "search", '{"q": "北京"}'), ToolCall("2", "read", "{}"))


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, *calls: ToolCall) -> dict[str, Any]:
    raw = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": raw} if raw else {})}


def tool(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def system(text: str, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def talk(*raw: dict[str, Any]) -> Conversation:
    found = messages(parse(json.dumps({"messages": raw}).encode()))
    assert found is not None
    return conversation(found)


# ── hashes ─────────────────────────────────────────────────────────────────────────────────────────────────────────
SPACES = st.text(" \t\r\n\u3000", max_size=3)


@given(st.text(), SPACES, SPACES)
def test_the_hash_does_not_see_white_space_around_the_text(text: str, before: str, after: str) -> None:
    assert content_hash("user", before + text + after) == content_hash("user", text)


def test_the_hash_does_not_see_how_arguments_are_written() -> None:
    one, other = ToolCall("1", "search", '{"a":1,"b":2}'), ToolCall("1", "search", '{"b": 2, "a": 1}')
    assert content_hash("assistant", "", [one]) == content_hash("assistant", "", [other])


PIECES = st.text(st.sampled_from("a\0\1 1"), max_size=3)
CALL_LISTS = st.lists(st.builds(ToolCall, PIECES, PIECES, st.just("{}")), max_size=2).map(tuple)
HASHED = st.tuples(PIECES, PIECES.map(str.strip), CALL_LISTS, PIECES, st.lists(PIECES, max_size=2).map(tuple))


@given(HASHED, HASHED)
@example(("a", "b\0", (), "c", ()), ("a", "b", (), "\0c", ()))
@example(("a", "", (ToolCall("b", "c", "{}"),), "", ()), ("a", "", (), "", ("b", "c")))
def test_the_hash_tells_role_text_calls_and_parts_apart(one: Any, other: Any) -> None:
    assert (content_hash(*one) == content_hash(*other)) == (one == other)


def test_the_hash_differs_by_call_and_by_what_is_answered() -> None:
    hashes = {
        content_hash("assistant", "x"),
        content_hash("user", "x"),
        content_hash("assistant", "x", CALLS),
        content_hash("assistant", "x", CALLS[:1]),
        content_hash("assistant", "x", CALLS[::-1]),
        content_hash("tool", "x", tool_call_id="1"),
        content_hash("tool", "x", tool_call_id="2"),
    }
    assert len(hashes) == 7


def test_the_chain_does_not_see_system_messages() -> None:
    plain = talk(user("a"), assistant("b"), user("c"))
    noisy = talk(system("now 12:00"), user("a"), system("x", "developer"), assistant("b"), system("y"), user("c"))
    assert plain.chain == noisy.chain
    said = [message.chain for message in noisy.messages if message.role in ("user", "assistant")]
    assert said == [message.chain for message in plain.messages]


@given(st.lists(st.sampled_from([user("a"), user("b"), assistant("a"), tool("1", "a")]), min_size=1, max_size=5))
def test_the_chain_differs_wherever_a_message_does(raw: list[dict[str, Any]]) -> None:
    chains = [message.chain for message in talk(*raw).messages]
    assert len(set(chains)) == len(chains)
    changed = talk(*raw[:-1], user("c")).messages
    assert [message.chain for message in changed][:-1] == chains[:-1]
    assert changed[-1].chain not in chains


# ── the cut ────────────────────────────────────────────────────────────────────────────────────────────────────────
def texts(found: tuple[Message, ...]) -> list[str]:
    return [message.text for message in found]


def test_new_is_what_follows_the_last_assistant_message() -> None:
    found = talk(system("s"), user("a"), assistant("b"), user("c"), assistant("d"), system("s"), user("e"), user("f"))
    assert texts(found.new) == ["e", "f"]
    assert texts(found.earlier) == ["a", "b", "c"]
    assert found.context is not None
    assert found.context.text == "d"


def test_at_a_threads_start_everything_is_new() -> None:
    found = talk(system("s"), user("a"), user("b"))
    assert (texts(found.new), texts(found.earlier), found.context, found.link) == (["a", "b"], [], None, None)


def test_in_a_tool_loop_only_the_results_are_new() -> None:
    found = talk(user("a"), assistant(None, *CALLS), tool("1", "x"), tool("2", "y"))
    assert (texts(found.new), texts(found.earlier)) == (["x", "y"], ["a"])
    assert found.in_tool_loop
    assert found.newest_user is not None
    assert found.newest_user.text == "a"


def test_a_request_that_ends_with_an_assistant_message_says_nothing_new() -> None:
    found = talk(user("a"), assistant("Sure, "))
    assert (texts(found.new), found.in_tool_loop) == ([], True)


def test_no_messages_are_no_conversation() -> None:
    found = conversation(())
    assert (found.chain, found.newest_user, found.link, found.new, found.in_tool_loop) == ("", None, None, (), True)
    assert question(found) is None


# ── session links ──────────────────────────────────────────────────────────────────────────────────────────────────
ANSWER_TEXTS = st.text(max_size=20)
ANSWER_CALLS = st.lists(
    st.builds(ToolCall, st.text(min_size=1, max_size=4), st.text(min_size=1, max_size=4), st.just('{"a": 1}')),
    max_size=2,
    unique_by=lambda call: call.id,
)
STARTS = st.lists(
    st.sampled_from([system("s"), user("a"), user([{"type": "text", "text": "北京"}]), assistant("b"), tool("1", "r")]),
    min_size=1,
    max_size=4,
)


def relayed(text: str, calls: list[ToolCall], *, stream: bool) -> Answer:
    """The answer as a collector makes it from a provider's bytes."""
    message = assistant(text, *calls)
    if not stream:
        whole = JsonCollector()
        whole.feed(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode())
        return whole.answer(cut=False)
    message["tool_calls"] = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls", ()))]
    deltas = [{"content": letter} for letter in text] + [{"tool_calls": message["tool_calls"]}]
    collector = StreamCollector()
    for delta in deltas:
        collector.feed(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n")
    return collector.answer(cut=False)


@given(STARTS, ANSWER_TEXTS, ANSWER_CALLS, st.booleans(), st.sampled_from(["string", "parts", "trimmed", "null"]))
def test_the_request_that_carries_an_answer_back_has_the_answers_link(
    start: list[dict[str, Any]], text: str, calls: list[ToolCall], stream: bool, form: str
) -> None:
    answered = talk(*start).answer_link(relayed(text, calls, stream=stream))
    content: Any = [{"type": "text", "text": text}] if form == "parts" else text
    if form == "trimmed":
        content = text.strip()
    if form == "null" and not text:
        content = None
    results = [tool(call.id, "done") for call in calls]
    for following in (results, [*results, user("next")], [system("clock"), user("next")]):
        assert talk(*start, assistant(content, *calls), *following).link == answered


def test_the_link_hangs_on_the_user_message_and_the_answer() -> None:
    links = {
        talk(user("hi"), assistant("Hello!"), user("x")).link,
        talk(user("hey"), assistant("Hello!"), user("x")).link,
        talk(user("hi"), assistant("Hello there!"), user("x")).link,
        talk(assistant("Hello!"), user("x")).link,
    }
    assert len(links) == 4
    assert session_link("a", "b") != session_link("b", "a")


# ── the question ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "raw",
    [
        [user("a"), assistant(None, *CALLS), tool("1", "x")],
        [user("a"), assistant("b")],
        [user("")],
        [user("  \n")],
        [user([{"type": "image_url", "image_url": {"url": "x"}}])],
        [user(None)],
        [system("s")],
    ],
)
def test_there_is_no_question_in_tool_loops_or_without_text(raw: list[dict[str, Any]]) -> None:
    assert question(talk(*raw)) is None


@pytest.mark.parametrize(
    "text",
    [
        "Which port does the staging server listen on?",
        "上次部署的时候数据库端口冲突是怎么解决掉的？",
        "x" * 500,
    ],
)
def test_a_question_that_stands_by_itself_is_asked_alone(text: str) -> None:
    assert question(talk(user("Hello"), assistant("Hi"), user(f" {text}\n"))) == text


@pytest.mark.parametrize(
    "text",
    ["why?", "继续", "那上海呢？", "And what did he say about it?", "它是什么时候部署上去的呢？", "8080?", "それは？"],
)
def test_a_short_or_pointing_question_gets_the_exchange_before_it(text: str) -> None:
    found = question(talk(system("s"), user("old"), assistant("older"), user("Q"), assistant("A"), user(text)))
    assert found == f"Q\nA\n{text}"


def test_the_exchange_before_it_skips_messages_without_text() -> None:
    found = question(talk(user("Find it"), assistant(None, *CALLS), tool("1", "r"), assistant("Found"), user("why?")))
    assert found == "Find it\nFound\nwhy?"


def test_the_exchange_before_it_is_shortened() -> None:
    found = question(talk(user("Q" * 5_000), assistant("A" * 5_000), user("why?")))
    assert found == f"{'Q' * 600}\n{'A' * 600}\nwhy?"


def test_a_short_first_message_is_asked_alone() -> None:
    assert question(talk(system("s"), user("hi"))) == "hi"


def test_instructions_after_the_users_message_do_not_hide_the_question() -> None:
    assert question(talk(user("Which port is it again, please?"), system("Be brief."))) == (
        "Which port is it again, please?"
    )


# ── tool results ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "text",
    [
        "Error: no such file",
        "error: pathspec 'x' did not match",
        "  ValueError: bad input",
        "Traceback (most recent call last):\n  File ...",
        "NullPointerException: x",
        "fatal: not a git repository",
        "panic: runtime error",
        "ran the tests\nexit code: 1",
        "Process exited with code 127",
        "exited with status 2",
        "returncode=1",
        "错误：文件不存在",
        "失败：连接超时",
        "执行失败，请重试",
        "查询失败",
        "请求出错了：超时",
        "连接异常：被拒绝",
        "错误：0x80070005",
        "命令已运行，退出码：2",
        '{"error": "not found"}',
        '{"error": {"code": 1}}',
        '{"ok": false}',
        '{"success": false, "data": []}',
        '{"status": "ERROR"}',
        '{"status": "failed"}',
        '{"isError": true, "content": []}',
        '{"is_error": true}',
        '{"exit_code": 2, "stdout": ""}',
        '{"returncode": "1"}',
    ],
)
def test_failures_of_tools_are_recognised(text: str) -> None:
    assert tool_status(text, parsed(text)) == "error"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "no error",
        "0 errors",
        "All done, error handling works",
        "Error rate: 0.1 %",
        "error-free build",
        "Error: none",
        "errors: 0",
        "exit code: 0",
        "exited with status 0",
        "Process finished with exit code 0",
        "没有错误",
        "无错误",
        "失败：0，成功：10",
        "错误率为 0.1%",
        "失败次数统计",
        "退出码：0",
        "北京今天晴，二十度",
        "An article about how errors are made",
        '{"error": null, "data": 1}',
        '{"error": ""}',
        '{"error": []}',
        '{"ok": true}',
        '{"status": "ok"}',
        '{"status": null}',
        '{"status": 200}',
        '{"exit_code": 0}',
        '{"exit_code": null}',
        '{"returncode": "0"}',
        '{"text": "Error: x"}',
        '["Error"]',
        "{not json, error",
    ],
)
def test_results_that_are_no_failures_are_ok(text: str) -> None:
    assert tool_status(text, parsed(text)) == "ok"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (' {"a": [1, "北京"]}\n', {"a": [1, "北京"]}),
        ("[1, 2]", [1, 2]),
        ("42", None),
        ('"text"', None),
        ("", None),
        ("{", None),
        ("{'a': 1}", None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        (r'{"a": "\ud800"}', None),
        ('{"a": "\ud800"}', None),
        ("[" * 100_000, None),
    ],
)
def test_only_json_objects_and_lists_that_can_be_stored_are_data(text: str, data: Any) -> None:
    assert parsed(text) == data


# ── events ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def happened(found: Conversation, answer: Answer | None, user_text: str = "asked") -> list[Event]:
    return list(
        events(
            found.new,
            found.context,
            answer,
            at=AT,
            user_id="ada",
            agent_id="coder",
            turn=3,
            user_text=user_text,
        )
    )


def test_events_come_in_the_order_they_happened_and_know_whose_they_are() -> None:
    found = happened(talk(user("我喜欢茶"), user("and coffee")), Answer("Noted.", finish_reason="stop"))
    assert [(e.type, e.text, e.role, e.language) for e in found] == [
        ("user_message", "我喜欢茶", "user", "zh"),
        ("user_message", "and coffee", "user", "en"),
        ("assistant_message", "Noted.", "assistant", "en"),
        ("turn_end", "Noted.", "assistant", "en"),
    ]
    assert {(e.at, e.user_id, e.agent_id, e.turn, e.user_text) for e in found} == {(AT, "ada", "coder", 3, "asked")}
    assert [e.finish_reason for e in found] == [None, None, "stop", "stop"]


def test_events_carry_the_hash_of_their_message() -> None:
    thread = talk(user("a"))
    said, answered, _ = happened(thread, Answer("b"))
    assert said.message_hash == thread.messages[0].hash
    assert answered.message_hash == talk(user("a"), assistant("b")).messages[1].hash


def test_tool_results_are_paired_with_their_calls_in_any_order() -> None:
    thread = talk(user("q"), assistant(None, *CALLS), tool("2", '{"ok": false}'), tool("1", "sunny"), tool("9", "lost"))
    found = happened(thread, Answer("", CALLS[:1], "tool_calls"))
    assert [(e.type, e.tool, e.arguments, e.status, e.tool_call_id) for e in found] == [
        ("tool_result", "read", "{}", "error", "2"),
        ("tool_result", "search", '{"q": "北京"}', "ok", "1"),
        ("tool_result", "", None, "ok", "9"),
        ("turn_end", None, None, None, None),
    ]
    assert [e.data for e in found] == [{"ok": False}, None, None, None]
    assert found[-1].finish_reason == "tool_calls"


def test_an_event_without_text_takes_the_language_of_what_was_asked() -> None:
    (ended,) = happened(talk(user("")), Answer("", CALLS), user_text="北京天气怎么样")
    assert (ended.type, ended.language) == ("turn_end", "zh")


@pytest.mark.parametrize("answer", [None, Answer("half", status="aborted"), Answer("", status="failed")])
def test_only_a_whole_answer_makes_events(answer: Answer | None) -> None:
    assert [event.type for event in happened(talk(user("a")), answer)] == ["user_message"]


def test_of_a_long_message_the_ends_are_asked_for() -> None:
    found = question(talk(user("Summarise this. " + "blah " * 100_000 + "What did I say about Oslo?")))
    assert found is not None
    assert len(found) < 10_000
    assert found.startswith("Summarise this.")
    assert found.endswith("about Oslo?")
