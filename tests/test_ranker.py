"""The ranker: bounded, fair to what stands alone, and led by what a question asks for."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.glance import gathered, glance
from proxy.plugs import Context
from proxy.ranker import FEATURES, GROUPS, Weights, answerable, features, later_first, relevance
from proxy.traits import asked, traits
from proxy.types import Memory, Source

NOW = datetime(2026, 5, 20, tzinfo=UTC)
NAN = math.nan


def memory(content: str, *, days_ago: float = 0.0, role: str = "user", name: str = "a") -> Memory:
    at = NOW - timedelta(days=days_ago)
    return Memory(name, "t", "u", "a", "agent", "episodic", "fact", content, at, at, at, source=Source(role=role))


def context(
    cosines: list[list[float]], words: list[list[float]] | None = None, threads: list[int] | None = None
) -> Context:
    n = len(cosines)
    none = np.zeros((n, 0))
    return Context(
        cosines=np.array(cosines, np.float64),
        words=np.array(words or [[0.0] * 5] * n, np.float64),
        part_cosines=none,
        part_words=none,
        threads=np.array(threads or [0] * n, np.int64),
        before=np.full(n, -1, np.int64),
    )


def alone(*cosines: float) -> Context:
    return context([[NAN, NAN, cosine, NAN, NAN] for cosine in cosines])


def values(found: Context, memories: list[Memory], question: str) -> list[float]:
    seen = gathered(glance(one) for one in memories)
    result: list[float] = relevance(found, seen, asked(question), 0.7, Weights.load()).values.tolist()
    return result


@given(
    st.lists(
        st.tuples(st.one_of(st.just(NAN), st.floats(-1, 1)), st.floats(0, 1e3), st.integers(-5, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_relevance_lies_between_zero_and_one(rows: list[tuple[float, float, int]]) -> None:
    found = context(
        [[NAN, cosine, cosine, NAN, cosine] for cosine, _, _ in rows],
        [[0.0, bm25, bm25, 0.0, 0.0] for _, bm25, _ in rows],
        [thread for _, _, thread in rows],
    )
    got = values(found, [memory("x")] * len(rows), "what is it?")
    assert all(0.0 <= value <= 1.0 for value in got)


def test_the_better_match_is_the_more_relevant() -> None:
    first, second = values(alone(0.6, 0.3), [memory("x"), memory("y")], "what is it?")
    assert first > second


def test_neighbours_that_match_speak_for_a_memory() -> None:
    found = context(
        [[NAN, 0.7, 0.3, NAN, NAN], [NAN, 0.0, 0.3, NAN, NAN], [NAN, NAN, 0.7, 0.3, NAN]], threads=[7, 8, 7]
    )
    beside, elsewhere, _ = values(found, [memory("x")] * 3, "what is it?")
    assert beside > elsewhere


def test_what_stands_alone_is_not_held_to_have_bad_neighbours() -> None:
    found = context(
        [[NAN, NAN, 0.6, NAN, NAN], [0.1, 0.1, 0.5, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.1]], threads=[0, 7, 7]
    )
    first, second, _ = values(found, [memory("x")] * 3, "what is it?")
    assert first > second


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("What did Ann buy?", "Ann: a red bike", "Bob: a red bike"),
        ("小王买了什么？", "小王： 一辆红色自行车", "小李： 一辆红色自行车"),
        ("When did the trip start?", "It began last Monday", "It began well"),
        ("那次旅行是哪天开始的？", "上周一出发的", "出发得很顺利"),
        ("Can you recommend a drink?", "I prefer green tea", "Green tea has caffeine"),
        ("推荐个喝的？", "我更喜欢绿茶", "绿茶含咖啡因"),
    ],
)
def test_what_is_asked_for_comes_first(question: str, right: str, wrong: str) -> None:
    first, second = values(alone(0.4, 0.4), [memory(right), memory(wrong)], question)
    assert first > second


@pytest.mark.parametrize("question", ["What happened on May 12?", "5月12日发生了什么？"])
def test_a_date_asked_for_points_to_the_memories_of_that_day(question: str) -> None:
    then, long_before = memory("x", days_ago=7), memory("x", days_ago=100)
    first, second = values(alone(0.4, 0.4), [then, long_before], question)
    assert first > second


def test_what_the_assistant_said_weighs_less() -> None:
    first, second = values(alone(0.4, 0.4), [memory("x"), memory("x", role="assistant")], "what is it?")
    assert first > second


def test_each_part_of_a_question_is_answered() -> None:
    parts = Context(
        cosines=np.array([[NAN, NAN, 0.5, NAN, NAN], [NAN, NAN, 0.2, NAN, NAN], [NAN, NAN, 0.4, NAN, NAN]]),
        words=np.zeros((3, 5)),
        part_cosines=np.array([[0.6, 0.0], [0.0, 0.6], [0.3, 0.3]]),
        part_words=np.zeros((3, 2)),
        threads=np.zeros(3, np.int64),
        before=np.full(3, -1, np.int64),
    )
    one, two, neither = values(parts, [memory("x")] * 3, "?")
    assert min(one, two) > neither


def test_the_share_of_the_legs_is_the_policies() -> None:
    found = context([[NAN, NAN, 0.8, NAN, NAN], [NAN, NAN, 0.4, NAN, NAN]], [[0.0] * 5, [0.0, 0.0, 3.0, 0.0, 0.0]])
    fused, _ = features(found, gathered([glance(memory("x"))] * 2), asked("?"), 0.5)
    assert fused.tolist() == [0.5, 0.75]


@pytest.mark.parametrize(
    ("old", "new"),
    [("The review is on March 3", "The review was rescheduled to March 9"), ("评审在三月三日", "评审改到三月九日了")],
)
def test_news_is_put_above_what_it_outdates(old: str, new: str) -> None:
    memories = [memory(old, days_ago=5, name="a"), memory(new, days_ago=1, name="b")]
    changed = [float(traits(one.content).changed) for one in memories]
    scores = [0.4, 0.3]
    first, second = (
        score * factor for score, factor in zip(scores, later_first(scores, memories, changed), strict=True)
    )
    assert second > first
    assert later_first([0.4, 0.01], memories, changed) == [1.0, 1.0]  # far from an answer
    assert later_first(scores, memories[::-1], changed[::-1]) == [1.0, 1.0]  # what came before outdates nothing


def test_the_weights_name_every_feature_and_explanations_leave_only_the_legs_out() -> None:
    assert len(Weights.load().of) == len(FEATURES)
    assert {name for members in GROUPS.values() for name in members} == set(FEATURES) - {"legs"}


@pytest.mark.parametrize(
    ("mine", "theirs", "question"),
    [
        ("Ann: I adopted a grey cat", "Ben: I sail every summer", "Where does Ann sail?"),
        ("小王：我养了一只灰猫", "小李：我每年夏天去航海", "小王去哪里航海？"),
    ],
)
def test_what_only_somebody_else_has_spoken_of_is_hardly_answered(mine: str, theirs: str, question: str) -> None:
    def sure(own: float, other: float) -> float:
        seen = gathered(glance(memory(one)) for one in (mine, theirs))
        found = relevance(alone(own, other), seen, asked(question), 0.7, Weights.load())
        assert -1.0 <= found.apart <= 1.0
        return answerable(found, 0.5, Weights.load())

    assert 0.0 < sure(0.3, 0.9) < sure(0.9, 0.3) < 1.0


def test_a_question_whose_words_occur_nowhere_is_hardly_answered() -> None:
    found = relevance(alone(0.5), gathered([glance(memory("x"))]), asked("?"), 0.7, Weights.load())
    assert found.apart == 0.0
    assert answerable(found, 0.0, Weights.load()) < answerable(found, 1.0, Weights.load())
