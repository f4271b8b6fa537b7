"""Words that say that something has changed, that it comes on top of what there is, or what it takes the place of.

Pure. In: a text. Out: yes or no, or the words replaced.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from proxy.claim.wording import plain, words

_CHANGED = re.compile(
    r"现在|其实|应该是|纠正|更正|不对|不再|如今|改用|不是.{1,20}(?:而?是)"
    r"|改[成为用到叫]|换[成到了用为]|搬[到去]|变[成为]|(?:迁移|升级|调整|更新|切换)[到为成]"
    r"|\b(?:now|no longer|not any ?more|any ?more|switched|changed|moved|migrated|upgraded|renamed|replaced|instead"
    r"|actually|correction|corrected|rather than|I meant|used to)\b",
    re.IGNORECASE,
)
_ADDED = re.compile(
    r"也|还(?!是|住|在|没)|另外|此外|同时|以及|又|新增|加上|除了"
    r"|\b(?:also|too|as well|additionally|in addition|besides|another|plus|alongside)\b",
    re.IGNORECASE,
)
_REPLACED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"从(?P<old>[^，,。]{1,20}?)(?:换|改|迁移?|搬|切换?|升级?|转|变|调整?)[到成为用]",
        r"把(?P<old>[^，,。]{1,20}?)(?:换|改|迁移|切换|升级|替换|变)[到成为用]",
        r"不是(?P<old>[^，,。]{1,20}?)(?=[，,。]|而是|$)",
        r"不再?(?:用|使用|喝|吃|住在?|开|喜欢)(?P<old>[^，,。了]{1,20}?)(?=了|[，,。]|$)",
        r"(?:取代|替代|代替|替换)了?(?P<old>[^，,。]{1,20})",
        r"(?:而不是|而非)(?P<old>[^，,。]{1,20})",
        r"\bfrom (?P<old>[^,.;]{1,40}?) to\b",
        r"\b(?:instead of|rather than|no longer (?:uses?|in|on|at|with)|replac(?:es|ed|ing)|away from|in place of)"
        r" (?P<old>[^,;]{1,40}?)(?= with\b| by\b|[,;]|\.?$)",
        r",\s*(?:and )?not (?P<old>[^,;]{1,40}?)(?=[,;]|\.?$)",
        r"\bnot (?P<old>[^,;]{1,40}?),? but\b",
        r"\bused to (?:be|use|live in|work at|like) (?P<old>[^,;]{1,40}?)(?=[,;]|\.?$)",
    )
)


def says_change(text: str) -> bool:
    """Whether a text says that something is no longer as it was.

    >>> says_change("我现在喜欢茶"), says_change("I know about tea")
    (True, False)
    """
    return _CHANGED.search(text) is not None


def says_addition(text: str) -> bool:
    """Whether a text adds to what there is.

    >>> says_addition("The user also speaks French"), says_addition("用户还养了一只狗"), says_addition("用户喝茶")
    (True, True, False)
    """
    return _ADDED.search(text) is not None


def replaced(text: str) -> tuple[tuple[str, ...], ...]:
    """The words that a text says to hold no longer.

    >>> replaced("The user changed from Jenkins to Actions"), replaced("会议是周五，不是周四")
    ((('jenkins',),), (('周', '四'),))
    """
    found = (pattern.search(text) for pattern in _REPLACED)
    return tuple(old for match in found if match and (old := words(match["old"])))


def sharing(sentence: str, wanted: Collection[str]) -> bool:
    """Whether a sentence has one of these content words."""
    return not set(words(plain(sentence))).isdisjoint(wanted)
