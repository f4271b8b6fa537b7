"""Rules that cannot match are not run: nothing that would have matched may be among them."""

from __future__ import annotations

import random
import string
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from proxy.language import detect
from proxy.policy.literals import ODD_CASE, lowered, required
from proxy.policy.load import load
from proxy.policy.match import Evaluation, evaluate, request_event
from proxy.policy.matcher import Guarded
from proxy.policy.rules import Likely, PolicySet
from proxy.policy.sieve import Sieve
from proxy.policy.tryout import event_of
from proxy.types import Event, EventType

ROOT = Path(__file__).parent.parent
NOW = datetime(2026, 1, 5, tzinfo=UTC)
# Small alphabets, so that matches are frequent; with capitals, and characters that fold to ASCII ones.
PIECES = st.sampled_from(
    ["a", "b", "ab", "A", "喜", "欢", "喜欢", "s", "K", "i", " ", "1", "\u017f", "\u212a", "\u0130"]
)
ATOMS = st.sampled_from(
    ["a", "b", "ab", "喜欢", "欢", "k", "is", "[ab]", "[喜欢]", "[^a]", ".", r"\w", r"\s", r"\b", "^", "$", "É"]
)


@lru_cache(maxsize=1)
def shipped() -> PolicySet:
    return load([ROOT / "policies"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    forms = ["(?:{0})?", "(?:{0}){{1,2}}", "(?P<x{1}>{0})", "(?={0})", "(?!{0})", "(?<={0})", "(?>{0})", "(?i:{0})"]
    wrapped = st.builds(
        lambda text, form, number: form.format(text, number), inner, st.sampled_from(forms), st.integers(0, 10**9)
    )
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        wrapped,
    )


PATTERNS = st.builds(
    lambda flags, text: flags + text, st.sampled_from(["", "(?i)"]), st.recursive(ATOMS, _combined, max_leaves=8)
)


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.lists(PIECES, max_size=12).map("".join))
def test_a_pattern_that_matches_is_always_let_through(pattern: str, text: str) -> None:
    guarded = Guarded.of(pattern, lines=False)
    if guarded.pattern.search(text) is not None:
        assert guarded.possible(lowered(text)), required(pattern)
        assert Sieve([[required(pattern)]]).likely(text) == [0], required(pattern)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("(?i)Kiss", ["\u212aiss", "ki\u017fs", "KISS", "K\u0130SS"]),
        ("(?i)ÉTÉ", ["été", "ÉTÉ", "Été"]),
        ("(?i)straße", ["STRAßE", "straße"]),
        ("(?:ab){e<=1}", ["ab", "xb", "a"]),
        (r"(?x) a b  # a comment", ["ab"]),
        (r"(a)(?(1)b|c)", ["ab"]),
        (r"(?<n>a)(?P=n)", ["aa"]),
        (r"(a|b)\1", ["bb"]),
        (r"(?|(a)|(b))c", ["bc"]),
        (r"[[:alpha:]]z", ["qz"]),
        (r"\p{Han}z", ["我z"]),
        (r"x\Kab", ["xab"]),
        (r"(?r)ab", ["ab"]),
        (r"(?P<p>x)|(?P<p>y)", ["x", "y"]),
        (r"a(?-i:B)", ["aB"]),
        (r"b(?i)", ["B"]),
        (r"(a(?R)?b)", ["ab", "aabb"]),
    ],
)
def test_rarer_syntax_is_read_right_or_left_alone(pattern: str, texts: list[str]) -> None:
    guarded = Guarded.of(pattern, lines=False)
    for text in texts:
        if guarded.pattern.search(text) is not None:
            assert guarded.possible(lowered(text)), text


def test_the_odd_characters_are_all_that_stand_for_ascii_letters() -> None:
    beyond = "".join(map(chr, [*range(128, 0xD800), *range(0xE000, 0x20000)]))
    found: set[str] = set()
    for letter in ["[a-z]", *string.ascii_letters]:
        found.update(regex.findall(letter, beyond, regex.IGNORECASE))
    assert found == ODD_CASE


