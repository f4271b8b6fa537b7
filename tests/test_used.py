"""Which memories an answer drew on: words of their own tell, words that the user had just said do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.types import Memory
from proxy.used import used
from tests.store_samples import memory


def drawn_on(content: str, answer: str, asked: str = "") -> bool:
    """Whether an answer shows that it used a memory."""
    one = memory(content)
    return used(answer, asked, [one]) == [one.id]


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("The staging database listens on port 5433", "Connect to 5433."),
        ("测试库监听 5433 端口", "用 5433 就行。"),
        ("The user prefers dark roast coffee", "Then a dark roast coffee it is."),
        ("用户喜欢深色模式", "给你换成深色模式了。"),
        ("The user's editor is Neovim 0.11", "In Neovim 0.11 that is built in."),
    ],
)
def test_an_answer_that_repeats_a_memorys_own_words_used_it(content: str, answer: str) -> None:
    assert drawn_on(content, answer)


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("The staging database listens on port 5433", "I do not know."),
        ("The staging database listens on port 5433", "Every database has a port."),
        ("The user likes oolong tea", "The user may like this."),
        ("用户爱喝龙井茶", "用户的问题我不清楚。"),
        ("The meeting has 7 people", "There are 7 days in a week."),
        ("", "Anything at all."),
        ("The user likes tea", ""),
    ],
)
def test_an_answer_that_shares_little_with_a_memory_did_not(content: str, answer: str) -> None:
    assert not drawn_on(content, answer)


@pytest.mark.parametrize(
    ("content", "asked", "answer"),
    [
        ("The staging port is 5433", "Is staging on 5433?", "Yes, staging is on 5433."),
        ("用户喜欢深色模式", "深色模式怎么开？", "深色模式在设置里开。"),
    ],
)
def test_words_that_the_user_just_said_tell_nothing(content: str, asked: str, answer: str) -> None:
    assert not drawn_on(content, answer, asked)
    assert drawn_on(content, answer, "What is it?")


def test_of_several_only_those_that_were_used_are_named_in_their_order() -> None:
    port, tea, host = memory("The port is 5433"), memory("The user likes tea"), memory("The host is db-17.internal")
    answer = "db-17.internal, on 5433."
    assert used(answer, "Where is it?", [port, tea, host]) == [port.id, host.id]


def test_with_nothing_injected_nothing_was_used() -> None:
    assert used("The port is 5433.", "Which port?", []) == []


@given(answer=st.text(max_size=80), asked=st.text(max_size=80), contents=st.lists(st.text(max_size=40), max_size=4))
def test_whatever_is_said_only_what_was_injected_is_named_each_once(
    answer: str, asked: str, contents: list[str]
) -> None:
    memories: list[Memory] = [memory(content) for content in contents]
    found = used(answer, asked, memories)
    assert found == [one.id for one in memories if one.id in found]
    # What the user said word for word can never show anything.
    assert used(answer, answer, memories) == []
