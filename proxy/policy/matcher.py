"""The patterns of one condition run on a text: each with a time limit, and only where it can match at all.

In: patterns by language, a text, the languages it is in. Out: `Found`. A pattern is not run on a text that lacks what
`literals.required` says it needs: looking for a few words costs a tenth of running it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Self, TypeVar

import regex

from proxy.policy.literals import required
from proxy.policy.patterns import MAX_MATCHES, ByLanguage, compiled
from proxy.types import Language

RUN_TIMEOUT_S = 0.05
"""CPU time of its own that makes a pattern count as too slow for a text, when it has not ended within that."""
_PATIENCE = (1, 4, 16)
"""How many times that the whole process may take meanwhile, try after try."""
_USED_UP = 0.9
"""The share of it from which on a try has used it up: the engine looks at its clock now and then only."""
T = TypeVar("T")
Spans = list[tuple[int, int]]


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


class TimedOut(NamedTuple):
    """A pattern that ran out of time.

    Args:
        rule_id: The rule that was tried; empty where patterns are no rule's.
        pattern: As written.
    """

    rule_id: str
    pattern: str


class Clock:
    """Notes the patterns that run out of time during one evaluation; `rule_id` is the rule that is being tried.

    `slow` are those that used up their own time: they are not run again.
    """

    def __init__(self) -> None:
        self.rule_id = ""
        self.timed_out: list[TimedOut] = []
        self.slow: set[regex.Pattern[str]] = set()

    def run(self, pattern: regex.Pattern[str], look: Callable[[float], T]) -> T | None:
        """Run a pattern, or take it down as too slow.

        The engine's limit counts the CPU time of all the process's threads, so on a busy machine an innocent pattern
        runs into it. What counts is its own thread's: it is tried again, for longer, until that is up.

        Args:
            pattern: Which.
            look: Runs it, with the engine's limit in seconds.

        Returns:
            What `look` gives; None when the pattern's own time is up, which is then in `timed_out`.
        """
        if pattern in self.slow:
            return None
        try:
            return look(RUN_TIMEOUT_S)
        except TimeoutError:
            return self._again(pattern, look)

    def _again(self, pattern: regex.Pattern[str], look: Callable[[float], T]) -> T | None:
        for times in _PATIENCE:
            started = time.thread_time()
            try:
                return look(RUN_TIMEOUT_S * times)
            except TimeoutError:
                if time.thread_time() - started >= RUN_TIMEOUT_S * _USED_UP:
                    self.slow.add(pattern)
                    break
        self.timed_out.append(TimedOut(self.rule_id, pattern.pattern))
        return None


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
        taken: Spans = []
        of: Language | None = None
        for one, language in self._possible(lowered, languages):
            if taken and language != of:
                return
            of = language
            matches = _apart(one.pattern, text, taken, clock)
            taken += [match.span() for match in matches]
            for match in matches:
                yield _found(match, language)

    def _possible(self, lowered: str | None, languages: tuple[Language, ...]) -> Iterator[tuple[Guarded, Language]]:
        for language in languages:
            for one in self.patterns.get(language, ()):
                if one.possible(lowered):
                    yield one, language


def _first(pattern: regex.Pattern[str], text: str, clock: Clock) -> regex.Match[str] | None:
    return clock.run(pattern, lambda limit_s: pattern.search(text, timeout=limit_s))


def _apart(pattern: regex.Pattern[str], text: str, taken: Spans, clock: Clock) -> Sequence[regex.Match[str]]:
    """The matches that overlap none of `taken`, as many as there is room for.

    All at once: what a caller does between two matches would count as the pattern's time.
    """

    def look(limit_s: float) -> list[regex.Match[str]]:
        matches = pattern.finditer(text, timeout=limit_s)
        apart = (match for match in matches if not any(match.start() < e and s < match.end() for s, e in taken))
        return [*islice(apart, MAX_MATCHES - len(taken))]

    return clock.run(pattern, look) or ()


def _found(match: regex.Match[str], language: Language) -> Found:
    captures = {name: text for name, text in match.groupdict().items() if text is not None} if match.re.groups else {}
    return Found(match.re.pattern, match.start(), match.end(), captures, language)
