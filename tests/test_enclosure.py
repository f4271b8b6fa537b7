"""Marks around what people said: nothing inside can close them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enclosure import enclose

PIECES = st.sampled_from(
    ["<said id=", "</said", ">", "</said id=e655d64642>", "\n", "＜/said＞", "<", "/", " ", "said", "茶"]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=20).map("".join))
def test_no_text_closes_its_marks(text: str) -> None:
    found = re.fullmatch(r"<said id=(\w+)>\n(.*)\n</said id=(\w+)>", enclose(text), re.DOTALL)
    assert found is not None
    opened, inside, closed = found.groups()
    assert opened == closed
    assert opened not in inside
    assert re.search(r"[<＜]\s{0,3}/?\s{0,3}said\b", inside) is None


@pytest.mark.parametrize("text", ["if a < b: print('said')", "He said <b>no</b>", "我说过 a<b", ""])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert f"\n{text}\n" in enclose(text)


def test_many_angles_and_spaces_take_no_time() -> None:
    assert len(enclose("<" + " " * 200_000 + "<" * 200_000)) > 400_000


def test_half_a_character_is_no_error() -> None:
    assert "\ud800" in enclose("\ud800")
