"""Reading a JSON object with the places of its values, and editing it without rewriting it."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.wire.splice import Edit, NotJson, array_items, object_members, parse, quoted, well_formed

SPACE = st.text(" \t\n\r", max_size=3)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.sampled_from(["1.10", "-0", "-0.0", "1e400", "-1e400", "1E+2", "0.1e-7", "9" * 5_000, f"-{'8' * 5_000}"]),
)
STRINGS = st.one_of(
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=True)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    ),
    st.sampled_from([r'"\ud800"', r'"a\udfffb"', r'"\ud83d\ude00"', r'"\/\b\f\u0000"', '"}],{["', r'"\\"', r'"\""']),
)
SCALARS = st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null"]))


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    items = [f"{draw(SPACE)}{draw(values)}{draw(SPACE)}" for _ in range(draw(st.integers(0, 3)))]
    return f"[{','.join(items) or draw(SPACE)}]"


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    keys = st.one_of(STRINGS, st.sampled_from(['"messages"', r'"mess\u0061ges"', '"a"']))
    items = [
        f"{draw(SPACE)}{draw(keys)}{draw(SPACE)}:{draw(SPACE)}{draw(values)}{draw(SPACE)}"
        for _ in range(draw(st.integers(0, 4)))
    ]
    return f"{{{','.join(items) or draw(SPACE)}}}"


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(arrays(inner), objects(inner)), max_leaves=8)
BODIES = st.builds("{}{}{}".format, SPACE, objects(VALUES), SPACE)


def loads(text: str) -> Any:
    """What json.loads says, integers past Python's limit aside."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= 4_000 else float(digits))


@given(BODIES)
def test_the_value_is_what_json_loads_reads(text: str) -> None:
    # Compared as text: 1 is not 1.0 and 0 is not False, and half characters stay as they are.
    assert repr(parse(text.encode()).value) == repr(loads(text))


@given(BODIES)
def test_every_place_holds_its_value(text: str) -> None:
    for span in parse(text.encode()).members.values():
        assert repr(loads(text[span.start : span.end])) == repr(span.value)


@given(BODIES)
def test_no_edit_leaves_every_byte(text: str) -> None:
    assert parse(text.encode()).edited([]) == text.encode()


@given(BODIES, st.data())
def test_an_edit_changes_nothing_but_its_place(text: str, data: st.DataObject) -> None:
    body = parse(text.encode())
    if not body.members:
        return
    key = data.draw(st.sampled_from(sorted(body.members, key=repr)))
    span = body.members[key]
    new = data.draw(VALUES)
    edited = body.edited([Edit(span.start, span.end, new)])
    assert edited == (text[: span.start] + new + text[span.end :]).encode()
    again = parse(edited)
    assert repr(again.value) == repr({**body.value, key: loads(new)})


@given(BODIES)
def test_edits_may_come_in_any_order(text: str) -> None:
    body = parse(text.encode())
    edits = [Edit(span.start, span.end, str(number)) for number, span in enumerate(body.members.values())]
    edited = body.edited(edits)
    assert edited == body.edited(edits[::-1])
    assert parse(edited).value == {key: number for number, key in enumerate(body.members)}


@given(st.builds('{{"messages":{}}}'.format, arrays(VALUES)))
def test_items_of_an_array_are_found_in_their_places(text: str) -> None:
    body = parse(text.encode())
    items = list(array_items(body.text, body.members["messages"].start))
    assert repr([item.value for item in items]) == repr(body.value["messages"])
    assert all(repr(loads(text[item.start : item.end])) == repr(item.value) for item in items)


@given(st.binary(max_size=40))
@example(b"")
@example(b"\xef\xbb\xbf{}")
@example(b'{"a":' + b"[" * 100_000)
@example(b'{"a":' + b'{"a":' * 100_000)
def test_arbitrary_bytes_raise_not_json_and_nothing_else(data: bytes) -> None:
    try:
        value = parse(data).value
    except NotJson:
        return
    assert repr(value) == repr(loads(data.decode()))


