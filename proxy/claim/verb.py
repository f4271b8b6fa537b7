"""The verb group of an English clause: where it stands, its dictionary form, whether it is denied.

Pure. The verbs are those of `lexicon`; a form that may be a noun as well counts only where a verb can stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.claim.lexicon import EN_IRREGULAR, EN_VERBS
from proxy.claim.nouns import ADVERBS

_BE = frozenset(("is", "are", "am", "was", "were", "be", "been", "being"))
_HELPERS = frozenset(("do", "does", "did", "can", "could", "will", "would", "should", "must", "may", "might"))
_NEGATIONS = frozenset(("not", "never"))
_PLURAL_BEFORE = frozenset(("i", "we", "they", "you", "people", "developers"))
DETERMINERS = frozenset(("the", "a", "an", "our", "my", "some", "any"))


@dataclass(frozen=True, slots=True)
class Verb:
    """The verb group of a clause: its lemma, where it stands and where it ends."""

    lemma: str
    start: int
    end: int
    positive: bool
    be: bool
    past: bool
    desire: str = ""


def find_verb(tokens: Sequence[str]) -> Verb | None:
    for index, token in enumerate(tokens[:12]):
        word = token.lower()
        before = tokens[index - 1].lower() if index else ""
        if before in DETERMINERS or (before[:1] in ("'", "’") and word not in _BE):
            continue
        following = tokens[index + 1].lower() if index + 1 < len(tokens) else ""
        if word == "am" and before != "i":
            continue  # 2 am
        if word in _BE or word in _HELPERS or word in _NEGATIONS or (word, following) == ("no", "longer"):
            return _group(tokens, index)
        lemma, finite = lemma_of(word)
        if lemma is None or word.endswith("ing"):
            continue
        plural = (
            before in _PLURAL_BEFORE or before in ADVERBS or (before.endswith("s") and before[:1] not in ("'", "’"))
        )
        if index == 0:  # "Prefers tabs", "Use tabs"; but "Builds are stored", "Deploys to EU happen on Tuesday"
            finite = len(tokens) > 1 and not any(map(_may_be_verb, tokens[1:7]))
        if finite or plural:
            return _group(tokens, index)
    return None


def _may_be_verb(token: str) -> bool:
    word = token.lower()
    return word in _BE or word in _HELPERS or (lemma_of(word)[0] is not None and not word.endswith("ing"))


def _group(tokens: Sequence[str], start: int) -> Verb | None:
    """Read helpers, negation and adverbs up to the main verb."""
    positive, be, desire, index = True, False, "", start
    past = False
    while index < len(tokens):
        word = tokens[index].lower()
        following = tokens[index + 1].lower() if index + 1 < len(tokens) else ""
        lemma = lemma_of(word)[0]
        if word in _NEGATIONS:
            positive = not positive
        elif word == "no" and following == "longer":
            positive, index = False, index + 1
        elif word in _BE and (word != "am" or index == start):
            be, past = True, past or word in ("was", "were")
        elif lemma == "have" and (following in ("been", "to", "not") or _is_participle(following)):
            pass
        elif following == "to" and (
            lemma in ("like", "prefer", "love", "want", "plan", "need", "hope") or word == "going"
        ):
            desire, be, index = "like" if lemma in ("like", "prefer", "love") else "want", False, index + 1
        elif word not in _HELPERS and word not in ADVERBS:
            break
        index += 1
    word = tokens[index].lower() if index < len(tokens) else ""
    lemma = lemma_of(word)[0]
    if be and not (lemma and (_is_participle(word) or word.endswith("ing"))):
        return Verb("was" if past else "be", start, index, positive, be=True, past=past, desire=desire)
    if lemma in ("like", "love") and tokens[index - 1].lower() == "would":
        lemma = "want"
    if lemma is None:
        return Verb(desire, start, index, positive, be=False, past=False) if desire else None
    irregular = EN_IRREGULAR.get(word, word) != word and word not in ("has", "does", "goes")
    past = past or (not be and (word.endswith("ed") or irregular))
    return Verb(lemma, start, index + 1, positive, be, past, desire)


def _is_participle(word: str) -> bool:
    by_form = word.endswith(("ed", "en")) or EN_IRREGULAR.get(word, "have") not in ("have", "do")
    return by_form and lemma_of(word)[0] is not None


def lemma_of(word: str) -> tuple[str | None, bool]:
    """The dictionary form of a known verb, and whether this form is a finite one by itself."""
    if word in EN_IRREGULAR:
        return EN_IRREGULAR[word], True
    if word in EN_VERBS:
        return word, False
    for ending, put in (("ies", "y"), ("es", ""), ("s", ""), ("es", "e"), ("ied", "y"), ("ed", "e"), ("ed", "")):
        if word.endswith(ending) and (base := word.removesuffix(ending) + put) in EN_VERBS:
            return base, True
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            base = word.removesuffix(ending)
            for form in (base, base + "e", base[:-1]):
                if form in EN_VERBS:
                    return form, True
    return None, False
