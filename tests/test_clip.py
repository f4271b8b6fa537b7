"""Cutting a text: within its limit, and never where it would break what stands there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.clip import ELLIPSIS, clip

WORDS = st.lists(
    st.sampled_from(
        [
            "word",
            "https://a.example/x?y=1.5&z=中文",
            "3.14159",
            "2026-11-02",
            "北京",
            "12,500",
            "👩‍👩‍👧",
            "e\u0301te",
            "10.0.0.5:5432",
        ]
    ),
    min_size=1,
    max_size=12,
)


@given(st.text(max_size=60), st.integers(1, 40))
def test_a_clipped_text_keeps_to_its_limit_and_its_beginning(text: str, limit: int) -> None:
    short = clip(text, limit)
    assert len(short) <= limit
    assert short == text or text.startswith(short[: -len(ELLIPSIS)])
    assert (short == text) == (len(text) <= limit)


@given(WORDS, st.integers(1, 60))
def test_nothing_that_stands_between_spaces_is_cut_in_two(words: list[str], limit: int) -> None:
    text = " ".join(words)
    short = clip(text, limit)
    if short == text:
        return
    kept = short[: -len(ELLIPSIS)].split()
    # Two letters of Chinese may be parted: nothing tells where a word of theirs ends.
    whole = [one for one in kept if one != "北"]
    assert whole == words[: len(whole)]


@pytest.mark.parametrize(
    ("text", "limit", "clipped"),
    [
        ("我住在北京。我喜欢喝茶，也喜欢咖啡。", 11, "我住在北京。…"),
        ("Ok. This sentence is much too long", 20, "Ok. This sentence…"),
        ("总共一百二十三万元要在年底前付清", 6, "总共…"),
        ("截止2026年11月2日提交", 8, "截止…"),
        ("价格是 3.14159265 元", 9, "价格是…"),
        ("unbreakable" * 9, 20, "…"),
        ("short", 5, "short"),
        ("a\ud83d\ude00", 2, "…"),
    ],
)
def test_where_texts_are_cut(text: str, limit: int, clipped: str) -> None:
    assert clip(text, limit) == clipped
