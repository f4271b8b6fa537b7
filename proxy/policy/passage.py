"""What a rule looks at: one event split into passages (sentences, or whole texts), with what is known about each.

Facts about a whole message (a part handed out, foreign text pasted) are found once per event, and only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import regex

from proxy.language import detect, scripts, sentences
from proxy.policy import speech
from proxy.policy.material import own_part
from proxy.policy.patterns import Clock, Found, readable
from proxy.types import Event, Language

MAX_SENTENCES = 60
_NUMBER = regex.compile(r"\d|[一二两三四五六七八九十百千万]+(?:个|人|次|天|年|月|岁|块|元|点|号|台|条)")
_DATE = regex.compile(
    r"\b\d{4}[-/.年]\d{1,2}|\d{1,2}[月/]\d{1,2}[日号]?|\d+月|今天|明天|后天|昨天|前天"
    r"|[上下这本]个?(?:周|星期|月|年)|(?:周|星期)[一二三四五六日天]"
    r"|\b(?:today|tomorrow|yesterday|tonight|(?:next|last|this) (?:week|month|year|\w+day)"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{1,2})\b",
    regex.IGNORECASE,
)
_CODE = regex.compile(
    r"`|--\w|\b\w+\(\)|[{};]\s*$|=>|::|^\s*(?:def|class|import|SELECT|sudo|git|docker|npm|pip)\s", regex.M
)
_URL = regex.compile(r"\b(?:https?|ftp|wss?)://\S|\bwww\.\w")


class Whole:
    """An event's texts, and facts about them that are found once.

    Args:
        event: The event.

    `claimed` holds the spans that rules have made memories of, for `unclaimed`.
    """

    def __init__(self, event: Event) -> None:
        self.event = event
        self.text = readable(event.text)
        self.clock = Clock([])
        self.claimed: list[tuple[int, int]] = []

    @cached_property
    def own(self) -> str:
        """The text without code blocks, quoted lines and pasted material."""
        return own_part(self.text).strip()

    @cached_property
    def pasted(self) -> bool:
        """Whether the message carries foreign text."""
        return len(self.own) < len(self.text.strip())

    @cached_property
    def role_play(self) -> bool:
        """Whether the message hands out a part to play."""
        return speech.role_play(self.text)

    @cached_property
    def asked_language(self) -> Language:
        """The user's language: what notes about tools and answers are written in."""
        return detect(self.event.user_text) if self.event.user_text else self.event.language

    @cached_property
    def sentences(self) -> tuple[Passage, ...]:
        """The writer's own sentences."""
        found, position = [], 0
        for sentence in sentences(self.own)[:MAX_SENTENCES]:
            at = self.own.find(sentence, position)
            position = at + len(sentence)
            found.append(Passage(self, sentence, scripts(sentence), at, self.own))
        return tuple(found)

    @cached_property
    def lines(self) -> str:
        """The writer's own sentences, one a line."""
        return "\n".join(sentence.text for sentence in self.sentences)

    @cached_property
    def languages(self) -> tuple[Language, ...]:
        """Every language of any sentence."""
        return tuple(dict.fromkeys(language for sentence in self.sentences for language in sentence.languages))

    @cached_property
    def message(self) -> tuple[Passage, ...]:
        """The whole text as it came."""
        text = self.text.strip()
        return (Passage(self, text, scripts(text), 0, text),)

    @cached_property
    def own_message(self) -> tuple[Passage, ...]:
        """The writer's own part as a whole."""
        return (Passage(self, self.own, scripts(self.own), 0, self.own),)

    @cached_property
    def request(self) -> tuple[Passage, ...]:
        """The newest user message, and the system text beside it."""
        system = self.event.data.get("system", "") if isinstance(self.event.data, Mapping) else ""
        texts = [self.text.strip(), readable(str(system)).strip()]
        return tuple(Passage(self, text, scripts(text), 0, text) for text in texts if text)


@dataclass(frozen=True, slots=True)
class Passage:
    """A text under test.

    Args:
        whole: The event it belongs to.
        text: As patterns see it.
        languages: Whose patterns may match, the main one first.
        offset: Where it starts in `paragraph`.
        paragraph: What it was cut from.
        start, end: Span of the match in `text`; all of it before anything matched.
        found: The match whose span it is.
    """

    whole: Whole
    text: str
    languages: tuple[Language, ...]
    offset: int
    paragraph: str
    start: int = 0
    end: int | None = None
    found: Found | None = field(default=None)

    @property
    def place(self) -> tuple[int, int]:
        """Span of the match in `paragraph`."""
        return self.offset + self.start, self.offset + (len(self.text) if self.end is None else self.end)

    @property
    def unclaimed(self) -> bool:
        """Whether no earlier rule has made a memory of these words."""
        start, end = self.place
        return not any(start < taken_end and taken_start < end for taken_start, taken_end in self.whole.claimed)

    def at(self, found: Found) -> Passage:
        """This passage with the span of a match."""
        return replace(self, start=found.start, end=found.end, found=found)


def _statement(passage: Passage) -> bool:
    return any(speech.says_something(sentence.text) for sentence in passage.whole.sentences)


LOOKS: Mapping[str, Callable[[Passage], Any]] = {
    "number": lambda passage: _NUMBER.search(passage.text),
    "date": lambda passage: _DATE.search(passage.text),
    "code": lambda passage: _CODE.search(passage.text),
    "url": lambda passage: _URL.search(passage.text),
    "statement": _statement,
    "question": lambda passage: speech.question(passage.text, passage.start, passage.end),
    "command": lambda passage: speech.command(passage.text),
    "hypothetical": lambda passage: speech.hypothetical(passage.text),
    "past": lambda passage: speech.past(passage.text, passage.start),
    "reported": lambda passage: speech.reported(passage.text, passage.start),
    "denied": lambda passage: speech.denied(passage.text, passage.start),
    "quoted": lambda passage: speech.quoted(passage.paragraph, passage.offset + passage.start),
    "composed": lambda passage: speech.composed(passage.text),
    "pasted": lambda passage: passage.whole.pasted,
    "third_person": lambda passage: speech.third_person(passage.text, passage.start, passage.end),
    "role_play": lambda passage: passage.whole.role_play,
}
"""How each feature of `has` is found; anything true counts."""


def features(passage: Passage, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the named features that a passage has, looking no further than the first."""
    return next(((name,) for name in names if LOOKS[name](passage)), ())
