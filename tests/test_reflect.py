"""Patterns in episodes: what is done again, when it is done, and what is no pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.phrase import content_terms, shared_phrase
from proxy.reflect import Episode, When, confidence_from, patterns, when_of
from proxy.types import Language
from tests.sweep_samples import ZONE

FRIDAY = datetime(2026, 11, 6, 15, tzinfo=ZONE)
DEPLOYED_ZH = ["用户部署了支付服务", "用户又部署了订单服务", "用户周五下午部署了库存服务", "用户部署了网关服务"]
DEPLOYED_EN = [
    "The user deployed the shop service",
    "The user deployed the blog service again",
    "The user deployed the search service",
]


def episodes(texts: Sequence[str], *, days: float = 7, kind: str = "fact", session: str | None = None) -> list[Episode]:
    """One episode a text, `days` apart, each in a session of its own."""
    return [
        Episode(f"id{place}", text, FRIDAY + timedelta(days=place * days), session or f"s{place}", kind, f"m{place}")
        for place, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("texts", "language", "content"),
    [
        (DEPLOYED_ZH, "zh", "用户常在周五下午部署服务"),
        (DEPLOYED_EN, "en", "The user has often deployed the service on Friday afternoons"),
        (["I go running by the river", "I go running with Tom", "I go running in the park"], "en",
         "The user often goes running on Friday afternoons"),
        (["我开了项目周会", "我又开了一次项目周会", "我们开项目周会"], "zh", "用户常在周五下午开项目周会"),
    ],
)  # fmt: skip
def test_what_comes_back_on_a_weekday_is_told_with_its_time(texts: list[str], language: Language, content: str) -> None:
    (pattern,) = patterns(episodes(texts), language)
    assert pattern.content == content
    assert pattern.evidence == tuple(f"id{place}" for place in range(len(texts)))
    assert pattern.when == When("Friday", "afternoon")
    assert pattern.kind == "pattern"


def test_without_a_common_time_it_is_told_as_repeated() -> None:
    (pattern,) = patterns(episodes(DEPLOYED_ZH, days=3.3), "zh")
    assert pattern.content == "用户多次部署服务"


@pytest.mark.parametrize(
    ("kind", "texts", "content"),
    [
        ("task", ["The user solved a problem: clearing the pnpm store fixed the build"] * 3,
         "Solved this way more than once: clearing the pnpm store fixed the build"),
        ("tool_failure", ["Tool book failed: no seats left"] * 3,
         "Happened repeatedly: Tool book failed: no seats left"),
    ],
)  # fmt: skip
def test_what_worked_and_what_failed_become_lessons(kind: str, texts: list[str], content: str) -> None:
    (pattern,) = patterns(episodes(texts, kind=kind, days=2.4), "en")
    assert (pattern.kind, pattern.content) == ("lesson", content)


NO_PATTERN: list[tuple[str, list[Episode]]] = [
    ("two are too few", episodes(DEPLOYED_ZH[:2])),
    ("one session repeats itself", episodes(DEPLOYED_ZH, session="s1")),
    ("one message is one episode", [replace(one, origin="m") for one in episodes(DEPLOYED_ZH)]),
    ("talk without a time", episodes(DEPLOYED_ZH, days=3.3, kind="turn")),
    ("somebody else's doings", episodes(["小王部署了支付服务", "小王部署了订单服务", "小王部署了库存服务"])),
    ("a mother's doings", episodes(["我妈部署了支付服务", "我妈部署了订单服务", "我妈部署了库存服务"])),
    ("what is so", episodes(["用户的手机是华为", "用户的手机是华为牌", "用户的手机是华为的"])),
    ("what is liked", episodes(["用户喜欢喝茶", "用户喜欢喝红茶", "用户喜欢喝绿茶"])),
    ("a word that happens to be shared", episodes(
        ["用户昨天和客户谈了很久的预算问题", "用户修好了客户端里的一个小毛病", "用户送客户去机场路上堵车了"])),
]  # fmt: skip


@pytest.mark.parametrize(("why", "given"), NO_PATTERN, ids=[why for why, _ in NO_PATTERN])
def test_these_are_no_pattern(why: str, given: list[Episode]) -> None:
    assert patterns(given, "zh") == [], why


@pytest.mark.parametrize(
    ("hours", "when"),
    [
        ([0, 7 * 24, 14 * 24], When("Friday", "afternoon")),
        ([0, 7 * 24 - 6, 14 * 24 + 5], When("Friday")),
        ([24, 48, 7 * 24 + 30, 8 * 24 + 20], When("weekend")),
        ([-8, 16, 64, 88], When(None, "morning")),
        ([0, 1, 2, 3], When()),
        ([0, 30, 90, 200], When()),
    ],
)
def test_the_narrowest_time_that_most_share_is_named(hours: list[float], when: When) -> None:
    given = [Episode(f"{h}", "x", FRIDAY + timedelta(hours=h), "s", "fact", f"{h}") for h in hours]
    assert when_of(given)[0] == when


def test_weekdays_are_those_of_the_zone_the_times_are_in() -> None:
    # Friday evening in UTC is Saturday morning in Shanghai.
    late = episodes(DEPLOYED_ZH)
    moved = [Episode(o.id, o.content, o.at + timedelta(hours=14), o.place, o.kind, o.origin) for o in late]
    assert patterns(moved, "zh")[0].when == When("Saturday", "morning")


def test_the_raw_turn_gives_way_to_what_was_made_of_it() -> None:
    made = episodes(DEPLOYED_ZH)
    raw = [Episode(f"raw{o.id}", o.content.replace("用户", "我"), o.at, o.place, "turn", o.origin) for o in made]
    (pattern,) = patterns([*raw, *made], "zh")
    assert pattern.evidence == tuple(one.id for one in made)


def test_more_places_make_surer_and_order_makes_no_difference() -> None:
    four, three = patterns(episodes(DEPLOYED_ZH), "zh")[0], patterns(episodes(DEPLOYED_ZH[:3]), "zh")[0]
    assert four.confidence > three.confidence
    assert four.key == three.key
    assert patterns(episodes(DEPLOYED_ZH)[::-1], "zh") == patterns(episodes(DEPLOYED_ZH), "zh")


@given(st.integers(1, 200))
def test_confidence_rises_and_stays_below_one(places: int) -> None:
    assert confidence_from(places) <= confidence_from(places + 1) <= 0.9


@given(st.lists(st.text(max_size=40), max_size=8), st.sampled_from(["zh", "en", "other"]))
def test_any_text_is_looked_at_without_harm(texts: list[str], language: Language) -> None:
    for pattern in patterns(episodes(texts), language):
        assert len(pattern.evidence) >= 3
    if texts:
        shared_phrase(texts, language)
    for text in texts:
        assert isinstance(content_terms(text, language), frozenset)
