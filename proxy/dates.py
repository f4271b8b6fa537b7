"""Relative dates made absolute: "上周五" and "last Friday" become the day they meant when they were said.

Pure. In: a text, and the moment it was said in the user's zone. Out: the text with ISO dates (weeks, months and years
as such), times of day kept beside them. Code, addresses and quoted words stay.
"""

from __future__ import annotations

from datetime import datetime

from proxy.sentence import dates_en, dates_zh
from proxy.sentence.masking import MAX_CHARS, mask, unmask
from proxy.types import Language


def absolute(text: str, said_at: datetime, language: Language) -> str:
    """Write the dates of a text so that they mean the same tomorrow.

    Args:
        text: A sentence or a few; longer texts than 4,000 characters come back as they are.
        said_at: When it was said, in the user's zone: its date is "today".
        language: Of the text; dates in the other language are written the way this one does it.

    Returns:
        The text; the same one when nothing in it is relative. What only looks like a date (a name, a habit) stays.

    >>> from datetime import UTC
    >>> monday = datetime(2026, 11, 30, 21, 15, tzinfo=UTC)
    >>> absolute("上周五上线了，下个月复盘", monday, "zh")
    '2026-11-27 上线了，2026-12 复盘'
    >>> absolute("I fly to Rome next Tuesday morning", monday, "en")
    'I fly to Rome on 2026-12-08 in the morning'
    >>> absolute("每周五都去明天集团", monday, "zh")
    '每周五都去明天集团'
    """
    if len(text) > MAX_CHARS:
        return text
    masked, spans = mask(text)
    return unmask(resolved(masked, said_at, language), spans)


def resolved(masked: str, said_at: datetime, language: Language) -> str:
    """`absolute`, for a text that is masked already."""
    found = dates_en.replacements(masked, said_at, chinese=language == "zh")
    if not masked.isascii():
        found = sorted(found + dates_zh.replacements(masked, said_at))
    if not found:
        return masked
    pieces: list[str] = []
    end = 0
    for start, stop, instead in found:
        if start < end:
            continue
        before, after = masked[start - 1 : start], masked[stop : stop + 1]
        pieces += (masked[end:start], _gap(before, instead[:1]), instead, _gap(instead[-1:], after))
        end = stop if instead else _after_space(masked, start, stop)
    return "".join([*pieces, masked[end:]])


def _gap(left: str, right: str) -> str:
    """A space between a date and the letters or digits that it would run into."""
    return " " if left.isalnum() and right.isalnum() and (left.isascii() or right.isascii()) else ""


def _after_space(text: str, start: int, stop: int) -> int:
    """Where a text goes on after words were taken out of it: one of the spaces around them goes too."""
    alone = not start or text[start - 1].isspace()
    return stop + 1 if alone and text[stop : stop + 1] == " " else stop