@given(BODIES, st.data())
def test_damaged_bodies_raise_not_json_and_nothing_else(text: str, data: st.DataObject) -> None:
    damaged = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b"}", b"]", b",", b'"', b":", b"\\", b"\xff", b"\x00", b"1", b"NaN", b"\xc3"])
        )
        if not damaged:
            break
    try:
        value = parse(bytes(damaged)).value
    except NotJson:
        return
    assert repr(value) == repr(loads(damaged.decode()))


@given(BODIES)
def test_a_truncated_body_is_refused(text: str) -> None:
    whole = text.rstrip().encode()
    for end in range(0, len(whole), max(1, len(whole) // 50)):
        with pytest.raises(NotJson):
            parse(whole[:end])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "[]",
        "null",
        '"a"',
        "1",
        "{",
        "}",
        "{}x",
        "{}{}",
        "{,}",
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        '{"a":1 "b":2}',
        '{"a":[1,]}',
        '{"a":[,1]}',
        "{'a':1}",
        "{a:1}",
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":-Infinity}',
        '{"a":[NaN]}',
        '{"a":01}',
        '{"a":+1}',
        '{"a":.5}',
        '{"a":1.}',
        '{"a":"\t"}',
        '{"a\n":1}',
        r'{"a":"\x41"}',
        r'{"a":"\u12"}',
        '{"a":"b}',
        '{"a":tru}',
        '{"a":1}// comment',
        '{"a":1\xa0}',
    ],
)
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        parse(text.encode())


@pytest.mark.parametrize("data", [b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', '{"a":1}'.encode("utf-16")])
def test_what_is_not_utf_8_is_refused(data: bytes) -> None:
    with pytest.raises(NotJson):
        parse(data)


def test_a_refusal_says_what_is_wrong_and_where() -> None:
    with pytest.raises(NotJson, match="not UTF-8 \\(byte 6\\)"):
        parse(b'{"a":"\xff"}')
    with pytest.raises(NotJson, match="a comma is missing at character 7"):
        parse(b'{"a":1 "b":2}')
    with pytest.raises(NotJson, match="extra text at character 2"):
        parse(b"{} {}")


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_too_deep_nesting_is_refused_as_such(opening: str) -> None:
    with pytest.raises(NotJson, match="too deep"):
        parse(f'{{"a":{opening * 200_000}'.encode())


def test_the_last_of_a_repeated_key_counts() -> None:
    body = parse(b'{"a":1,"b":2,"\\u0061":3}')
    assert body.value == {"a": 3, "b": 2}
    assert body.edited([Edit(body.members["a"].start, body.members["a"].end, "4")]) == b'{"a":1,"b":2,"\\u0061":4}'


def test_integers_past_pythons_limit_are_read_as_floats() -> None:
    body = parse(f'{{"a":{"7" * 5_000},"b":{"7" * 4_000}}}'.encode())
    assert body.value["a"] == math.inf
    assert isinstance(body.value["b"], int)
    assert len(str(body.value["b"])) == 4_000 < sys.get_int_max_str_digits()


def test_members_of_an_inner_object_are_found() -> None:
    body = parse(b'{"a": {"b" : 1, "c":[2] }}')
    members = dict(object_members(body.text, body.members["a"].start))
    assert {key: body.text[span.start : span.end] for key, span in members.items()} == {"b": "1", "c": "[2]"}


@given(st.text())
@example("\ud83d")
def test_quoted_text_reads_back_in_utf_8(text: str) -> None:
    literal = quoted(text)
    assert json.loads(literal.encode()) == well_formed(text)
    assert "\n" not in literal


@given(st.text(st.characters(), max_size=30))
def test_well_formed_text_is_utf_8_and_otherwise_untouched(text: str) -> None:
    formed = well_formed(text)
    assert formed.encode().decode() == formed
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert formed == text
