"""Reading a model's answer: any text is either JSON that fits or told to be unfit, quickly."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.extraction.answer import SchemaUnusable, Unfit, read
from proxy.extraction.prompt import ANY_FORM

ANYTHING: dict[str, Any] = {}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.text())
def test_any_text_is_read_or_unfit(text: str) -> None:
    with suppress(Unfit):
        json.dumps(read(text, ANYTHING))


@given(
    st.dictionaries(st.text(max_size=5), JSON, max_size=4),
    st.sampled_from(["{}", "```json\n{}\n```", "<think>{{</think>{}"]),
)
def test_what_is_wrapped_comes_back_whole(value: dict[str, Any], wrapping: str) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if "```" in text and "```" in wrapping:
        return
    assert read(wrapping.replace("{}", text, 1).replace("{{", "{"), ANYTHING) == value


@pytest.mark.parametrize(
    "text",
    [
        "{" * 99_999,
        "```\n" + "\n" * 99_000,
        "```" * 33_000,
        "<think>" * 14_000,
        "[" * 50_000 + "]" * 49_999,
        " " * 99_999,
    ],
    ids=["braces", "newlines", "fences", "thoughts", "brackets", "spaces"],
)
def test_hostile_answers_are_unfit_at_once(text: str) -> None:
    started = time.perf_counter()
    with pytest.raises(Unfit):
        read(text, ANYTHING)
    assert time.perf_counter() - started < 2


def test_an_endless_answer_is_unfit() -> None:
    with pytest.raises(Unfit, match="too long"):
        read("[" + "1," * 60_000 + "1]", ANYTHING)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "thing"}, '"a"'),
        ({"$ref": "https://example.invalid/schema"}, '"a"'),
        ({"$ref": "#/nowhere"}, '"a"'),
        ({"$ref": "#"}, '"a"'),
        ({"pattern": "("}, '"a"'),
        ({"minimum": "low"}, "1"),
    ],
    ids=["unknown-type", "elsewhere", "nowhere", "itself", "pattern", "minimum"],
)
def test_a_schema_that_cannot_be_used_is_told_apart(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(SchemaUnusable, match="cannot be used"):
        read(text, schema)


@pytest.mark.parametrize(
    "text", ['{"memories": []}', "[]", '["a"]', '[{"content": "a", "key": null}]', '{"content": "a"}']
)
def test_memories_come_in_any_form(text: str) -> None:
    assert read(text, ANY_FORM) == json.loads(text)


@pytest.mark.parametrize(
    "text", ["{}", '"a"', "1", "null", '{"memories": null}', '{"memories": [1]}', '{"content": 1}']
)
def test_other_json_is_no_memories(text: str) -> None:
    with pytest.raises(Unfit):
        read(text, ANY_FORM)
