"""What a rule looks at: one event split into passages (sentences, or whole texts), with what is known about each.

Facts about a whole message (a part handed out, foreign text pasted) are found once per event, and only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import regex

from proxy.language import detect, scripts, sentences
from proxy.policy import speech, whose
from proxy.policy.knowledge import NOTHING_KNOWN, Knowledge
from proxy.policy.literals import lowered
from proxy.policy.matcher import Clock, Found, Matcher
from proxy.policy.material import own_part
from proxy.policy.patterns import readable
from proxy.policy.play import ends_play, hands_out
from proxy.shelf import compiled
from proxy.types import Event, Language

T = TypeVar("T")
MAX_SENTENCES = 60
FEW_SENTENCES = 2
_NUMBER = compiled(r"\d|[一二两三四五六七八九十百千万]+(?:个|人|次|天|年|月|岁|块|元|点|号|台|条)")
_DATE = compiled(
    r"\b\d{4}[-/.年]\d{1,2}|\d{1,2}[月/]\d{1,2}[日号]?|\d+月|今天|明天|后天|昨天|前天"
    r"|[上下这本]个?(?:周|星期|月|年)|(?:周|星期)[一二三四五六日天]"
    r"|\b(?:today|tomorrow|yesterday|tonight|(?:next|last|this) (?:week|month|year|\w+day)"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{1,2})\b",
    regex.IGNORECASE,
)
_CODE = compiled(r"`|--\w|\b\w+\(\)|[{};]\s*$|=>|::|^\s*(?:def|class|import|SELECT|sudo|git|docker|npm|pip)\s", regex.M)
_URL = compiled(r"\b(?:https?|ftp|wss?)://\S|\bwww\.\w")


class Whole:
    """An event's texts, and facts about them that are found once.

    Args:
        event: The event.
        knowledge: What is stored; asked once per text.

    `claimed` holds the spans that rules have made memories of, for `unclaimed`; `absent` the features that no part of
    the text has, as far as that is known beforehand.
    """

    def __init__(self, event: Event, knowledge: Knowledge = NOTHING_KNOWN) -> None:
        self.event = event
        self.knowledge = knowledge
        self._answers: dict[tuple[str | None, ...], Any] = {}
        self._scripts: dict[str, tuple[Language, ...]] = {}
        self.text = readable(event.text)
        self.clock = Clock()
        self.claimed: list[tuple[int, int]] = []
        self.absent: frozenset[str] = frozenset()

    def scripts(self, text: str) -> tuple[Language, ...]:
        """The languages whose patterns may match a text of this event, the main one first; found once for each."""
        known = self._scripts.get(text)
        if known is None:
            known = self._scripts[text] = scripts(text)
        return known

    def is_known(self, name: str) -> bool:
        """Whether a stored memory is about a name."""
        return self._once(("known", name), lambda: self.knowledge.known(name))

    def value(self, text: str, language: Language) -> float:
        """The value classifier's figure for a text."""
        return self._once(("value", text), lambda: self.knowledge.value(text, language))

    def similar(self, text: str, kind: str | None) -> float:
        """How close the closest stored memory of a kind, or of any, is to a text."""
        return self._once(("similar", text, kind), lambda: self.knowledge.similar(text, kind))

    def _once(self, question: tuple[str | None, ...], ask: Callable[[], T]) -> T:
        if question not in self._answers:
            self._answers[question] = ask()
        return cast(T, self._answers[question])

    @property
    def searched(self) -> str:
        """Every text that a rule's own pattern may be run on is part of this one."""
        return self.text if self.event.type != "request" else "\n".join(passage.text for passage in self.request)

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
        """Whether the message hands out a part to play, or is said in one."""
        return (self.event.in_play and not ends_play(self.text)) or hands_out(self.text)

    @cached_property
    def joked(self) -> bool:
        """Whether the message takes back what it says as a joke."""
        return speech.joked(self.own)

    @cached_property
    def asked_language(self) -> Language:
        """The user's language: what notes about tools and answers are written in."""
        return detect(self.event.user_text) if self.event.user_text else self.event.language

    @cached_property
    def sentences(self) -> tuple[Passage, ...]:
        """The writer's own sentences."""
        found, position = [], 0
        plain = lowered(self.text) is not None
        for sentence in sentences(self.own)[:MAX_SENTENCES]:
            at = self.own.find(sentence, position)
            position = at + len(sentence)
            found.append(Passage(self, sentence, sentence.lower() if plain else None, at, self.own))
        return tuple(found)

    @cached_property
    def lines(self) -> Passage:
        """The writer's own sentences as one text, one a line."""
        text = "\n".join(sentence.text for sentence in self.sentences)
        return Passage(self, text, lowered(text), 0, text)

    @cached_property
    def languages(self) -> tuple[Language, ...]:
        """Every language of any sentence."""
        return tuple(dict.fromkeys(language for sentence in self.sentences for language in sentence.languages))

    def nowhere(self, matcher: Matcher) -> bool:
        """Whether a condition's patterns match in no sentence: one search instead of one in each."""
        if len(self.sentences) <= FEW_SENTENCES:
            return False  # looking at each costs no more
        return not matcher.anywhere(self.lines.text, self.lines.lowered, self.languages, self.clock)

    @cached_property
    def message(self) -> tuple[Passage, ...]:
        """The whole text as it came."""
        text = self.text.strip()
        return (Passage(self, text, lowered(text), 0, text),)

    @cached_property
    def own_message(self) -> tuple[Passage, ...]:
        """The writer's own part as a whole."""
        return (Passage(self, self.own, lowered(self.own), 0, self.own),)

    @cached_property
    def request(self) -> tuple[Passage, ...]:
        """The newest user message, and the system text beside it."""
        system = self.event.data.get("system", "") if isinstance(self.event.data, Mapping) else ""
        texts = [self.text.strip(), readable(str(system)).strip()]
        return tuple(Passage(self, text, lowered(text), 0, text) for text in texts if text)


