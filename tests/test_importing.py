"""Readers of other products' files: what is read, what is left out, and the ids that make a repeat harmless."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import SidemirrorError
from proxy.importing import chatgpt, markdown, mem0, transcript
from proxy.importing.imported import Format, Imported, moment
from proxy.importing.reader import read
from proxy.importing.wire import as_conversations, as_records

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str, format_: Format | None = None) -> Imported:
    return read((SAMPLES / name).read_bytes(), name, format_, UTC)


def said(found: Imported) -> list[list[tuple[str, Any]]]:
    return [[(one["role"], one["content"]) for one in talk.messages] for talk in found.conversations]


# ── which format ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("name", "format_"),
    [("chatgpt.json", "chatgpt"), ("transcript.jsonl", "transcript"), ("mem0.json", "mem0"), ("notes.md", "markdown")],
)
def test_the_format_is_told_by_what_stands_in_the_file(name: str, format_: str) -> None:
    found = sample(name)
    assert found.format == format_
    assert found.problems == ()


@pytest.mark.parametrize("data", [b"[]", b"{}", b"42", b'{"a": 1}', b"plain words", b""])
def test_a_file_of_no_known_format_is_refused(data: bytes) -> None:
    with pytest.raises(SidemirrorError, match="--format"):
        read(data, "what.json", None, UTC)


def test_a_file_that_is_no_text_is_refused() -> None:
    with pytest.raises(SidemirrorError, match="UTF-8"):
        read(b"\xff\xfe", "what.md", None, UTC)


def test_a_byte_order_mark_is_no_part_of_the_file() -> None:
    assert read(b"\xef\xbb\xbf" + b'{"role": "user", "content": "hi"}', "t.jsonl", None, UTC).format == "transcript"


@given(st.binary(max_size=200))
def test_whatever_stands_in_a_file_it_is_read_or_refused(data: bytes) -> None:
    for format_ in ("chatgpt", "transcript", "mem0", "markdown"):
        try:
            found = read(data, "f", format_, UTC)
        except SidemirrorError:
            continue
        as_conversations(found)
        as_records(found, "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["mapping", "message", "author", "role", "content", "parts", "memory", "messages", "id"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_json_of_any_shape_is_read_or_refused(data: Any) -> None:
    text = json.dumps(data).encode()
    for format_ in ("chatgpt", "transcript", "mem0"):
        try:
            found = read(text, "f", format_, UTC)
        except SidemirrorError:
            continue
        as_conversations(found)
        as_records(found, "")


# ── ChatGPT ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_of_an_edited_conversation_the_branch_shown_last_is_read() -> None:
    english, chinese = said(sample("chatgpt.json"))
    assert english == [
        ("user", "I prefer dark mode because it's easier on the eyes."),
        ("assistant", "Noted.\n\nDark mode is easy on the eyes."),
        ("user", "I'm allergic to peanuts, so please skip them."),
        ("assistant", "No peanuts then."),
    ]
    assert chinese[0] == ("user", "我不吃辣，推荐一家餐厅吧。")


def test_conversations_keep_their_ids_titles_and_times() -> None:
    found = sample("chatgpt.json")
    first = found.conversations[0]
    assert (first.id, first.title) == ("6774b0a0-1111-8001-9c1d-0f0f0f0f0f01", "Dark mode")
    assert first.messages[0]["at"] == 1735700100.0
    assert "Dark mode" in first.place
    assert found.left_out == 1


def test_without_a_current_node_the_newest_leaf_ends_the_branch() -> None:
    data = json.loads((SAMPLES / "chatgpt.json").read_text())
    for entry in data:
        del entry["current_node"]
    assert said(chatgpt.read(data, "f")) == said(sample("chatgpt.json"))


def test_a_tree_that_bites_its_tail_ends() -> None:
    node: dict[str, Any] = {"message": None, "parent": "b", "children": []}
    data = [{"mapping": {"a": node, "b": {**node, "parent": "a"}}, "current_node": "a"}, 5]
    found = chatgpt.read(data, "f")
    assert (found.conversations, found.left_out, len(found.problems)) == ((), 1, 1)


# ── transcripts ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_transcript_is_read_line_by_line() -> None:
    found = sample("transcript.jsonl")
    by_id = {one.id: one for one in found.conversations}
    assert set(by_id) == {"support-1", "support-2", None}
    assert by_id["support-1"].messages[1]["at"] == "2025-05-04T09:00:00Z"
    # A message without a time of its own has that of its conversation.
    assert by_id["support-2"].messages[0]["at"] == "2025-06-01T08:00:00+08:00"
    assert by_id["support-2"].messages[1]["tool_calls"][0]["function"]["name"] == "get_weather"


def test_conversations_come_in_the_order_they_began_and_undated_ones_last() -> None:
    assert [one.id for one in sample("transcript.jsonl").conversations] == ["support-1", "support-2", None]


def test_messages_that_stand_alone_are_one_conversation() -> None:
    lines = ['{"role": "user", "content": "hi"}', "", '{"role": "assistant", "content": "hello"}', "nonsense", "[]"]
    found = transcript.read(lines, "t.jsonl")
    assert said(found) == [[("user", "hi"), ("assistant", "hello")]]
    assert [(problem.file, problem.line) for problem in found.problems] == [("t.jsonl", 4), ("t.jsonl", 5)]


# ── mem0 ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_memories_of_mem0_keep_owner_time_and_category() -> None:
    movie, taste, allergy = sample("mem0.json").statements
    assert movie.at == datetime(2025, 2, 26, 20, 1, 39, 10273, timezone(timedelta(hours=-8)))
    assert (movie.user_id, movie.tags, movie.kind) == ("alice", ("entertainment",), None)
    assert (taste.agent_id, taste.kind) == ("movie-agent", "preference")
    assert (allergy.session_id, allergy.content) == ("trip-1", "用户对花生过敏")


def test_memories_one_on_each_line_are_read_too() -> None:
    entries = json.loads((SAMPLES / "mem0.json").read_text())["results"]
    data = "\n".join(json.dumps(one) for one in entries).encode()
    found = read(data, "m.jsonl", None, UTC)
    assert [one.content for one in found.statements] == [one["memory"] for one in entries]
    assert [problem.where for problem in mem0.read_lines(["{}", "x"], "m").problems] == ["1", "2"]


def test_what_is_no_memory_is_told() -> None:
    found = mem0.read([{"memory": "likes tea"}, {"memory": " "}, 7], "m.json")
    assert [one.content for one in found.statements] == ["likes tea"]
    assert len(found.problems) == 2


# ── Markdown ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_items_of_a_list_are_statements() -> None:
    found = sample("notes.md")
    assert [one.content for one in found.statements] == [
        "Likes dark mode",
        "Drinks oat milk, not dairy",
        "Tools: pnpm, never npm",
        "Tools: Neovim",
        "不吃辣",
        "喜欢靠窗的座位",
        "用《新华字典》",
    ]
    assert found.left_out == 1


def test_headings_are_tags_and_dates_are_times() -> None:
    first, dated, *_, last = sample("notes.md").statements
    assert (first.tags, first.kind, first.place) == (("Preferences",), "preference", "notes.md:7")
    assert dated.at == datetime(2025, 3, 4, tzinfo=UTC)
    assert (last.tags, last.kind) == (("偏好",), "preference")


@pytest.mark.parametrize(
    ("line", "content"),
    [
        ("- 2026-01-02: moved to Lisbon", "moved to Lisbon"),
        ("- （2026-01-02）搬到了里斯本", "搬到了里斯本"),
        ("- 2026-13-45 is no date", "2026-13-45 is no date"),
        ("* uses `snake_case_names`", "uses snake_case_names"),
        ("3) three", "three"),
    ],
)
def test_an_item_says_what_it_says(line: str, content: str) -> None:
    assert [one.content for one in markdown.read([line], "f").statements] == [content]


@pytest.mark.parametrize("line", ["---", "-5 degrees", "**bold** words", "| a | b |", "1.5 litres a day"])
def test_what_looks_like_an_item_is_none(line: str) -> None:
    found = markdown.read([line], "f")
    assert (found.statements, found.left_out) == ((), 1)


# ── what is sent ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_ids_are_the_same_each_time_and_other_for_another_user() -> None:
    for name in ("mem0.json", "notes.md", "chatgpt.json", "transcript.jsonl"):
        once, again, other = (
            [line["id"] for _, line in as_records(sample(name), owner)] for owner in ("ada/", "ada/", "bob/")
        )
        assert once == again
        assert len(set(once)) == len(once)
        if name != "mem0.json":  # there the file names the user
            assert not set(once) & set(other)


def test_ids_that_a_memory_had_are_kept() -> None:
    first, _, third = (line for _, line in as_records(sample("mem0.json"), "ada/"))
    assert first["id"] == "892db2ae-06d9-49e5-8b3e-585ef9b85b8e"
    # One that is no UUID stays on record.
    assert third["source"]["request"] == "m-17"


def test_scope_is_by_kind_unless_it_is_given() -> None:
    scopes = [line["scope"] for _, line in as_records(sample("mem0.json"), "")]
    assert scopes == ["user", "user", "user"]
    assert {line["scope"] for _, line in as_records(sample("mem0.json"), "", scope="agent")} == {"agent"}


def test_of_conversations_as_they_are_the_users_words_are_kept_as_raw_turns() -> None:
    lines = [line for _, line in as_records(sample("transcript.jsonl"), "")]
    assert [line["content"] for line in lines] == [
        "My favorite editor is Neovim, by the way.",
        "查一下明天的天气",
        "我一般都早上七点去江边跑步",
    ]
    assert {(line["kind"], line["memory_type"], line["scope"], line["confidence"]) for line in lines} == {
        ("turn", "episodic", "agent", 0.3)
    }


def test_statements_for_the_policies_are_said_by_the_user_one_after_another() -> None:
    [(_, talk)] = as_conversations(sample("notes.md"))
    assert [one["role"] for one in talk["messages"]] == ["user", "assistant"] * 7
    assert talk["messages"][2]["at"] == "2025-03-04T00:00:00+00:00"


@pytest.mark.parametrize("value", ["yesterday", None, True, [], 1e30, float("nan")])
def test_what_is_no_time_is_none(value: Any) -> None:
    assert moment(value) is None
