"""Short forms: what is kept, what goes, and that nothing is made up or broken."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.clip import ELLIPSIS
from proxy.shortform import short_form

PIECES = st.lists(
    st.sampled_from(
        [
            "We chose PostgreSQL 16 for the staging cluster. ",
            "用户决定把数据库迁移到上海机房，时间是 2026年11月2日。",
            "See https://a.example/x?y=1&z=2 for 3.14 reasons! ",
            "Sure! ",
            "好的。",
            "\n\n### Steps\n",
            "1. **First**: open the door.\n",
            "- [x] done\n",
            "```py\nfor x in y:\n    print(x)\n```\n",
            '  File "/srv/a.py", line 7, in run\n    self.go()\n',
            "ValueError: port must be 1-65535\n",
            "| a | b |\n|---|---|\n",
            "👩‍👩‍👧 ",
            "\ud83d",
            "\u2028",
            "x" * 90 + " ",
            "e\u0301" * 5 + " ",
        ]
    ),
    max_size=40,
).map("".join)
LIMITS = st.integers(1, 500)
FILLER = "The weather was mild, and people went about their day as they do. "
ZH_FILLER = "天气不错，大家像往常一样各忙各的，没有什么特别的事情发生。"


def plain(text: str) -> str:
    """Without white space, and without the signs that Markdown uses."""
    return re.sub(r"[\s*#•>-]+", "", text)


@given(st.one_of(st.text(max_size=400), PIECES), LIMITS)
def test_it_keeps_to_its_limit_and_is_the_same_each_time(text: str, limit: int) -> None:
    short = short_form(text, limit)
    assert len(short) <= limit
    assert short == short_form(text, limit)
    assert (short == text) if len(text) <= limit else ELLIPSIS in short or plain(short) == plain(text)


@given(PIECES, LIMITS)
def test_it_says_nothing_that_the_text_does_not_say_and_in_its_order(text: str, limit: int) -> None:
    short, whole, at = short_form(text, limit), plain(text), 0
    for part in short.split(ELLIPSIS):
        for said in filter(None, re.split(r"(?<=[.!?。！？]) ", part)):
            found = whole.find(plain(said), at)
            assert found >= 0
            at = found


@given(PIECES, st.integers(20, 500))
def test_words_numbers_and_urls_stay_whole(text: str, limit: int) -> None:
    words = set(text.replace("**", "").split())
    for word in short_form(text, limit).replace("**", "").replace(ELLIPSIS, " ").split():
        if word.isascii():
            assert any(word in one and (one == word or not one.isascii()) for one in words)


@pytest.mark.parametrize(
    ("told", "filler"),
    [
        ("In the end we decided to move to PostgreSQL 16 by 3 March.", FILLER),
        ("The root cause was a full disk on db-2.example.com.", FILLER),
        ("最后决定改用 PostgreSQL 16，三月三日前完成迁移。", ZH_FILLER),
        ("原因是 db-2 的磁盘满了，剩余空间只有 3%。", ZH_FILLER),
    ],
)
def test_decisions_and_reasons_are_found_wherever_they_stand(told: str, filler: str) -> None:
    for before in (1, 20, 60):
        short = short_form(f"{filler * before}{told} {filler * 40}", 400)
        assert told.rstrip(".。") in short


def test_the_opening_is_told_first() -> None:
    short = short_form("The user's garden has two ponds. " + FILLER * 30, 200)
    assert short.startswith("The user's garden has two ponds.")


@pytest.mark.parametrize(
    "courtesy",
    [
        "Certainly!",
        "Hi there!",
        "I hope this helps!",
        "Let me know if you need anything else.",
        "希望对你有帮助！",
        "你好！",
    ],
)
def test_courtesies_go(courtesy: str) -> None:
    short = short_form(f"{courtesy} Port 5433 is for staging. {FILLER * 9}{courtesy}", 200)
    assert courtesy not in short
    assert "Port 5433 is for staging." in short


@pytest.mark.parametrize(
    "said", ["Hi, I'm Wei.", "OK, use port 5433.", "你好，我是张伟。", "I hope we move to Berlin.", "希望能搬到上海。"]
)
def test_what_only_begins_like_a_courtesy_stays(said: str) -> None:
    assert said.rstrip(".。") in short_form(f"{said} {FILLER * 9}", 200)


def test_code_goes_and_what_is_said_around_it_stays() -> None:
    code = "```python\n" + "for x in range(10):\n    print(x ** 2)\n" * 20 + "```\n"
    short = short_form(
        f"This loop prints squares of ten numbers.\n{code}It fails on strings, which must be parsed.", 200
    )
    assert short == "This loop prints squares of ten numbers. … It fails on strings, which must be parsed."


def test_of_a_stack_trace_the_error_stays() -> None:
    frames = '  File "/srv/app/run.py", line 12, in main\n    return self.start(port)\n' * 30
    text = f"The service does not start.\nTraceback (most recent call last):\n{frames}OSError: port 5433 is in use"
    assert short_form(text, 200) == "The service does not start. … OSError: port 5433 is in use"


def test_what_is_said_again_is_told_once() -> None:
    short = short_form("The deadline is 5 May. " * 40, 200)
    assert short.count("The deadline is 5 May.") == 1


def test_a_list_keeps_its_numbers_and_loses_its_markup() -> None:
    steps = "".join(f"{n}. **Step {n}**: wait {n} minutes, then go on.\n" for n in range(1, 40))
    short = short_form(f"To restart the pump:\n{steps}", 200)
    assert short.startswith("To restart the pump: 1. Step 1: wait 1 minutes, then go on.")
    assert "**" not in short


def test_a_very_long_text_takes_no_longer_than_a_long_one() -> None:
    def took(text: str) -> float:
        started = time.process_time()
        short_form(text, 400)
        return time.process_time() - started

    lines = "".join(f"Reading {n}: the tank holds {n * 7} litres today.\n" for n in range(20_000))
    short_form(lines, 400)
    assert min(took(lines) for _ in range(5)) < 5 * min(took(lines[:24_000]) for _ in range(5))
    assert short_form(f"{lines}The valve was closed.", 400).endswith("The valve was closed.")
