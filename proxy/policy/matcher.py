"""The patterns of one condition run on a text: each with a time limit, and only where it can match at all.

In: patterns by language, a text, the languages it is in. Out: `Found`. A pattern is not run on a text that lacks what
`literals.required` says it needs: looking for a few words costs a tenth of running it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import regex

from proxy.policy.literals import required
from proxy.policy.patterns import MAX_MATCHES, ByLanguage, compiled
from proxy.types import Language

RUN_TIMEOUT_S = 0.05


@dataclass(frozen=True, slots=True)
class Found:
    """One match.

    Args:
        pattern: The pattern that matched.
        start, end: Span in the text that was searched.
        captures: Named groups that took part.
        language: Whose pattern it was.
    """

    pattern: str
    start: int
    end: int
    captures: Mapping[str, str]
    language: Language


@dataclass(slots=True)
class Clock:
    """Notes patterns that ran out of time during one evaluation."""

    timed_out: list[str]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A pattern, and what a text must hold for it to match.

    Args:
        pattern: Compiled.
        clauses: From `literals.required`: one literal of each stands in every lower-cased text that it matches.
    """

    pattern: regex.Pattern[str]
    clauses: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, text: str, *, lines: bool) -> Self:
        """Compile a pattern as it is written; `lines` as in `patterns.compiled`."""
        return cls(compiled(text, lines), tuple(tuple(sorted(clause)) for clause in required(text, lines)))

    def possible(self, lowered: str | None) -> bool:
        """Whether it may match in a text; `lowered` as from `literals.lowered`, None when that is unknown."""
        if lowered is None:
            return True
        holds = lowered.__contains__
        return all(any(map(holds, clause)) for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class Matcher:
    """The patterns of one condition, ready to run.

    `text` is always from `patterns.readable`, `lowered` the same text from `literals.lowered`, and `languages` are
    those whose patterns are tried, in order. A pattern that runs out of time does not match; `clock` takes it down.
    """

    patterns: Mapping[Language, tuple[Guarded, ...]]

    @classmethod
    def of(cls, source: ByLanguage, *, lines: bool = False) -> Self:
        """Compile what a policy file says; `lines` as in `patterns.compiled`."""
        given = source.given().items()
        return cls({lang: tuple(Guarded.of(text, lines=lines) for text in texts) for lang, texts in given})

    def anywhere(self, text: str, lowered: str | None, languages: tuple[Language, ...], clock: Clock) -> bool:
        """Whether any pattern matches at all: the quick look before `every` is asked for each sentence."""
        return any(_first(one.pattern, text, clock) for one, _ in self._possible(lowered, languages))

    def first(self, text: str, lowered: str | None, languages: tuple[Language, ...], clock: Clock) -> Found | None:
        """The first match of any pattern, or None."""
        for one, language in self._possible(lowered, languages):
            if (match := _first(one.pattern, text, clock)) is not None:
                return _found(match, language)
        return None

    def every(self, text: str, lowered: str | None, languages: tuple[Language, ...], clock: Clock) -> Iterator[Found]:
        """All matches that do not overlap, of the first language that has any; at most eight."""
        taken: list[tuple[int, int]] = []
        of: Language | None = None
        for one, language in self._possible(lowered, languages):
            if taken and language != of:
                return
            of = language
            for match in _spans(one.pattern, text, clock):
                start, end = match.span()
                if len(taken) < MAX_MATCHES and not any(start < e and s < end for s, e in taken):
                    taken.append((start, end))
                    yield _found(match, language)

    def _possible(self, lowered: str | None, languages: tuple[Language, ...]) -> Iterator[tuple[Guarded, Language]]:
        for language in languages:
            for one in self.patterns.get(language, ()):
                if one.possible(lowered):
                    yield one, language


def _first(pattern: regex.Pattern[str], text: str, clock: Clock) -> regex.Match[str] | None:
    try:
        return pattern.search(text, timeout=RUN_TIMEOUT_S)
    except TimeoutError:
        clock.timed_out.append(pattern.pattern)
        return None


def _spans(pattern: regex.Pattern[str], text: str, clock: Clock) -> Iterator[regex.Match[str]]:
    try:
        yield from pattern.finditer(text, timeout=RUN_TIMEOUT_S)
    except TimeoutError:
        clock.timed_out.append(pattern.pattern)


def _found(match: regex.Match[str], language: Language) -> Found:
    captures = {name: text for name, text in match.groupdict().items() if text is not None} if match.re.groups else {}
    return Found(match.re.pattern, match.start(), match.end(), captures, language)
