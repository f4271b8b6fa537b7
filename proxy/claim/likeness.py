"""Whether two texts say the same, by their words and by their claims; and whether only a measure differs between them.

Pure. Nothing that differs in a number, a name or a negation is ever the same.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from proxy.claim.lexicon import EN_VERBS, listed
from proxy.claim.verb import lemma_of
from proxy.claim.wording import content_words, plain

_CACHED = 4096
_NUMBER = re.compile(r"\d")
_NAME = re.compile(r"\bA\b|(?<![.!?] )(?<!^)\b[A-Z][\w.+#-]*|[A-Za-z]*\d[\w.]*")
_ANY_NAME = re.compile(r"\b[A-Za-z][\w.+#-]*|[A-Za-z]*\d[\w.]*")
_NEGATION = re.compile(
    r"不|没|别|无|勿|未|非|讨厌|反感|厌恶|\b(?:not?|never|none|without|neither|nor|hardly|stop(?:ped|s)?|except|dislikes?"
    r"|hate[sd]?|avoids?|disabled?|unable)\b",
    re.IGNORECASE,
)
# Words that two texts of the same claims may have or lack.
_LIGHT = frozenset("时候更都所有的地得把来去必须要需应该是在使用为了个些家区写说讲希望求想我们会上里中") | listed(
    "all strongly really just to use using have by that this it currently now we our would"
)
_PREDICATE_WORDS = frozenset("讨厌反感不喜欢喜爱热爱偏爱偏好习惯倾向使用采用养有拥保留存住居叫作做")
_MEASURE = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b\d+(?:[.:,]\d+)* ?(?:am|pm)\b"
    r"|(?:周|星期|礼拜)[一二三四五六日天]|(?:上午|下午|早上|晚上|凌晨|中午)?(?<![A-Za-z\d.第])\d+(?:[.:,]\d+)*(?:点半?(?:\d+分)?)?",
    re.IGNORECASE,
)
_ABOUT_USER = re.compile(r"(?:the )?users?\b(?!['’]s)|I\b|we\b|用户(?!的)|我(?!们?的)", re.IGNORECASE)
_HAPPENED = re.compile(r"[了过]|\b\w\w+(?<!e)ed\b")


@lru_cache(maxsize=_CACHED)
def _signs(text: str) -> tuple[tuple[str, ...], int, frozenset[str]]:
    """Numbers in order, how often a text denies, and the names in it."""
    flat = plain(text)
    numbers = tuple(re.findall(r"[-+]?\d+(?:[.:,]\d+)*\s*[%°$€£]?", flat))
    names = frozenset(name.casefold() for name in _NAME.findall(flat))
    return numbers, len(_NEGATION.findall(flat)), names


def same_signs(one: str, other: str) -> bool:
    """Whether two texts have the same numbers, names and negations: without that they are never one.

    >>> same_signs("Backups last thirty days", "We keep backups for 30 days"), same_signs("吃辣", "不吃辣")
    (True, False)
    """
    (numbers, denials, names), (other_numbers, other_denials, other_names) = _signs(one), _signs(other)
    # The first word of a sentence is written with a capital, name or not: it is looked for among all words.
    known, other_known = _all_words(one), _all_words(other)
    return numbers == other_numbers and denials == other_denials and names <= other_known and other_names <= known


@lru_cache(maxsize=_CACHED)
def _all_words(text: str) -> frozenset[str]:
    return frozenset(name.casefold() for name in _ANY_NAME.findall(plain(text)))


def same_words(one: str, other: str) -> bool:
    """Whether two texts have the same content words in the same order."""
    if abs(len(one) - len(other)) > 24 + len(one) // 4:
        return False  # a numeral or a few light words make no such difference
    words = content_words(one)
    return bool(words) and words == content_words(other)


def same_but_for_light_words(one: str, other: str) -> bool:
    """Whether two texts of the same claims have the same words otherwise, but for verbs alike and light words.

    >>> same_but_for_light_words("用户喜欢用 pnpm 管理依赖", "用户管理依赖时更偏好 pnpm")
    True
    >>> same_but_for_light_words("The user likes tea", "The user likes green tea")
    False
    """
    if not same_signs(one, other):
        return False
    here, there = (Counter(word.removesuffix("s") for word in content_words(text)) for text in (one, other))
    return all(_is_light(word) for word in {*(here - there), *(there - here)})


def _is_light(word: str) -> bool:
    if word in _LIGHT or word in _PREDICATE_WORDS:
        return True
    return word.isascii() and (lemma_of(word)[0] or lemma_of(word + "s")[0]) in EN_VERBS


@lru_cache(maxsize=_CACHED)
def _measured(text: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """The text with its times and amounts left open, these themselves, and whether it is of something that happened."""
    flat = plain(text)
    frame = content_words(_MEASURE.sub(" # ", flat))
    return frame, tuple(_MEASURE.findall(flat)), _HAPPENED.search(flat) is not None


_DENYING = listed("不 没 别 未 not no never longer doe do can could will would should any more anymore 再 有 了")


def only_the_denial_differs(one: str, other: str) -> bool:
    """Whether one text denies just what the other says.

    >>> only_the_denial_differs("用户抽烟", "用户不抽烟"), only_the_denial_differs("The user smokes", "The user naps")
    (True, False)
    """
    if bool(_signs(one)[1]) == bool(_signs(other)[1]):
        return False
    here, there = (tuple(word for word in content_words(text) if word not in _DENYING) for text in (one, other))
    return bool(here) and here == there


def only_the_end_differs(one: str, other: str) -> bool:
    """Whether two texts about a thing, not about the user, differ in one span alone, and not at their beginning.

    >>> only_the_end_differs("Invoices go out to Alpha Ltd", "Invoices go out to Beta Ltd")
    True
    >>> only_the_end_differs("Alice owns billing", "Bob owns billing")
    False
    """
    if _ABOUT_USER.match(one) or _ABOUT_USER.match(other) or _signs(one)[1] != _signs(other)[1]:
        return False
    here, there = content_words(one), content_words(other)
    if sorted(here) == sorted(there):
        return False
    start = _shared(here, there)
    end = _shared(here[start:][::-1], there[start:][::-1])
    least = 3 if len("".join(here)) == len(here) else 2
    differing = here[start : len(here) - end], there[start : len(there) - end]
    one_span = all(differing) and set(differing[0]).isdisjoint(differing[1])
    return start >= least and one_span and max(map(len, differing)) <= start + end + 2


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    return next(
        (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def only_a_measure_differs(one: str, other: str) -> bool:
    """Whether two texts are alike but for a time, a day or an amount that stands after what it is said of.

    >>> only_a_measure_differs("团队每周一开周会", "团队每周三开周会")
    True
    >>> only_a_measure_differs("团队每周一开周会", "团队每周一开例会")
    False
    """
    (frame, here, happened), (other_frame, there, also_happened) = _measured(one), _measured(other)
    if frame != other_frame or not here or happened or also_happened or len(here) != len(there):
        return False
    # What stands before says what is measured: "Ticket 12" and "Ticket 13" are two tickets.
    least = 2 if here[0].isdigit() else 1
    return "#" in frame and frame.index("#") >= least and sum(map(str.__ne__, here, there)) == 1
