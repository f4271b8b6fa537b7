"""The Chat Completions dialect: reading a conversation of any shape, and placing a block without touching the rest."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.types import ToolCall
from proxy.wire.chat import Placement, content_text, messages, place, placed_apart, renamed, tool_calls
from proxy.wire.splice import parse, well_formed

BLOCK = '<recalled_memories>\n- [fact] "北京" \\ 🙂\n</recalled_memories>'
PLACEMENTS: tuple[Placement, ...] = ("system", "user")

TEXTS = st.text(max_size=12)
PARTS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url, "detail": "low"}}, TEXTS),
    st.just({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
)
CONTENTS = st.one_of(TEXTS, st.none(), st.lists(PARTS, max_size=3))
ROLES = st.sampled_from(["system", "developer", "user", "user", "assistant", "tool"])
EXTRAS = st.dictionaries(st.sampled_from(["name", "x_unknown", "tool_call_id", "cache_control"]), TEXTS, max_size=2)


@st.composite
def plain_messages(draw: st.DrawFn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": draw(ROLES), **draw(EXTRAS)}
    if draw(st.booleans()):
        message["content"] = draw(CONTENTS)
    return message


BODIES = st.fixed_dictionaries(
    {"model": st.just("gpt-x"), "messages": st.lists(plain_messages(), min_size=1, max_size=5)},
    optional={"metadata": st.dictionaries(TEXTS, TEXTS, max_size=2), "seed": st.integers(), "x_future": CONTENTS},
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=10,
)
ODD_MESSAGES = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "name", "function_call", "refusal"]), JSON
)


def encoded(value: Any, *, ascii_only: bool = True) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only).encode()


def without_block(body: Any, block: str) -> Any:
    """The body with the block cut out again, wherever it was put; the placing must have been one of the known ways."""
    body = copy.deepcopy(body)
    found = 0
    for index, message in reversed(list(enumerate(body["messages"]))):
        content = message.get("content")
        if content == block and set(message) == {"role", "content"} and message["role"] == "system" and index == 0:
            del body["messages"][index]
            found += 1
        elif isinstance(content, str) and content.endswith(block):
            message["content"] = content[: -len(block)].removesuffix("\n\n")
            found += 1
        elif isinstance(content, list) and content and content[-1] == {"type": "text", "text": block}:
            content.pop()
            found += 1
    assert found == 1
    return body


def without_empty_content(body: Any) -> Any:
    """Null, missing and empty content are one, once a block stood there; and nothing is left of a system message that
    held nothing else."""
    body = copy.deepcopy(body)
    for message in body["messages"]:
        if not message.get("content") and not isinstance(message.get("content"), list):
            message["content"] = None
    if body["messages"] and body["messages"][0] == {"role": "system", "content": None}:
        del body["messages"][0]
    return body


@given(BODIES, st.sampled_from(PLACEMENTS), st.booleans())
def test_json_in_is_json_out_once_the_block_is_cut_out(body: Any, placement: Placement, ascii_only: bool) -> None:
    if not ascii_only:
        body = json.loads(well_formed(json.dumps(body, ensure_ascii=False)))
    placed = json.loads(place(parse(encoded(body, ascii_only=ascii_only)), BLOCK, placement))
    assert without_empty_content(without_block(placed, BLOCK)) == without_empty_content(body)


@given(BODIES, st.sampled_from(PLACEMENTS))
def test_placing_inserts_one_piece_of_text_and_moves_nothing(body: Any, placement: Placement) -> None:
    before = json.dumps(body, indent=1)
    after = place(parse(before.encode()), BLOCK, placement).decode()
    start = next((i for i, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), len(before))
    end = 0
    while end < len(before) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    # Whatever was there is there still, but for a null that the block took the place of.
    assert before[start : len(before) - end] in ("", "null")


@given(st.text(min_size=1), st.sampled_from(PLACEMENTS))
@example('"}]}\\', "system")
@example("\ud83d alone", "user")
@example("🙂\u2028\x00\x7f", "system")
def test_any_text_can_be_the_block(block: str, placement: Placement) -> None:
    for content in ("Hi", "", None, [], [{"type": "text", "text": "Hi"}]):
        body = {"messages": [{"role": "system", "content": content}, {"role": "user", "content": content}]}
        placed = json.loads(place(parse(encoded(body)), block, placement))
        held = placed["messages"][0 if placement == "system" else 1]["content"]
        assert (held if isinstance(held, str) else held[-1]["text"]).endswith(well_formed(block))


def contents(body: bytes) -> list[Any]:
    return [(message["role"], message.get("content")) for message in json.loads(body)["messages"]]


def test_the_block_stands_after_the_text_of_the_last_leading_system_message() -> None:
    body = parse(
        b'{"messages":[{"role":"system","content":"A"},{"role":"developer","content":"B"},'
        b'{"role":"user","content":"C"},{"role":"system","content":"D"}]}'
    )
    assert contents(place(body, "M", "system")) == [
        ("system", "A"),
        ("developer", "B\n\nM"),
        ("user", "C"),
        ("system", "D"),
    ]


def test_without_a_leading_system_message_a_new_one_is_put_at_the_top() -> None:
    rest = b' {"role":"user","content":"C"},{"role":"system","content":"D"}]}'
    placed = place(parse(b'{"messages": [' + rest), "M", "system")
    assert placed == b'{"messages": [{"role":"system","content":"M"},' + rest


def test_user_placement_takes_the_newest_user_message_even_in_a_tool_loop() -> None:
    body = parse(
        b'{"messages":[{"role":"user","content":"A"},{"role":"user","content":"B"},'
        b'{"role":"assistant","content":null},{"role":"tool","tool_call_id":"1","content":"C"}]}'
    )
    assert contents(place(body, "M", "user"))[1] == ("user", "B\n\nM")


def test_user_placement_without_a_user_message_falls_back_to_the_system_prompt() -> None:
    body = parse(b'{"messages":[{"role":"system","content":"A"}]}')
    assert contents(place(body, "M", "user")) == [("system", "A\n\nM")]


@pytest.mark.parametrize("content", ['{"a":1}', "5", "true"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_content_of_an_unknown_kind_is_kept_for_the_provider_to_refuse(content: str, placement: Placement) -> None:
    text = f'{{"messages":[{{"role":"system","content":{content}}},{{"role":"user","content":{content}}}]}}'
    placed = place(parse(text.encode()), "M", placement).decode()
    assert placed == text.replace('[{"role":"system"', '[{"role":"system","content":"M"},{"role":"system"', 1)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('{"role":"system"}', '{"role":"system","content":"M"}'),
        ('{"role":"system","content":null}', '{"role":"system","content":"M"}'),
        ('{"role":"system","content": null }', '{"role":"system","content": "M" }'),
        ('{"role":"system","content":""}', '{"role":"system","content":"M"}'),
        ('{"role":"system","content":[]}', '{"role":"system","content":[{"type":"text","text":"M"}]}'),
        ('{"role":"system","content":["a" ]}', '{"role":"system","content":["a" ,{"type":"text","text":"M"}]}'),
        ('{"content":"lost","role":"system","content":"A"}', '{"content":"lost","role":"system","content":"A\\n\\nM"}'),
        ('{"role":"system","cont\\u0065nt":"\\u0041"}', '{"role":"system","cont\\u0065nt":"\\u0041\\n\\nM"}'),
    ],
)
def test_every_shape_of_content_takes_the_block(message: str, expected: str) -> None:
    body = f'{{"seed": 1.10,"messages":[{message}],"seed": 1e400}}'
    assert place(parse(body.encode()), "M", "system").decode() == body.replace(message, expected)


def test_an_empty_block_leaves_the_body_as_it_came() -> None:
    data = b' { "messages" : [ { "role" : "user" } ] } '
    assert place(parse(data), "", "system") == data


def test_a_body_as_deep_as_can_be_read_can_be_edited_and_understood() -> None:
    for depth in range(100, 1_000, 3):
        inner = b"[" * depth + b"]" * depth
        data = b'{"messages":[{"role":"user","content":[{"type":"x","deep":' + inner + b"}]}]}"
        try:
            body = parse(data)
        except ValueError:
            break
        assert messages(body) is not None
        assert BLOCK in json.loads(place(body, BLOCK, "system"))["messages"][0]["content"]


# ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────────
@given(st.one_of(JSON, st.lists(st.one_of(ODD_MESSAGES, JSON), max_size=4), st.lists(ODD_MESSAGES, max_size=4)))
def test_messages_of_any_shape_never_raise(raw: Any) -> None:
    found = messages(parse(encoded({"messages": raw})))
    readable = isinstance(raw, list) and bool(raw) and all(isinstance(item, dict) for item in raw)
    assert (found is not None) == readable
    for message in found or ():
        for text in (message.text, message.role, message.name or "", message.tool_call_id or ""):
            text.encode()  # nothing that a store or an embedder could choke on


@pytest.mark.parametrize("body", [b"{}", b'{"messages":null}', b'{"messages":[]}', b'{"messages":["hi"]}'])
def test_what_is_no_list_of_messages_is_none(body: bytes) -> None:
    assert messages(parse(body)) is None


def read(*raw: dict[str, Any]) -> Any:
    found = messages(parse(encoded({"messages": list(raw)})))
    assert found is not None
    return found


def test_texts_of_parts_are_joined_and_other_parts_only_tell_messages_apart() -> None:
    first = {"type": "image_url", "image_url": {"url": "data:1"}}
    second = {"type": "image_url", "image_url": {"url": "data:2"}}
    one, other, none = read(
        {"role": "user", "content": ["a", {"type": "text", "text": "b"}, first]},
        {"role": "user", "content": ["a", {"type": "text", "text": "b"}, second]},
        {"role": "user", "content": "a\nb"},
    )
    assert one.text == other.text == none.text == "a\nb"
    assert len({one.hash, other.hash, none.hash}) == 3


def test_large_parts_leave_a_small_mark() -> None:
    _, marks = content_text([{"type": "image_url", "image_url": {"url": "x" * 1_000_000}}])
    assert len(marks) == 1
    assert len(marks[0]) < 500


def test_parts_too_deep_to_be_written_out_leave_a_mark_too() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert content_text([{"deep": deep}, "text"]) == ("text", ("too deep",))


def test_tool_results_are_paired_with_the_names_of_their_calls() -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}},
        {"id": "2", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}},
    ]
    _, asked, second, first, unknown = read(
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "tool", "tool_call_id": "1", "content": "one", "name": "other"},
        {"role": "tool", "tool_call_id": "9", "content": "nine", "name": "nine"},
    )
    assert asked.tool_calls == (ToolCall("1", "search", "{}"), ToolCall("2", "read", '{"a":1}'))
    assert (first.name, second.name, unknown.name) == ("search", "read", "nine")


def test_a_call_without_an_id_names_no_other_message() -> None:
    _, user = read(
        {"role": "assistant", "tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]},
        {"role": "user", "content": "thanks"},
    )
    assert user.name is None


def test_a_legacy_function_message_is_a_tool_result() -> None:
    (message,) = read({"role": "function", "name": "search", "content": "found"})
    assert (message.role, message.name, message.text) == ("tool", "search", "found")


@pytest.mark.parametrize(
    "raw", [None, "x", {}, [None], ["x"], [{"id": "1"}], [{"function": "x"}], [{"function": None}], [[{}]]]
)
def test_malformed_tool_calls_are_left_out(raw: Any) -> None:
    assert tool_calls(raw) == ()


def test_tool_calls_keep_what_is_text_in_them() -> None:
    assert tool_calls([{"id": 1, "function": {"name": ["x"], "arguments": {"a": 1}}}]) == (ToolCall("", "", ""),)


def test_half_characters_are_made_whole() -> None:
    (message,) = messages(parse(rb'{"messages":[{"role":"user","content":"\ud83d \ud83d\ude00"}]}')) or ()
    assert message.text == "\ufffd 😀"


# ── models of `models:` ────────────────────────────────────────────────────────────────────────────────────────────
def test_the_block_goes_to_the_first_user_message_where_there_is_no_system_role() -> None:
    body = parse(
        b'{"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"user","content":"b"}]}'
    )
    assert [m["content"] for m in parse(place(body, "B", "first_user")).value["messages"]] == ["S", "a\n\nB", "b"]


def test_a_user_message_is_made_where_there_is_none() -> None:
    body = parse(b'{"messages":[{"role":"assistant","content":"a"}]}')
    first, _ = parse(place(body, "B", "first_user")).value["messages"]
    assert first == {"role": "user", "content": "B"}


@pytest.mark.parametrize("text", [b'{"model":"x","a":1.0}', b'{"a":1.0}', b'{"model": 5}'])
def test_a_name_is_replaced_in_place(text: bytes) -> None:
    body = parse(text)
    assert body.edited(renamed(body, "y")) == text.replace(b'"x"', b'"y"').replace(b" 5", b' "y"')
    assert renamed(parse(b'{"model":"y"}'), "y") == []


def apart(body: bytes, block: str, tails: dict[int, str], *, takes_system: bool = True) -> list[Any]:
    parsed = parse(body)
    return contents(parsed.edited(placed_apart(parsed, block, tails, takes_system=takes_system)))


TALK = (
    b'{"messages":[{"role":"system","content":"S"},{"role":"user","content":"A"},{"role":"assistant","content":"B"},'
    b'{"role":"user","content":[{"type":"text","text":"C"}]}]}'
)


def test_a_block_and_pieces_stand_apart() -> None:
    assert apart(TALK, "M", {1: "a", 3: "c"}) == [
        ("system", "S\n\nM"),
        ("user", "A\n\na"),
        ("assistant", "B"),
        ("user", [{"type": "text", "text": "C"}, {"type": "text", "text": "c"}]),
    ]


def test_pieces_without_a_block_make_no_system_message() -> None:
    body = b'{"messages":[{"role":"user","content":"A"},{"role":"user","content":null}]}'
    assert apart(body, "", {0: "a", 1: "b"}) == [("user", "A\n\na"), ("user", "b")]
    assert apart(body, "", {}) == [("user", "A"), ("user", None)]


def test_without_a_system_role_the_first_user_message_takes_block_and_piece() -> None:
    assert apart(TALK, "M", {1: "a", 3: "c"}, takes_system=False)[:2] == [("system", "S"), ("user", "A\n\nM\n\na")]
    assert apart(TALK, "M", {3: "c"}, takes_system=False)[1] == ("user", "A\n\nM")
    assert apart(b'{"messages":[{"role":"assistant","content":"B"}]}', "M", {}, takes_system=False) == [
        ("user", "M"),
        ("assistant", "B"),
    ]


def test_a_piece_for_a_message_that_takes_no_text_is_left_out() -> None:
    body = b'{"messages":[{"role":"user","content":5},{"role":"user","content":"A"}]}'
    assert apart(body, "M", {0: "x", 7: "y"}, takes_system=False) == [("user", 5), ("user", "A\n\nM")]


@given(BODIES, st.booleans(), st.booleans(), st.sets(st.integers(0, 6)))
def test_the_clients_messages_are_the_same_once_block_and_pieces_are_cut_out(
    body: Any, with_block: bool, takes_system: bool, places: set[int]
) -> None:
    parsed = parse(encoded(body))
    at = sorted(
        index for index in places if index < len(body["messages"]) and body["messages"][index]["role"] == "user"
    )
    tails = {index: f"{BLOCK} {index}" for index in at}
    edits = placed_apart(parsed, BLOCK if with_block else "", tails, takes_system=takes_system)
    after = json.loads(parsed.edited(edits))
    text = json.dumps(after)
    for index in at:
        assert text.count(encoded(tails[index]).decode()[1:-1]) == 1
    for piece in [*tails.values(), *([BLOCK] if with_block else [])]:
        after = _without(after, piece, len(body["messages"]))
    assert without_empty_content(after) == without_empty_content(body)


def _without(body: Any, piece: str, length: int) -> Any:
    """The body without a piece that ends a message, or is one where there were so many before."""
    for index, message in enumerate(body["messages"]):
        content = message.get("content")
        if index == 0 and content == piece and len(body["messages"]) > length:
            del body["messages"][0]
            return body
        if isinstance(content, str) and (content == piece or content.endswith("\n\n" + piece)):
            message["content"] = content.removesuffix(piece).removesuffix("\n\n")
            return body
        if isinstance(content, list) and content and content[-1] == {"type": "text", "text": piece}:
            content.pop()
            return body
        if isinstance(content, list) and content and content[-1].get("text", "").endswith("\n\n" + piece):
            content[-1]["text"] = content[-1]["text"].removesuffix("\n\n" + piece)
            return body
    raise AssertionError(f"{piece} is not where it should be")
