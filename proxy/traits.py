"""What can be seen of a memory without knowing the question, and of a question without knowing the memories.

Pure. In: a text. Out: `Traits` of a memory (who speaks, does it ask, does it name times), `Asked` of a question (its
parts, the names and dates in it, what it is after). Both are cheap, and kept: the same texts come again and again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.language import sentences

VERSION = "1"
"""Raise it when a memory's traits come out otherwise than before: stored ones are then worked out anew at start."""
_LOOKED_AT_CHARS = 2_000
_KEPT = 1_024
_SPEAKER = re.compile(r"([A-Z\u4e00-\u9fff][\w.'-]{0,20}(?: [A-Z][\w.'-]{0,20})?)(?::\s|：\s*)")
_TIME = re.compile(
    r"(?i)\b(?:yesterday|today|tomorrow|tonight|last|next|ago|since|recently|(?:week|month|year|weekend)s?|this morning"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october"
    r"|november|december|\d{4})\b|[昨今明前后]天|[上下]个?[周月]|[去今明前]年|周[一二三四五六日末天]|星期|[月号日年点]"
)
_STANDING = re.compile(
    r"(?i)^\W*(?:please )?(?:always|never|from now on|whenever|every time|make sure (?:to|you)|don['’]t ever)\b"
    r"|\bwhen(?:ever)? I (?:ask|say|mention)\b|^(?:以后|从现在起|从今往后|每次|一律|务必|永远|不要再|别再)"
)
_PREFERENCE = re.compile(
    r"(?i)\bI(?:['’]d| would)? (?:really |much |always )?(?:prefer|like|love|enjoy|hate|dislike)\b|\bmy favou?rite\b"
    r"|\buser (?:prefers|likes|loves|dislikes|hates)\b|喜欢|偏好|偏爱|讨厌|更愿意|中意"
)
_ASKS_WHEN = re.compile(
    r"(?i)\bwhen\b|\b(?:what|which) (?:date|day|month|year|time)\b|\bhow long\b"
    r"|什么时[候间]|啥时候|哪[天年]|哪一[天年]|几[号点月]|何时|多久|日期|什么日子"
)
_ASKS_ADVICE = re.compile(
    r"(?i)\b(?:recommend|suggest|prefer|favou?rite|should I|can you help|could you|would you|what do you think"
    r"|how (?:can|should|do|would) (?:I|you|we))\b|推荐|喜欢|偏好|适合|建议"
)
_CHANGED = re.compile(
    r"(?i)\b(?:now|new|newly|recently|no longer|anymore|instead|already|so far"
    r"|(?:moved|changed|decreased|raised|reduced|reached|grown|switched|replaced|postponed)(?: \w+){0,4} (?:to|by|from)"
    r"|increased|extended|improved|re-?scheduled|updated|adjusted)\b"
    r"|现在|目前|如今|最近|刚刚?|改[成到为]|换[成了]|不再|已经|推迟|提前|涨到|降到|增加到|减少到|更新"
)
_ASKS_PRESENT = re.compile(
    r"(?i)^\W*(?:(?:so|and|by the way),? )?(?:how (?:many|much|often|long|old)|what(?:['’]s| is| are| time)"
    r"|when(?:['’]s| is)|where (?:is|are|do|does)|who(?:['’]s| is)|which|what \w+(?: \w+)? (?:is|are|do|does|should))\b"
    r"|现在|目前|如今|是什么|是多少|多少|几[点号个次天]|是谁|在哪|哪[里儿个天家]"
)
_ALSO = re.compile(r"(?:另外|还有|此外)[，,]?|\s+(?=(?:and|also) (?:what|when|where|who|how|which)\b)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED_DATE = re.compile(
    r"(?i)\b(?:(?P<before>\d{1,2})(?:st|nd|rd|th)?\s+(?:of )?)?"
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?(?!\d))?(?:,?\s+(?P<year>\d{4}))?"
)
_WRITTEN_DATE = re.compile(
    r"(?:(?P<year>\d{4})[-/年])(?P<month>\d{1,2})(?:[-/月](?P<day>\d{1,2}))?|(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号])?"
)
_WORD = re.compile(r"[^\W\d_][\w.'-]*")
_LEAST_PART_CHARS = 4
_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class Traits:
    """Of a memory's text.

    Args:
        speaker: Who says it, in lower case; empty where it names nobody.
        asks: It ends with a question.
        times: It says when something is.
        standing: It is an instruction for all time.
        preference: It says what somebody likes.
        changed: It says that something is not as it was.
    """

    speaker: str
    asks: bool
    times: bool
    standing: bool
    preference: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class Day:
    """A date in a question; the year or the day may be open."""

    year: int | None
    month: int
    day: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """Of a question.

    Args:
        parts: Its sentences where it has several, each of which asks on its own; else empty.
        words: Its words in lower case, by which a speaker is known again.
        text: In lower case.
        when: It asks for a time.
        advice: It asks what to do or to take.
        present: It asks how something is now.
        days: The dates in it.
    """

    parts: tuple[str, ...]
    words: frozenset[str]
    text: str
    when: bool
    advice: bool
    present: bool
    days: tuple[Day, ...]

    def names(self, speaker: str) -> bool:
        """Whether it speaks of this speaker: by the first name, or, in scripts without spaces, anywhere in the text.

        >>> asked("What did Ann say?").names("ann lee"), asked("小王说了什么？").names("小王"), asked("?").names("")
        (True, True, False)
        """
        if not speaker:
            return False
        return speaker.split()[0] in self.words if speaker.isascii() else speaker in self.text


