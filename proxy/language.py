"""Which language a text is in, and where its sentences end: Chinese and English are told apart, the rest is other.

Pure and cheap (microseconds for a message): only the first 2,000 characters are looked at for the language.
"""

from __future__ import annotations

import re

from proxy.types import Language

_LOOKED_AT_CHARS = 2_000
_IDEOGRAPH = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_IDEOGRAPHS = re.compile(f"[{_IDEOGRAPH}]")
_KANA_HANGUL = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u1100-\u11ff\uac00-\ud7a3]")
_OTHER_LETTERS = re.compile(r"[\u0370-\u1fff]")
_LATIN_WORDS = re.compile(r"[A-Za-z\u00c0-\u024f]+(?:['’][A-Za-z]+)?")
# Names and product names travel between the languages, grammar does not: function words count three times.
_ZH_FUNCTION = re.compile("[我你他她它们的是在了不没有用要都和把请吗呢吧这那就也]")
_EN_FUNCTION = re.compile(
    r"\b(?:i|i'm|my|me|we|our|you|your|the|an?|is|are|was|in|on|at|to|of|for|and|with|it|this|that|do|does|not|please)\b",
    re.IGNORECASE,
)
_FUNCTION_WEIGHT = 2

_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|mr|mrs|ms|dr|no|st|jr|sr|approx|ver|[a-z]))\.$", re.IGNORECASE)
_CLOSERS = r"[”’」』）\"')\]]*"
_AFTER = r"(?=[!?。！？”’」』）\"')\]]|\s|$|[^\x00-\x7f])"
_MARKS = rf"(?:[。！？；]|[!?]{_AFTER})*{_CLOSERS}"
# A full stop ends a sentence only before a space or the end; "15.3", "example.com" and "a.py" stay whole. All that may
# end one stands in front: looking for it is eight times faster than trying every form at every letter.
_BOUNDARY = re.compile(
    rf"[。！？；!?….\n](?:(?<=[。！？；]){_MARKS}|(?<=[!?]){_AFTER}{_MARKS}|(?<=…)…?(?=\s|$)|(?<=\.)\.*[\"')\]]*(?=\s|$)"
    r"|(?<=\n)\n*)"
)


def detect(text: str) -> Language:
    """The language a text is mainly written in; works on a single word as well.

    Args:
        text: Any text.

    Returns:
        ``zh`` for Chinese, ``en`` for Latin script, ``other`` for everything else, empty text and bare numbers.

    >>> detect("我更喜欢深色模式"), detect("I like dark mode"), detect("こんにちは、元気ですか")
    ('zh', 'en', 'other')
    >>> detect("我用 Visual Studio Code"), detect("My name is 张伟"), detect("안녕하세요")
    ('zh', 'en', 'other')
    >>> detect("北京"), detect("nginx"), detect("8080"), detect("привет")
    ('zh', 'en', 'other', 'other')
    """
    head = text[:_LOOKED_AT_CHARS]
    if head.isascii():
        return "en" if _LATIN_WORDS.search(head) else "other"
    ideographs = len(_IDEOGRAPHS.findall(head))
    foreign = len(_KANA_HANGUL.findall(head))
    if foreign and foreign * 5 >= ideographs:
        return "other"
    words = len(_LATIN_WORDS.findall(head))
    if not ideographs:
        return "en" if words > len(_OTHER_LETTERS.findall(head)) / 4 else "other"
    if ideographs >= (1 + 2 * _FUNCTION_WEIGHT) * words:  # a word holds at most two function words, as in "i'do"
        return "zh"
    zh = ideographs + _FUNCTION_WEIGHT * len(_ZH_FUNCTION.findall(head))
    en = words + _FUNCTION_WEIGHT * len(_EN_FUNCTION.findall(head))
    return "zh" if zh >= en else "en"


def scripts(text: str) -> tuple[Language, ...]:
    """The languages whose patterns may match a text, the main one first.

    >>> scripts("我用 PostgreSQL"), scripts("My name is 张伟"), scripts("hello"), scripts("42")
    (('zh', 'en'), ('en', 'zh'), ('en',), ('other',))
    """
    main = detect(text)
    if main == "en" and not text.isascii() and _IDEOGRAPHS.search(text):
        return ("en", "zh")
    if main == "zh" and _LATIN_WORDS.search(text):
        return ("zh", "en")
    return (main,)


def sentences(text: str) -> list[str]:
    """Split a text into its sentences, each with its closing mark; line ends split as well, blank ones are left out.

    >>> sentences("我喜欢茶。你喜欢吗？")
    ['我喜欢茶。', '你喜欢吗？']
    >>> sentences("We run v15.3 on db.example.com. Mr. Lee knows! It's at 10.0.0.5:5432")
    ['We run v15.3 on db.example.com.', 'Mr. Lee knows!', "It's at 10.0.0.5:5432"]
    >>> sentences("see http://a.b/?q=1&r=2 now!? ok")
    ['see http://a.b/?q=1&r=2 now!?', 'ok']
    >>> sentences("  "), sentences("first line\\nsecond")
    ([], ['first line', 'second'])
    """
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of `sentences` stand: start and end of each.

    >>> sentence_spans(" One. Two")
    [(1, 5), (6, 9)]
    """
    found: list[tuple[int, int]] = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        end = boundary.end()
        if boundary.group() == "." and _ABBREVIATION.search(text, max(start, end - 9), end) and end < len(text):
            continue
        _add_span(found, text, start, end)
        start = end
    _add_span(found, text, start, len(text))
    return found


def _add_span(found: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    part = text[start:end]
    if said := part.strip():
        start += len(part) - len(part.lstrip())
        found.append((start, start + len(said)))
