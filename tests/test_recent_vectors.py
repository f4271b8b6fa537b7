"""Vectors of recent texts: the same answers, asked for once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from proxy.errors import EmbedderError
from proxy.recent_vectors import RecentVectors
from proxy.types import Vector


class Counting:
    """An embedder that notes what it is asked, and fails when told to."""

    fingerprint, dimension = "counting", 2

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fails = False

    def documents(self, texts: Sequence[str]) -> list[Vector | None]:
        self.asked.append([*texts])
        if self.fails:
            raise EmbedderError("down")
        return [np.array([len(text), 1.0], np.float32) for text in texts]

    def query(self, text: str) -> Vector | None:
        return np.array([0.0, len(text)], np.float32)


def test_a_text_is_embedded_once() -> None:
    inner = Counting()
    recent = RecentVectors(inner)
    first, second = (recent.documents(["喝茶"])[0] for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.tolist() == second.tolist() == [2.0, 1.0]
    assert inner.asked == [["喝茶"]]
    assert (recent.fingerprint, recent.dimension) == ("counting", 2)


def test_several_texts_and_questions_are_passed_on() -> None:
    recent = RecentVectors(Counting())
    assert [one.tolist() for one in recent.documents(["a", "bc"]) if one is not None] == [[1.0, 1.0], [2.0, 1.0]]
    assert recent.documents([]) == []
    asked = recent.query("abc")
    assert asked is not None
    assert asked.tolist() == [0.0, 3.0]


def test_a_failure_is_not_remembered() -> None:
    inner = Counting()
    recent = RecentVectors(inner)
    inner.fails = True
    with pytest.raises(EmbedderError):
        recent.documents(["tea"])
    inner.fails = False
    assert recent.documents(["tea"])[0] is not None