@lru_cache(maxsize=_KEPT)
def traits(text: str) -> Traits:
    """What can be seen of a memory's text; only the first 2,000 characters are looked at for words.

    >>> traits("Ann: I moved here last year.")
    Traits(speaker='ann', asks=False, times=True, standing=False, preference=False, changed=False)
    >>> traits("小王：我搬家了").speaker, traits("port:5433").speaker
    ('小王', '')
    >>> traits("以后回答都用中文").standing, traits("我更喜欢茶").preference, traits("你去哪儿？").asks
    (True, True, True)
    """
    spoken = _SPEAKER.match(text)
    body = text[spoken.end() if spoken else 0 : _LOOKED_AT_CHARS]
    return Traits(
        speaker=spoken.group(1).lower() if spoken else "",
        asks=text.rstrip().endswith(("?", "？")),
        times=_TIME.search(body) is not None,
        standing=_STANDING.search(body) is not None,
        preference=_PREFERENCE.search(body) is not None,
        changed=_CHANGED.search(body) is not None,
    )


@lru_cache(maxsize=1_024)
def asked(question: str) -> Asked:
    """What can be seen of a question.

    >>> asked("When did I visit Rome? Also, what did I eat there?").parts
    ('When did I visit Rome?', 'Also, what did I eat there?')
    >>> asked("她几号走？").when, asked("What happened on May 23, 2023?").days
    (True, (Day(year=2023, month=5, day=23),))
    """
    text = question[:_LOOKED_AT_CHARS]
    small = text.lower()
    words = frozenset(word.removesuffix("'s") for word in _WORD.findall(small.replace("’", "'")))
    return Asked(
        parts=_parts(text),
        words=words,
        text=small,
        when=_ASKS_WHEN.search(text) is not None,
        advice=_ASKS_ADVICE.search(text) is not None,
        present=_ASKS_PRESENT.search(text) is not None,
        days=tuple(_days(text)),
    )


def _parts(text: str) -> tuple[str, ...]:
    found = [
        piece.strip()
        for sentence in sentences(text)
        for piece in _ALSO.split(sentence)
        if len(piece.strip()) >= _LEAST_PART_CHARS
    ]
    return tuple(found) if 1 < len(found) <= _MOST_PARTS else ()


def _days(text: str) -> list[Day]:
    found = []
    for one in _NAMED_DATE.finditer(text):
        day, year = one["before"] or one["after"], one["year"]
        if one["month"].lower() in ("may", "mar", "march") and not (day or year):
            continue  # a verb as often as a month
        month = _MONTHS.index(one["month"].lower()[:3]) + 1
        found.append(Day(int(year) if year else None, month, int(day) if day else None))
    for one in _WRITTEN_DATE.finditer(text):
        month, day = int(one["month"] or one["m"]), one["day"] or one["d"]
        if 1 <= month <= 12:
            found.append(Day(int(one["year"]) if one["year"] else None, month, int(day) if day else None))
    return found
