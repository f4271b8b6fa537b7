"""The offline model: what it says in either language, with and without memories."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from proxy.echo import reply
from proxy.inject import Item, build
from proxy.tokens import estimate
from proxy.wire.chat import Placement, place
from proxy.wire.splice import parse

BLOCK = build(
    [Item("a", "fact", "用户喜欢茶"), Item("b", "preference", "Short\nanswers")],
    budget_tokens=1_000,
    count=estimate,
    language="en",
    max_item_chars=100,
).text


@pytest.mark.parametrize("placement", get_args(Placement))
@pytest.mark.parametrize("content", [b'"What do I like?"', b'[{"type":"text","text":"What do I like?"}]'])
def test_it_quotes_the_memories_it_was_given_wherever_they_stand(placement: Placement, content: bytes) -> None:
    body = parse(b'{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":' + content + b"}]}")
    messages: list[dict[str, Any]] = parse(place(body, BLOCK, placement)).value["messages"]
    assert reply(messages).splitlines() == [
        "You said: What do I like?",
        "The memories I was given:",
        "- [fact] 用户喜欢茶",
        "- [preference] Short answers",
    ]


def test_it_answers_in_the_users_language() -> None:
    assert reply([{"role": "user", "content": "你好吗"}]) == "你说：你好吗\n我手上没有任何记忆。"
    assert reply([{"role": "user", "content": "Hi"}]) == "You said: Hi\nI was given no memories."


def test_it_answers_the_newest_user_message() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "old"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "new"},
    ]
    assert reply(messages).startswith("You said: new\n")


@pytest.mark.parametrize("messages", [[], [{}], [{"role": 5, "content": {"a": 1}}], [{"role": "user"}]])
def test_odd_messages_get_an_answer_too(messages: list[dict[str, Any]]) -> None:
    assert reply(messages) == "You said: \nI was given no memories."
