"""What an English sentence tells of: a habit, the past, or something still to come.

Pure. In: a sentence in lower case, without the date itself. Out: yes or no.
"""

from __future__ import annotations

import re

_HABIT = re.compile(
    r"\b(?:every|each|always|usually|typically|normally|generally|often|sometimes|rarely|never|most|weekly|monthly|tends?"
    r"|habit)\b"
)
_FUTURE = re.compile(
    r"\b(?:will|going to|gonna|shall|due|deadline|scheduled|planned|planning|(?:is|are|am) (?:\w+ing|over)|starts?"
    r"|begins?|leaves?|arrives?|expires?|ends|need (?!an?\b)|(?:have|has) an?)\b|['’](?:ll\b|(?:m|re|s) \w+ing\b)"
)
_PAST = re.compile(
    r"\b(?:was|were|did|didn['’]t|had|went|got|met|saw|bought|said|told|left|came|made|took|broke|ran|began|gave|found"
    r"|lost|sent|wrote|paid|fell|spoke|flew|drove|ate|(?!need|feed|speed|seed|breed|embed|exceed|proceed|succeed)\w{2,}ed)"
    r"\b"
)
_PLANNED = re.compile(r"\b(?:is|are|am|have|has|will|be|to be|want|need|plan)\b|['’](?:s|m|re|ve|ll)\b")
_TOOK = re.compile(
    r"\b(?:done|finished?|finish|completed?|built|build|learn(?:ed|t)?|takes?|took|within|once|twice|times|made|wrote|read"
    r"|ready|grew|lost|gained)\b[^,.;!?]*$"
)


def habitual(sentence: str) -> bool:
    """Whether it is done again and again.

    >>> habitual("i usually go on"), habitual("i went on")
    (True, False)
    """
    return _HABIT.search(sentence) is not None


def past(sentence: str) -> bool:
    """Whether it has happened, and is not planned.

    >>> past("i broke it on"), past("it is scheduled on"), past("i've booked it on")
    (True, False, False)
    """
    return _PAST.search(sentence) is not None and _PLANNED.search(sentence) is None


def ahead(before: str, sentence: str) -> bool:
    """Whether "in two days" after `before` is when, and not how long it took.

    >>> ahead("i will leave ", "i will leave "), ahead("i built it ", "i built it ")
    (True, False)
    """
    return _TOOK.search(before) is None and _FUTURE.search(sentence) is not None
