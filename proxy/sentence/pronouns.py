"""Pronouns put back into names: "把它升级了" after "我们用 PostgreSQL" becomes "把 PostgreSQL 升级了".

Pure. In: a masked text, and what was said before it. Out: the text, where exactly one thing or person was named there.
Only the nearest text that names any counts; two names in it, or none anywhere, leave the pronoun as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice

from proxy.sentence import names
from proxy.types import Language

_LOOKED_BACK = 6
_LOOKED_AT_CHARS = 1_000
# 其他, 吉他, 他们, 他人; "这个项目" has its noun, and "那个，我想" is no pronoun.
_ZH = re.compile(
    "(?<![其吉排利维无])(?:(?P<person>[他她](?![们人妈乡杀日]))|(?P<thing>它(?!们)"
    r"|(?:这个|(?<!^)那个|那个(?!\s*[，,]))(?=\s*(?:$|[，。；！？,;!?]|不|很|太|更|比较|就|也|都|是(?!什么|谁|不是)|好[用看吃听]"
    r"|要|会|能|可以|吧|了|还))))"
)
_RUNS = (
    "runs?|uses?|works?|lives|costs|has|supports?|broke|failed|crashed|listens|stores|serves|needs|requires|replaced"
    "|depends|handles|starts|started|stopped|keeps|sits"
)
# "It is raining", "it's important that" name nothing; "it is on port 80" does.
_WHERE = (
    r"(?:now\s+|still\s+)?(?:on|at|in|called|named|running|installed|hosted|based|written|deployed|version|port|\d)"
)
_USES = (
    "uses?|used|using|likes?|liked|loves?|prefers?|hates?|hated|dislikes?|upgraded?|runs?|installed?|removed?|replaced?"
    "|deployed?|moved|switched to|tried|bought|avoids?|needs?|wants?|restarted|with|about"
)
_EN = re.compile(
    r"(?<![\w'’-])(?:"
    rf"(?P<thing>[Ii]t|[Tt]hat|[Tt]his)(?:(?=\s+(?:{_RUNS}|(?:is|was)\s+{_WHERE}))|(?P<thing_is>['’]s)(?=\s+{_WHERE}))"
    rf"|(?P<verb>(?:{_USES})\s+)(?P<object>it|that|this)"
    r"(?=\s*(?:$|[.,;!?])|\s+(?:to|for|on|in|with|because|since|now|every|again|instead)\b)"
    r"|(?P<its>[Ii]ts)(?=\s+[a-z])"
    r"|(?P<person>[Hh]e|[Ss]he)(?:(?P<person_is>['’]s)|(?=\s+[a-z]))"
    r"|(?P<whose>[Hh]is|[Hh]er)(?=\s+[a-z])(?!\s+(?:to|and|or|on|in|at|for)\b)|(?P<him>him)"
    r")(?![\w'’])"
)
_HINT = re.compile(r"[它他她]|[这那]个|\b(?:[Ii]ts?|[Tt]hat|[Tt]his|[Ss]?[Hh]e|[Hh]is|[Hh]er|him)\b")
_STAND_IN = re.compile("[\ue000-\uf8ff]")  # a quoted or code name
_STARTS = re.compile(r"(?:^|[.!?\n]\s*)[\s(]*$")


def named(text: str, before: Sequence[str], language: Language) -> str:
    """A text with its pronouns replaced by what they stand for, where that is certain.

    Args:
        text: A masked text.
        before: What was said before, the nearest last.
        language: Of the text.

    Returns:
        The text; a pronoun after a name in the text itself stays, since it stands for that.

    >>> named("它在 5433 端口", ["我们的库是 PostgreSQL"], "zh"), named("She likes tea", ["I met my sister Anna"], "en")
    ('PostgreSQL 在 5433 端口', "The user's sister Anna likes tea")
    >>> named("它在 5433 端口", ["我们用 PostgreSQL 和 Redis"], "zh")
    '它在 5433 端口'
    """
    if not before or _HINT.search(text) is None:
        return text
    pattern, replaced = (_ZH, _chinese) if language == "zh" else (_EN, _english)
    antecedents: dict[str, str | None] = {}

    def antecedent(find: Callable[[str, Language], tuple[str, ...]], until: int) -> str | None:
        if _STAND_IN.search(text, 0, until) or find(text[:until], language):
            return None
        if find.__name__ not in antecedents:
            antecedents[find.__name__] = _only(find, before, language)
        return antecedents[find.__name__]

    def instead(found: re.Match[str]) -> str:
        of_person = bool(found["person"]) or (language != "zh" and bool(found["whose"] or found["him"]))
        name = antecedent(names.persons if of_person else names.things, found.start())
        return found.group() if name is None else replaced(found, name)

    return pattern.sub(instead, text)


def _only(find: Callable[[str, Language], tuple[str, ...]], before: Sequence[str], language: Language) -> str | None:
    """The one name in the nearest text that has any."""
    for text in islice(reversed(before), _LOOKED_BACK):
        found = find(text[:_LOOKED_AT_CHARS], language)
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _chinese(found: re.Match[str], name: str) -> str:
    def gap(outer: str, inner: str) -> str:
        return " " if outer.isalnum() and inner.isalnum() and inner.isascii() else ""

    before, after = found.string[: found.start()][-1:], found.string[found.end() : found.end() + 1]
    return f"{gap(before, name[0])}{name}{gap(after, name[-1])}"


def _english(found: re.Match[str], name: str) -> str:
    if found["object"]:
        return f"{found['verb']}{name}"
    if found.group()[0].isupper() and name.startswith("the ") and _STARTS.search(found.string, 0, found.start()):
        name = f"T{name[1:]}"
    if found["its"] or found["whose"]:
        return f"{name}'s"
    return f"{name} is" if found["thing_is"] or found["person_is"] else name