def test_characters_without_case_are_matched_by_themselves_alone() -> None:
    others = [
        chr(code) for code in range(128, 0x3400) if chr(code).lower() != chr(code) or chr(code).upper() != chr(code)
    ]
    for char in "我喜欢。，、「 0":
        assert not [other for other in others if regex.fullmatch(char, other, regex.IGNORECASE)]
        assert char.lower() == char


def test_another_engine_costs_speed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["regex._regex_core"], "_parse_pattern")
    assert required("(?:like|prefer) tea, never asked before") == ()


def test_nearly_every_shipped_pattern_is_filtered() -> None:
    patterns = [
        (pattern, rule.unit == "sentence")
        for rule in shipped().triggers
        if rule.trigger.if_ and rule.trigger.if_.match
        for texts in rule.trigger.if_.match.given().values()
        for pattern in texts
    ]
    assert sum(bool(required(*one)) for one in patterns) >= 0.9 * len(patterns)


@pytest.mark.parametrize("literals", [4, 400])  # fewer literals than text, and more
def test_entries_come_in_order_and_once(literals: int) -> None:
    clauses = [(frozenset({f"w{number}x", f"v{number}x"}),) for number in range(literals)]
    sieve = Sieve([[()], *([one, one] for one in clauses), [(frozenset({"w1x"}), frozenset({"q"}))]])
    text = "a long text with V1X and w3x" + " and more" * 3
    assert sieve.likely(text) == [0, 2, 4]
    assert sieve.likely("w1x q") == [0, 2, literals + 1]
    assert len(sieve.likely("\u017f")) == literals + 2


# ── the shipped policies ──────────────────────────────────────────────────────────────────────────────────────────
def _every_rule(policies: PolicySet, event: EventType, text: str) -> Likely:
    return Likely(policies.by_event.get(event, ()), frozenset())


def _without_filters(monkeypatch: pytest.MonkeyPatch, event: Event) -> Evaluation:
    with monkeypatch.context() as patched:
        patched.setattr(PolicySet, "likely", _every_rule)
        patched.setattr(Guarded, "possible", lambda self, lowered: True)
        patched.setattr("proxy.policy.passage.FEW_SENTENCES", 10_000)
        return evaluate(shipped(), event)


def _texts() -> list[str]:
    corpus = YAML(typ="safe").load((ROOT / "tests" / "policy_corpus.yaml").read_text("utf-8"))
    texts = [*corpus["said"], *corpus["nothing"], *corpus["slots"]]
    texts += [example.user for rule in shipped().triggers for example in rule.trigger.examples if example.user]
    texts += ["", "\u017fo I like tea", "my port \u0130s 5433", "我喜欢 TEA。" * 30]
    return list(dict.fromkeys(texts))


def _mixed(count: int) -> Iterator[str]:
    chance, texts = random.Random(5), _texts()
    for _ in range(count):
        parts = [chance.choice(texts) for _ in range(chance.randint(2, 5))]
        text = chance.choice([" ", "\n", "，", ""]).join(parts)
        yield chance.choice([text, text.upper(), text[chance.randrange(9) :], f"> {text}", f"“{text}”"])


def _events() -> Iterator[Event]:
    for rule in shipped().triggers:
        yield from map(event_of, rule.trigger.examples)
    for text in [*_texts(), *_mixed(250)]:
        yield Event("user_message", text, detect(text), "user", NOW)
    for text in _mixed(60):
        yield Event("turn_end", text, detect(text), "assistant", NOW, finish_reason="stop", user_text=text[:60])
        yield request_event(text, text[::-1], NOW)


def test_filtering_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for event in _events():
        assert evaluate(shipped(), event) == _without_filters(monkeypatch, event), event.text
