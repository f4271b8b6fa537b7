"""Language and sentence ends, on short, mixed and odd texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.language import detect, scripts, sentences


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("我叫 Alice Johnson Smith", "zh"),
        ("用 docker compose up 启动不了", "zh"),
        ("你好", "zh"),
        ("My friend 张伟 lives in 北京", "en"),
        ("error: connection refused", "en"),
        ("déjà vu", "en"),
        ("東京に住んでいます", "other"),
        ("서울에 살아요", "other"),
        ("Привет, как дела", "other"),
        ("", "other"),
        ("42 ++ 👍", "other"),
    ],
)
def test_language_of_short_and_mixed_texts(text: str, language: str) -> None:
    assert detect(text) == language


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("端口是 5433。启动用 make dev！好吗？", ["端口是 5433。", "启动用 make dev！", "好吗？"]),
        (
            "Use v1.2.3 at 10.0.0.5. Mr. Lee, e.g. Bob, agrees.",
            ["Use v1.2.3 at 10.0.0.5.", "Mr. Lee, e.g. Bob, agrees."],
        ),
        ("他说：“好。”然后走了。", ["他说：“好。”", "然后走了。"]),
        ("one\n\n\ntwo", ["one", "two"]),
        ("really?! yes", ["really?!", "yes"]),
        ("我喜欢茶!你呢?", ["我喜欢茶!", "你呢?"]),
        ("GET /a?b=c&d=!e ok", ["GET /a?b=c&d=!e ok"]),
    ],
)
def test_sentence_ends(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text(max_size=200))
def test_sentences_lose_nothing_but_space(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@given(st.text(max_size=200))
def test_scripts_start_with_the_main_language(text: str) -> None:
    assert scripts(text)[0] == detect(text)