@dataclass(frozen=True, slots=True)
class Passage:
    """A text under test.

    Args:
        whole: The event it belongs to.
        text: As patterns see it.
        lowered: From `literals.lowered`.
        offset: Where it starts in `paragraph`.
        paragraph: What it was cut from.
        start, end: Span of the match in `text`; all of it before anything matched.
        found: The match whose span it is.
    """

    whole: Whole
    text: str
    lowered: str | None
    offset: int
    paragraph: str
    start: int = 0
    end: int | None = None
    found: Found | None = None

    @property
    def languages(self) -> tuple[Language, ...]:
        """Whose patterns may match, the main one first."""
        return self.whole.scripts(self.text)

    @property
    def place(self) -> tuple[int, int]:
        """Span of the match in `paragraph`."""
        return self.offset + self.start, self.offset + (len(self.text) if self.end is None else self.end)

    @property
    def unclaimed(self) -> bool:
        """Whether no earlier rule has made a memory of these words."""
        start, end = self.place
        return not any(start < taken_end and taken_start < end for taken_start, taken_end in self.whole.claimed)

    @property
    def known(self) -> bool:
        """Whether memories are stored about everything the match captured, or about the text where it captured nothing.

        One new name among them makes the whole unknown.
        """
        captured = self.found.captures.values() if self.found else ()
        names = [name for text in captured if (name := text.strip())] or [self.text]
        return all(map(self.whole.is_known, names))

    @property
    def value(self) -> float:
        """The value classifier's figure for the text."""
        return self.whole.value(self.text, self.languages[0])

    def similar(self, kind: str | None) -> float:
        """How close the closest stored memory of a kind, or of any, is to the text."""
        return self.whole.similar(self.text, kind)

    def at(self, found: Found) -> Passage:
        """This passage with the span of a match."""
        return Passage(self.whole, self.text, self.lowered, self.offset, self.paragraph, found.start, found.end, found)

    def first(self, matcher: Matcher) -> Found | None:
        """The first match of a condition's patterns."""
        return matcher.first(self.text, self.lowered, self.languages, self.whole.clock)

    def every(self, matcher: Matcher) -> Iterator[Found]:
        """All matches of a condition's patterns."""
        return matcher.every(self.text, self.lowered, self.languages, self.whole.clock)


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
    "reported": lambda passage: whose.reported(passage.text, passage.start),
    "denied": lambda passage: passage.whole.joked or speech.denied(passage.text, passage.start),
    "passing": lambda passage: speech.passing(passage.text),
    "quoted": lambda passage: speech.quoted(passage.paragraph, passage.offset + passage.start),
    "composed": lambda passage: speech.composed(passage.text),
    "pasted": lambda passage: passage.whole.pasted,
    "third_person": lambda passage: whose.third_person(passage.text, passage.start, passage.end),
    "role_play": lambda passage: passage.whole.role_play,
}
"""How each feature of `has` is found; anything true counts."""


def features(passage: Passage, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the named features that a passage has, looking no further than the first."""
    absent = passage.whole.absent
    for name in names:
        if name not in absent and LOOKS[name](passage):
            return (name,)
    return ()
