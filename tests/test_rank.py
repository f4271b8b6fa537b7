"""Ranking arithmetic: bounded, monotone, never NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.rank import decay, fuse, score, scores

cosines = st.one_of(st.none(), st.floats(-1, 1))
bm25s = st.floats(0, 1e6)
legs = st.lists(st.tuples(cosines, bm25s), min_size=1, max_size=20)
shares = st.floats(0, 1)
anything = st.floats(allow_nan=True, allow_infinity=True)


@given(legs, shares)
def test_fused_values_lie_between_zero_and_one(pairs: list[tuple[float | None, float]], share: float) -> None:
    fused = fuse([dense for dense, _ in pairs], [lexical for _, lexical in pairs], share)
    assert len(fused) == len(pairs)
    assert all(0 <= value <= 1 for value in fused)


@given(st.lists(st.tuples(anything, anything), max_size=10), anything)
def test_fuse_never_gives_nan(pairs: list[tuple[float, float]], share: float) -> None:
    fused = fuse([dense for dense, _ in pairs], [lexical for _, lexical in pairs], share)
    assert all(math.isfinite(value) for value in fused)


@given(legs, shares, st.integers(0, 19), st.floats(0, 1))
def test_a_better_candidate_never_ranks_below_its_equal(
    pairs: list[tuple[float | None, float]], share: float, index: int, more: float
) -> None:
    dense, lexical = pairs[index % len(pairs)]
    better = (None if dense is None else min(1.0, dense + more), lexical + more)
    both = [*pairs, better]
    fused = fuse([d for d, _ in both], [x for _, x in both], share)
    assert fused[-1] >= fused[index % len(pairs)] - 1e-9


def test_nearly_equal_cosines_stay_nearly_equal() -> None:
    first, second = fuse([0.50, 0.48], [0.4, 0.4], 0.8)
    assert first - second < 0.05


def test_a_record_without_a_vector_is_found_by_its_words() -> None:
    assert fuse([None, 0.4], [5.0, 0.0], 0.8) == [1.0, 0.8]


def test_nothing_found_is_zero() -> None:
    assert fuse([0.0, -0.3], [0.0, 0.0], 0.5) == [0.0, 0.0]


def test_legs_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="1 dense values for 2 lexical"):
        fuse([0.1], [0.1, 0.2], 0.5)


@given(anything, anything, st.one_of(st.none(), anything), anything, anything, anything)
def test_score_is_finite_and_the_product_of_its_parts(
    fused: float, age: float, half_life: float | None, confidence: float, strength: float, bonus: float
) -> None:
    parts = score(fused, age_s=age, half_life_s=half_life, confidence=confidence, strength=strength, bonus=bonus)
    product = parts.fused * parts.decay * parts.confidence * parts.strength * parts.bonus
    assert math.isfinite(parts.score)
    assert parts.score == pytest.approx(product, abs=1e-9)
    assert 0 <= parts.score <= 200


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(1, 1e9))
def test_older_never_counts_for_more(age: float, more: float, half_life: float) -> None:
    assert decay(age + more, half_life) <= decay(age, half_life)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_score_grows_with_confidence(fused: float, low: float, more: float) -> None:
    high = min(1.0, low + more)
    scores = [score(fused, age_s=0, half_life_s=None, confidence=c).score for c in (low, high)]
    assert scores[0] <= scores[1]


@given(st.lists(st.tuples(*[st.floats(0, 2)] * 2, st.floats(-10, 1e9), st.floats(0.1, 1e7), *[st.floats(0, 3)] * 2)))
def test_many_scores_at_once_are_those_of_each(rows: list[tuple[float, ...]]) -> None:
    columns = np.array(rows, np.float64).reshape(-1, 6).T
    fused, confidence, age, half_life, strength, bonus = columns
    found = scores(fused, age_s=age, half_life_s=half_life, confidence=confidence, strength=strength, bonus=bonus)
    for place, row in enumerate(rows):
        one = score(row[0], age_s=row[2], half_life_s=row[3], confidence=row[1], strength=row[4], bonus=row[5])
        assert [column[place] for column in found] == pytest.approx(one, abs=1e-9)


def test_what_never_decays_keeps_all_of_its_score() -> None:
    one = np.array([0.5])
    found = scores(one, age_s=one * 1e9, half_life_s=np.array([np.inf]), confidence=one, strength=one, bonus=one)
    assert (found.decay.tolist(), found.score.tolist()) == ([1.0], [0.0625])
