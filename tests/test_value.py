"""The value classifier: as good as its file says on sentences it was not fitted on, and safe with any text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fit_value import FOLDS, Sentence, by_language, fit, folds, held_out, read_sentences
from proxy.embed import BUILTIN_MODEL, StaticEmbedder
from proxy.errors import SidemirrorError
from proxy.surface import MARKS, look
from proxy.types import Vector
from proxy.value import WEIGHTS, ValueModel

EMBEDDER = StaticEmbedder(BUILTIN_MODEL)
HELD_OUT = 2


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    return read_sentences()


@pytest.fixture(scope="module")
def vectors(sentences: list[Sentence]) -> list[Vector | None]:
    return EMBEDDER.documents([one.text for one in sentences])


def shipped() -> ValueModel:
    return ValueModel.load(WEIGHTS, EMBEDDER.fingerprint)


MODEL = shipped()


def judged(text: str) -> float:
    return MODEL.score(text, EMBEDDER.documents([text])[0])


def test_sentences_are_many_and_balanced(sentences: list[Sentence]) -> None:
    assert len(sentences) >= 1800
    for language in ("zh", "en"):
        labels = [one.keep for one in sentences if one.language == language]
        assert len(labels) >= 900
        assert sum(labels) / len(labels) == pytest.approx(0.5, abs=0.01)


def test_figures_in_the_file_hold_on_a_held_out_fifth(sentences: list[Sentence], vectors: list[Vector | None]) -> None:
    recorded = json.loads(WEIGHTS.read_text(encoding="utf-8"))["cross_validation"]

    found = by_language(sentences, held_out(sentences, vectors, fold=HELD_OUT))

    for name, one in found.items():  # a fifth of one language is some 217 sentences: one standard error is 0.024
        assert one.accuracy == pytest.approx(recorded[name]["accuracy"], abs=0.06)
        assert one.auroc == pytest.approx(recorded[name]["auroc"], abs=0.04)
        assert recorded[name]["accuracy"] >= 0.82  # a seventh of the sentences are of the kinds hardest to tell


def test_shipped_weights_are_of_the_sentences_in_the_repository(
    sentences: list[Sentence], vectors: list[Vector | None]
) -> None:
    known = [MODEL.score(one.text, vector) >= 0.5 for one, vector in zip(sentences, vectors, strict=True)]

    right = np.mean([said == one.keep for said, one in zip(known, sentences, strict=True)])

    assert str(len(sentences)) in json.loads(WEIGHTS.read_text(encoding="utf-8"))["note"]
    assert right >= 0.9


def test_folds_keep_counterparts_together_and_are_of_one_size(sentences: list[Sentence]) -> None:
    found = folds(sentences)

    assert np.bincount(found).min() > len(sentences) / FOLDS * 0.8
    starts = {one.language: fold for one, fold in zip(sentences, found, strict=True) if one.reason == "habit"}
    assert starts == {"zh": FOLDS - 1, "en": FOLDS - 1}


@pytest.mark.parametrize(
    "text",
    [
        "咱们组周五下午一般不排会",
        "我对虾过敏，一吃就起疹子",
        "我们测试库的端口是 5544",
        "we never ship on Mondays",
        "my wife is allergic to shellfish",
        "our CI runs on GitLab",
    ],
)
def test_lasting_facts_are_worth_more_than_not(text: str) -> None:
    assert judged(text) > 0.6


@pytest.mark.parametrize(
    "text",
    [
        "帮我写个脚本把日志压缩一下",
        "我对虾过敏吗？",
        "如果我住在上海就好了",
        "哈哈哈好的",
        "what port does our test database use?",
        "write me a haiku about trains",
        "thanks a lot, that helped",
        'Traceback (most recent call last): File "x.py", line 3, in <module>',
    ],
)
def test_talk_of_the_moment_is_worth_less(text: str) -> None:
    assert judged(text) < 0.3


def test_a_text_without_a_vector_is_judged_by_its_surface() -> None:
    assert MODEL.score("我一般都喝黑咖啡", None) > 0.6
    assert MODEL.score("帮我查一下天气吧？", None) < 0.1


@pytest.mark.parametrize("text", ["", "   \n\t", "?!…", "😀😀", "——"])
def test_text_that_says_nothing_is_worth_nothing(text: str) -> None:
    assert MODEL.score(text, None) == 0.0


@given(st.text(max_size=300))
def test_any_text_has_a_probability(text: str) -> None:
    vector = EMBEDDER.documents([text])[0]
    for score in (MODEL.score(text, None), MODEL.score(text, vector)):
        assert 0.0 <= score <= 1.0
    assert len(look(text).marks) == len(MARKS)


@pytest.mark.parametrize(
    "text", ["我喜欢茶" * 50_000, "we like tea " * 50_000, "\ud800 lone", "{" * 9_000, "1" * 9_000]
)
def test_extreme_text_has_a_probability(text: str) -> None:
    assert 0.0 <= judged(text) <= 1.0


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_broken_vector_counts_as_none(broken: float) -> None:
    vector = np.full(256, broken, dtype=np.float32)

    with np.errstate(invalid="ignore"):
        assert MODEL.score("we deploy Fridays only", vector) == MODEL.score("we deploy Fridays only", None)


def test_a_vector_of_another_dimension_is_refused() -> None:
    with pytest.raises(ValueError):
        MODEL.score("we deploy Fridays only", np.zeros(3, dtype=np.float32))


def test_weights_of_another_embedder_judge_by_the_surface_alone() -> None:
    other = ValueModel.load(WEIGHTS, "potion-base-8M-0123456789ab-256")
    text, vector = "I'm allergic to penicillin", np.ones(8, dtype=np.float32)

    assert other.score(text, vector) == other.score(text, None) == MODEL.score(text, None)


def _without_a_mark(content: dict[str, Any]) -> None:
    del content["alone"]["marks"]["digits"]


def _with_nan(content: dict[str, Any]) -> None:
    content["with_vector"]["bias"] = math.nan


def _with_words_for_numbers(content: dict[str, Any]) -> None:
    content["meaning"] = ["a"]


def _with_a_list_of_terms(content: dict[str, Any]) -> None:
    content["alone"]["terms"] = []


@pytest.mark.parametrize("damage", [_without_a_mark, _with_nan, _with_words_for_numbers, _with_a_list_of_terms])
def test_damaged_weights_are_refused(tmp_path: Path, damage: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    damage(content)
    path = tmp_path / "weights.json"
    path.write_text(json.dumps(content), encoding="utf-8")

    with pytest.raises(SidemirrorError, match=r"weights\.json"):
        ValueModel.load(path, EMBEDDER.fingerprint)


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SidemirrorError, match="install anew"):
        ValueModel.load(tmp_path / "none.json", EMBEDDER.fingerprint)


def test_fitting_is_repeatable_and_works_without_vectors() -> None:
    few = [
        Sentence(keep, "en", "x", text)
        for keep in (True, False)
        for text in (
            ["I live in Ghent", "I live in Rome", "I live in Bonn", "I live in Oslo"] if keep else ["hi", "ok?"]
        )
    ]

    first, second = (fit(few, [None] * len(few)) for _ in range(2))

    assert first.alone == second.alone
    assert "live in" in first.alone.terms
    assert first.score("I live in Lyon", None) > first.score("hi?", None)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["keep\ten\tx\tI like tea", "ignore\ten\tx\ti like tea."], ":3: the same text as in line 2"),
        (["keep\ten\tI like tea"], ":2: not label"),
        (["maybe\ten\tx\tI like tea"], ":2: not label"),
        (["keep\ten\tx\tI like tea", "keep\ten\tx\tI like rum"], "2 of 2 are to be kept"),
    ],
)
def test_bad_sentence_files_are_refused(tmp_path: Path, lines: list[str], complaint: str) -> None:
    path = tmp_path / "sentences.tsv"
    path.write_text("\n".join(["label\tlanguage\treason\ttext", *lines]) + "\n", encoding="utf-8")

    with pytest.raises(ValueError, match=complaint):
        read_sentences(path)
