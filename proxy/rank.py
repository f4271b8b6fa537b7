"""Ranking arithmetic: two search legs fused into one figure, and the score of design §7 with every factor kept.

Pure: numbers in, numbers out; ages are given, the clock is never read. Nothing here returns NaN or infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_STRENGTH = 2.0
MOST_BONUS = 100.0
_MOST_HALVINGS = 1_074.0
"""Of 1 nothing is left after as many, in a float64."""
_LEAST_HALF_LIFE_S = 1e-6
_SCORE_DIGITS = 12
Floats = npt.NDArray[np.float64]


class Parts(NamedTuple):
    """A score and the factors it is the product of, for explanations.

    Args:
        fused: What the search legs found, 0–1.
        decay: 0.5 ** (age / half-life), 0–1.
        confidence: 0–1.
        strength: Reinforcement, 0–2.
        bonus: Factor of the query's intent, ≥ 0; 1 for none.
        score: The product.
    """

    fused: float
    decay: float
    confidence: float
    strength: float
    bonus: float
    score: float


def fuse(dense: Sequence[float | None], lexical: Sequence[float], share: float) -> list[float]:
    """Convex sum of the two legs, each divided by the best value that this query found.

    Dividing by the maximum, and not by the spread, keeps two nearly equal cosines nearly equal.

    Args:
        dense: Cosine per candidate, −1…1 (negative counts as 0); None where a record has no vector: then its lexical
            value alone counts.
        lexical: BM25 per candidate, ≥ 0, in the same order.
        share: The dense leg's weight, 0–1; the rest is the lexical leg's.

    Returns:
        One value per candidate, 0–1.

    Raises:
        ValueError: The legs differ in length.

    >>> fuse([0.8, 0.4], [0.0, 3.0], 0.5)
    [0.5, 0.75]
    >>> fuse([None, None], [2.0, 1.0], 0.8)
    [1.0, 0.5]
    >>> fuse([], [], 0.5)
    []
    """
    if len(dense) != len(lexical):
        raise ValueError(f"{len(dense)} dense values for {len(lexical)} lexical ones")
    share = _clamp(share, 1.0)
    cosines = [None if value is None else _clamp(value, 1.0) for value in dense]
    bm25s = [_clamp(value) for value in lexical]
    best_dense = max((value for value in cosines if value is not None), default=0.0) or 1.0
    best_lexical = max(bm25s, default=0.0) or 1.0
    fused = []
    for cosine, bm25 in zip(cosines, bm25s, strict=True):
        words = bm25 / best_lexical
        meaning = words if cosine is None else cosine / best_dense
        fused.append(min(1.0, share * meaning + (1.0 - share) * words))
    return fused


def decay(age_s: float, half_life_s: float | None) -> float:
    """What is left of 1 after `age_s` seconds; None never decays.

    >>> decay(60, 60), decay(120, 60), decay(1e9, None), decay(-5, 60)
    (0.5, 0.25, 1.0, 1.0)
    """
    age = _clamp(age_s)
    if half_life_s is None or age == 0:
        return 1.0
    half_life = _clamp(half_life_s)
    return 0.5 ** min(age / half_life, _MOST_HALVINGS) if half_life > 0 else 0.0


def score(
    fused: float,
    *,
    age_s: float,
    half_life_s: float | None,
    confidence: float,
    strength: float = 1.0,
    bonus: float = 1.0,
) -> Parts:
    """The score of one candidate: fused × decay × confidence × strength × bonus.

    Args:
        fused: From `fuse`, 0–1.
        age_s: Now − valid_from, seconds; below zero counts as zero.
        half_life_s: Seconds, or None for never.
        confidence: 0–1.
        strength: 0–2.
        bonus: Intent factor for this memory type, ≥ 0.

    Returns:
        Every factor as it was used (put into its range), and their product.

    >>> score(0.8, age_s=60, half_life_s=60, confidence=0.5, strength=1.0, bonus=1.5).score
    0.3
    """
    left = 1.0 if half_life_s is None else decay(age_s, half_life_s)
    fused, confidence = _clamp(fused, 1.0), _clamp(confidence, 1.0)
    strength, bonus = _clamp(strength, MAX_STRENGTH), _clamp(bonus, MOST_BONUS)
    product = round(fused * left * confidence * strength * bonus, _SCORE_DIGITS)
    return Parts(fused, left, confidence, strength, bonus, product)


class Scores(NamedTuple):
    """As `Parts`, for many candidates at once: float64 (n,) each."""

    fused: Floats
    decay: Floats
    confidence: Floats
    strength: Floats
    bonus: Floats
    score: Floats


def scores(
    fused: Floats, *, age_s: Floats, half_life_s: Floats, confidence: Floats, strength: Floats, bonus: Floats
) -> Scores:
    """`score` of many candidates at once.

    Args:
        fused: 0–1, (n,), like all that follow.
        age_s: Now − valid_from, seconds; below zero counts as zero.
        half_life_s: Seconds; infinity for never.
        confidence: 0–1.
        strength: 0–2.
        bonus: ≥ 0.

    >>> eighty, one = np.array([0.8]), np.array([1.0])
    >>> scores(eighty, age_s=one, half_life_s=one, confidence=one / 2, strength=one, bonus=1.5 * one).score.tolist()
    [0.3]
    """
    lives = np.clip(age_s, 0.0, None) / np.maximum(half_life_s, _LEAST_HALF_LIFE_S)
    left = 0.5 ** np.minimum(lives, _MOST_HALVINGS)
    fused, confidence = np.clip(fused, 0.0, 1.0), np.clip(confidence, 0.0, 1.0)
    strength, bonus = np.clip(strength, 0.0, MAX_STRENGTH), np.clip(bonus, 0.0, MOST_BONUS)
    product = np.round(fused * left * confidence * strength * bonus, _SCORE_DIGITS)
    return Scores(fused, left, confidence, strength, bonus, product)


def _clamp(value: float, most: float = 1e18) -> float:
    if 0.0 <= value <= most:
        return value
    return most if value > most else 0.0  # NaN compares with nothing
