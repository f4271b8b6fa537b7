"""Content made to stand alone: who, what and when are in the sentence, whoever reads it, whenever.

Pure. In: what a rule proposes to remember, when it was said, and what was said before. Out: the same sentence with its
relative dates as ISO dates, the first person as the user, and pronouns as names where there is no doubt about them.
Code, addresses and quoted words stay as they were said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, tzinfo

from proxy.dates import resolved
from proxy.language import sentences
from proxy.sentence import first_person, pronouns
from proxy.sentence.masking import MAX_CHARS, mask, unmask
from proxy.types import Draft, Event, Language

_OPENER = re.compile(
    r"(?:(?:请|麻烦)?(?:你|您)?(?:帮我|给我)?(?:记住|记一下|记下来?)(?:了|一下|哈|啊)?(?:[，,：:。!！]\s*|\s+|(?=[我咱用以每不别]))"
    r"|顺便(?:说|提|讲)(?:一下|一句|下)?[，,：:]?\s*|(?:哦|噢|嗯|啊|对了|另外|话说|是这样的?)[，,]\s*|(?:请)?注意[，,：:]\s*"
    r"|(?i:(?:please\s+|just\s+|and\s+|so\s+|ok(?:ay)?,?\s+){0,2}"
    r"(?:remember|don['’]t forget|keep in mind|note|bear in mind)"
    r"(?:\s+that\s+|\s*[:,]\s*|\s+(?=(?:I|my|we|our|I['’]m)\b))"
    r"|by the way,?\s+|btw,?\s+|fyi,?\s+|oh,?\s+|well,\s+|anyway,\s+|also,\s+))",
)
# A full stop after an abbreviation is part of it.
_CLOSER = re.compile(
    r"(?:(?<![酒网贴咖茶氧书水啡话])吧|(?<!毛)呢|[呀哦呗喔噢嘞哟啦]|(?<![嘻哈])哈+|(?<!啊)啊|[。！!；;，,、~～\s]+"
    r"|(?<=[\w)\]）%\ue000-\uf8ff])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bInc)(?<!\bLtd)(?<!\bCorp)(?<!\bCo)(?<!\b[A-Za-z])\."
    r"|(?<=\w),?\s+(?i:by the way|btw|fyi|you know|lol|haha(?:ha)*|tho))$"
)
_TAIL_CHARS = 24
_DATES: tuple[Language, ...] = ("zh", "en")


def stand_alone(
    content: str, *, said_at: datetime, language: Language, before: Sequence[str] = (), of_user: bool = True
) -> str:
    """Make a memory's sentence mean the same to whoever reads it later.

    Args:
        content: What is to be remembered; over 4,000 characters it comes back as it is.
        said_at: When it was said, aware, in the user's zone.
        language: Of the content; in others than Chinese and English nothing is changed.
        before: What was said before, in order, the nearest last: the previous exchange, then the earlier sentences of
            the same message. Pronouns are looked up there.
        of_user: Whether the user's own words are in it; else "I" is somebody else, and stays.

    Returns:
        The sentence, without a full stop; unchanged where it stood alone already. Never empty unless `content` is.

    >>> from datetime import UTC
    >>> monday = datetime(2026, 11, 30, tzinfo=UTC)
    >>> stand_alone("记住，我下周二要去东京啦。", said_at=monday, language="zh")
    '用户 2026-12-08 要去东京了'
    >>> stand_alone("By the way, I don't eat meat.", said_at=monday, language="en")
    'The user does not eat meat'
    >>> stand_alone("我们把它升级到 16 了", said_at=monday, language="zh", before=["我们的库是 PostgreSQL"])
    '用户把 PostgreSQL 升级到 16 了'
    """
    if language not in _DATES or len(content) > MAX_CHARS:
        return content
    masked, spans = mask(content.strip())
    text = _opened(masked)
    text = resolved(text, said_at, language)
    text = pronouns.named(text, before, language)
    if of_user:
        text = (first_person.chinese if language == "zh" else first_person.english)(text)
    text = _closed(text)
    if text.startswith("the user"):  # a sentence begins with it
        text = f"T{text[1:]}"
    return unmask(text, spans) or content


def standing(draft: Draft, event: Event, zone: tzinfo, before: Sequence[str] = ()) -> Draft:
    """A draft with its content made to stand alone.

    Args:
        draft: As the rule proposed it; words that a rule keeps as said stay so.
        event: What it was made from.
        zone: The user's time zone.
        before: What was said before that, the nearest last.

    Returns:
        The draft; the same one when nothing had to be changed.
    """
    if draft.as_said or draft.kind == "turn":
        return draft
    content = stand_alone(
        draft.content,
        said_at=event.at.astimezone(zone),
        language=draft.language,
        before=[*before, *_earlier_sentences(event, draft)],
        of_user=event.type == "user_message",
    )
    return draft if content == draft.content else replace(draft, content=content)


def _earlier_sentences(event: Event, draft: Draft) -> list[str]:
    """The sentences of the user's message before the one that the draft was made from."""
    if event.type != "user_message":
        return []
    said = sentences(event.text)
    words = draft.content.casefold()
    own = (place for place, one in enumerate(said) if one.strip(" .。!！?？").casefold() in words)
    return said[: next(own, len(said) - 1)]


def _opened(text: str) -> str:
    """Without "remember that" and "by the way" before it."""
    while (found := _OPENER.match(text)) and (rest := text[found.end() :].lstrip()):
        text = rest[0].upper() + rest[1:] if rest[0].islower() and text[0].isupper() else rest
    return text


def _closed(text: str) -> str:
    """Without the particles and the full stop after it."""
    while (cut := _CLOSER.sub(_kept, text[-_TAIL_CHARS:])) != text[-_TAIL_CHARS:] and (
        rest := text[:-_TAIL_CHARS] + cut
    ):
        text = rest
    return text


def _kept(found: re.Match[str]) -> str:
    return "了" if found.group() == "啦" else ""  # 了 and 啊 in one
