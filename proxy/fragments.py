"""Whether a sentence about the user says anything to whoever reads it later: no scrap, no pointing at what is gone.

Pure. In: a draft, worded to stand alone. Out: yes or no. Raw turns and what tools did are not asked: they are records.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.types import Draft

_RECORDS: Final = frozenset({"turn", "tool_result", "tool_failure", "summary", "task", "lesson"})
"""Kinds that tell what happened; all others claim something about the user."""
_REDACTED = re.compile(r"\[redacted:\w+\]")
_LEAD = re.compile(
    r"(?:The user['’]s (?:[\w'’-]+ ){0,3}?[\w'’-]+|The user(?: [\w'’-]+){0,4}|Constraint of the user"
    r"|On the user['’]s side"
    r"|Decided by the user|Result|Decision|用户(?:的|这边|这里)?[一-鿿]{0,8}|结果|决定)\s*[:：]\s*"
)
"""What a template puts before the user's words."""
_POINTING = re.compile(
    # Nothing else is its subject; "it is 15, not 14" names both values.
    r"\W*(?:(?:it|that|this|these|those|they)(?:['’](?:s|re|ll|d)\b|\s+(?:is|are|was|were|has|have|had|will|would"
    r"|can|could|does|do|did|looks?"
    r"|works?|sounds?|seems?|feels?|needs?|always|never|really|just|helped|helps)\b|\W*$)"
    r"|(?:这|那)(?:个|些|样|种|里|次|条|句|段)?(?:就|也|都|还|真|很|太|挺|不|是|能|会|可以|[，,。！!]|$)|它们?(?!的))",
    re.IGNORECASE,
)
_HOLLOW = re.compile(
    r"\W*(?:it|this|that|them|those|these|one|some|more|less|thing|things|so|too|yes|no|not|ok|done|again|here|there"
    r"|now|please|the|a|an|is|are"
    r"|me|you|like|same|way|as)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’.-]*|[一-鿿]|[À-ɏͰ-῿぀-ヿ가-힯]+")
_NOUNLESS = re.compile(r"[^\W\d_a-zA-Z是]{1,8}(?:要求|规定|说|给|定|做|写|买|发|推荐|需要|想要)的")
_NAMED = re.compile(
    r"(?:The user(?:['’]s name is| is called| goes by)|用户(?:的名字)?(?:叫|是))\s*[:：]?\s*(?P<name>.+)$",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"\d|[_/\\@=<>{}()\[\]|$#]|^[a-z]+-[a-z]|\.[a-z]{2,4}\b|(?:^|\s)-|\s[a-z]$|^[a-z]+(?:\s[a-z]+)+$")
_FEW_ZH, _FEW_EN = 2, 1


def worth_keeping(draft: Draft) -> bool:
    """Whether a draft says something by itself.

    Args:
        draft: As it would be stored.

    Returns:
        False for a claim about the user that holds a redaction (it would only tell that there was a secret), is a bare
        figure or scrap, opens by pointing at something that is not named, or takes a technical token for a name.

    >>> from dataclasses import replace
    >>> one = Draft("r", "h", "用户更正：22.4%", "semantic", "correction", "user", 0.9, "zh")
    >>> worth_keeping(one), worth_keeping(replace(one, content="用户更正：效率是 22.4%"))
    (False, True)
    >>> worth_keeping(replace(one, content="The user's card is [redacted:card]", kind="fact"))
    False
    >>> worth_keeping(replace(one, content="The user's verdict: these are great", kind="feedback"))
    False
    >>> worth_keeping(replace(one, content="The user's name is sync-agent v", kind="fact", key="user.name"))
    False
    """
    if draft.kind in _RECORDS:
        return True
    content = draft.content.strip()
    if _REDACTED.search(content):
        return False
    if draft.key == "user.name" and (named := _NAMED.match(content)):
        return _TOKEN.search(named.group("name").strip(" 。.!！")) is None
    lead = _LEAD.match(content)
    body = content[lead.end() :] if lead else content
    if _NOUNLESS.fullmatch(body.strip(" 。，,.!！")):
        return False
    pointing = draft.kind != "correction" and _POINTING.match(body) is not None
    return not pointing and _says_enough(body)


def _says_enough(body: str) -> bool:
    words: list[str] = [word for word in _WORD.findall(body) if not _HOLLOW.fullmatch(word)]
    zh: int = sum("一" <= word[0] <= "鿿" for word in words)
    return zh >= _FEW_ZH or len(words) - zh >= _FEW_EN or (zh > 0 and len(words) > zh)
