"""Which terms a text gives, and that questions find what they should."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.store.lexical import MAX_QUERY_TERMS, query_terms, terms, token


def shared(question: str, text: str) -> set[str]:
    return set(query_terms(question)) & set(terms(text))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("北京", "我住在北京"),
        ("我在哪个城市？北京吗", "用户住在北京市海淀区"),
        ("port 2222", "ssh listens on --port=2222"),
        ("--port=2222", "ssh listens on --port=2222, not 22"),
        ("which port?", "PORT=8080"),
        ("python 3.11", "the service runs Python 3.11"),
        ("mail alice@example.com", "write to alice@example.com."),
        ("example.com", "write to alice@example.com."),
        ("/usr/local/bin", "it is in /usr/local/bin/uv"),
        ("max_tokens", "set max_tokens to 200"),
        ("tokens", "set max_tokens to 200"),
        ("getUserName", "call getUserName() first"),
        ("user name function", "call getUserName() first"),
        ("HTTPServer", "an HTTPServer class"),
        ("server", "an HTTPServer class"),
        ("café", "the cafe at the corner"),
        ("CAFÉ", "the café at the corner"),
        ("ｐｏｒｔ　８０８０", "port 8080"),
        ("preferences", "her preference"),
        ("cities", "the city"),
        ("he moved", "moving to Oslo"),
        ("running", "he runs; ran; run"),
        ("stopped", "stop it"),
        ("what's Alice's dog", "Alice has a dog"),
        ("寿司", "寿司が好きです"),
        ("カメラ", "新しいカメラを買った"),
        ("서울", "저는 서울에 살아요"),
        ("ภาษาไทย", "พูดภาษาไทย"),
        ("猫", "我养了一只猫"),
        ("用户的猫", "我养了一只猫"),
        ("深色模式", "用户喜欢深色模式"),
        ("VSCode插件", "用户常用VSCode的插件"),
        ("C++", "she writes c++ and c"),
        ("naïve Straße", "naive strasse"),
    ],
)
def test_question_finds_text(question: str, text: str) -> None:
    assert shared(question, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("上海", "我住在北京"),
        ("port 2222", "8080 is free"),
        ("他喜欢什么", "她为什么走"),
        ("king", "kin"),
        ("string", "str"),
        ("speed", "spelling"),
    ],
)
def test_question_does_not_find_text(question: str, text: str) -> None:
    assert not shared(question, text)


def test_a_dakuten_and_a_hangul_syllable_are_no_accents() -> None:
    assert "がき" in terms("がき")
    assert "かき" not in terms("がき")
    assert "서울" in terms("서울")


def test_a_question_drops_single_ideographs_and_function_pairs_when_bigrams_remain() -> None:
    assert query_terms("我的名字是什么") == ["名字", "字是"]


def test_a_question_of_function_words_only_still_has_terms() -> None:
    assert query_terms("who am I") == ["who", "am", "i"]
    assert query_terms("你是谁") != []


def test_text_without_words_has_no_terms() -> None:
    assert terms("?!… 。，\n") == []
    assert query_terms("") == []


def test_long_questions_keep_the_telling_terms() -> None:
    found = query_terms(
        "a b c d e f g h " + " ".join(f"w{i}" for i in range(60)) + " --deployment-target=production-eu"
    )
    assert len(found) == MAX_QUERY_TERMS
    assert found[0] == "--deployment-target=production-eu"


def test_huge_texts_are_bounded() -> None:
    assert len(terms("".join(chr(0x4E00 + i % 20_000) for i in range(50_000)))) <= 4_096
    assert all(len(term) <= 128 for term in terms("x" * 10_000 + "." + "y" * 10_000))


def test_tokens_of_different_terms_or_partitions_differ() -> None:
    one, other = "p" + "0" * 24, "p" + "1" * 24
    assert len({token(p, t) for p in (one, other) for t in ("a", "b", "--port=1", "北京")}) == 8
    assert token(one, "--Port=北京").isalnum()
    assert token(one, "--Port=北京").isascii()


@given(st.text())
def test_terms_are_distinct_and_stable_under_case(text: str) -> None:
    found = terms(text)
    assert len(found) == len(set(found))
    assert all(term and " " not in term for term in found)


@given(st.text(alphabet=st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=2, max_size=2))
def test_any_two_ideographs_are_found_inside_a_sentence(pair: str) -> None:
    assert pair in terms(f"我说{pair}好")


@given(st.text(max_size=300))
def test_questions_ask_only_for_what_the_same_text_would_have_stored(text: str) -> None:
    # Segments between particles may be single ideographs, which stored text holds as well.
    assert set(query_terms(text)) <= set(terms(text)) | set(_all_terms(text))


def _all_terms(text: str) -> list[str]:
    """Terms as stored beside a content word: the rule that only function words remain does not apply."""
    return terms(f"{text} zzz") + terms(text)


@pytest.mark.parametrize("ruler", ["-" * 50_000, "|---" * 5_000, "/~" * 20_000, "#" * 50_000])
def test_rulers_and_tables_take_no_time(ruler: str) -> None:
    started = time.process_time()
    assert {"head", "tail"} <= set(terms(f"head\n{ruler}\ntail"))
    assert time.process_time() - started < 2.0
