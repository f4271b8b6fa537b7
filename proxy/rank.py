"""Ranking arithmetic: two search legs fused into one figure, and the score of design §7 with every factor kept.

Pure: numbers in, numbers out; ages are given, the clock is never read. Nothing here returns NaN or infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_STRENGTH = 2.0


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
    return 0.5 ** min(age / half_life, 1074.0) if half_life > 0 else 0.0


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
    # Called for each candidate: what is in its range, as nearly everything is, is not looked at twice.
    fused = fused if 0.0 <= fused <= 1.0 else _clamp(fused, 1.0)
    confidence = confidence if 0.0 <= confidence <= 1.0 else _clamp(confidence, 1.0)
    strength = strength if 0.0 <= strength <= MAX_STRENGTH else _clamp(strength, MAX_STRENGTH)
    bonus = bonus if 0.0 <= bonus <= 100.0 else _clamp(bonus, 100.0)
    return Parts(fused, left, confidence, strength, bonus, round(fused * left * confidence * strength * bonus, 12))


def _clamp(value: float, most: float = 1e18) -> float:
    if 0.0 <= value <= most:
        return value
    return most if value > most else 0.0  # NaN compares with nothing
