"""From episodes that are alike to what they have in common: patterns of what is done, and when.

Pure. In: episodes about one thing, with their times in the user's zone. Out: `Pattern`s in the user's language, each
with its evidence: "用户常在周五下午部署服务", "The user has often deployed the service on Friday afternoons".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from proxy.phrase import Phrase, content_terms, shared_phrase, statement
from proxy.types import Language

AT_LEAST = 3
_MOST_COMPARED = 50
_SHARE = 0.6
_SHARE_OF_PART = 0.75
_LEAST_FOR_PART = 4
_LEAST_COVERED = 0.5
_LEAST_COVERED_AT_A_TIME = 0.4
_DOUBT = 0.7
_LEFT_PER_PLACE = 0.75
_MOST_CONFIDENCE = 0.9
_LESSONS = frozenset({"task", "tool_failure", "feedback", "correction"})
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Episode:
    """One thing that happened, or was said, once.

    Args:
        id: Of its record; a record that was said again makes several episodes.
        content: What.
        at: When, aware, in the user's zone.
        place: Session it was said in, or the day where none is known.
        kind: Of its record.
        origin: What it was made from; two records of one message are one episode.
    """

    id: str
    content: str
    at: datetime
    place: str
    kind: str
    origin: str


@dataclass(frozen=True, slots=True)
class When:
    """A time that comes back; both None is any time.

    Args:
        days: ``Friday``, ``weekend`` …
        part: ``morning``, ``afternoon``, ``evening``, ``night``.
    """

    days: str | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """What several episodes have in common.

    Args:
        key: The same for the same pattern found again.
        content: One sentence that stands alone.
        kind: ``pattern`` for what the user does, ``lesson`` for what happened or worked.
        evidence: Ids of the records, oldest first.
        confidence: 0–1, from the number of separate places; repetition within one adds nothing.
        when: Its time.
    """

    key: str
    content: str
    kind: str
    evidence: tuple[str, ...]
    confidence: float
    when: When


def patterns(episodes: Sequence[Episode], language: Language, *, at_least: int = AT_LEAST) -> list[Pattern]:
    """What episodes about one thing have in common.

    Args:
        episodes: Of one language, alike by meaning, in any order.
        language: Theirs.
        at_least: How many it takes; from two separate places at least.

    Returns:
        The patterns, the most frequent first; no episode is evidence of two.
    """
    left = sorted(_once_each(episodes), key=lambda one: (one.at, one.id))
    terms = {one.origin: content_terms(one.content, language) for one in left}
    found: list[Pattern] = []
    while len(left) >= at_least:
        counts = Counter(term for one in left for term in terms[one.origin])
        if not counts:
            break
        # The most frequent term leads; of several the one that sorts first, so that nothing depends on order.
        term, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
        if count < at_least:
            break
        alike = [one for one in left if term in terms[one.origin]]
        pattern = _pattern(alike, language, at_least)
        if pattern is not None:
            found.append(pattern)
        left = [one for one in left if term not in terms[one.origin]]
    return found


def _once_each(episodes: Iterable[Episode]) -> list[Episode]:
    """One episode per message and time; the raw turn stands back behind what was made of it."""
    found: dict[str, Episode] = {}
    for one in sorted(episodes, key=lambda episode: (episode.kind == "turn", episode.id)):
        found.setdefault(one.origin, one)
    return list(found.values())


def _pattern(alike: Sequence[Episode], language: Language, at_least: int) -> Pattern | None:
    when, evidence = when_of(alike, at_least)
    if len(evidence) < at_least or len({one.place for one in evidence}) < 2:
        return None
    kinds = Counter(one.kind for one in evidence)
    kind = min(kinds, key=lambda name: (-kinds[name], name))
    if kind == "turn" and when == When():
        return None  # talk that comes back says nothing yet; talk that comes back at a time does
    phrase = shared_phrase([one.content for one in evidence[-_MOST_COMPARED:]], language)
    if phrase is None or not _tells(phrase, kind, when):
        return None
    content = statement(phrase, kind, when.days, when.part, language)
    identity = "\0".join((language, content)).encode()
    return Pattern(
        key="pattern:" + blake2b(identity, digest_size=8).hexdigest(),
        content=content,
        kind="lesson" if kind in _LESSONS else "pattern",
        evidence=tuple(dict.fromkeys(one.id for one in evidence)),
        confidence=confidence_from(len({one.place for one in evidence})),
        when=when,
    )


def _tells(phrase: Phrase, kind: str, when: When) -> bool:
    """Whether the phrase is what the episodes are about, and not a word that they happen to share."""
    if phrase.share < (_LEAST_COVERED if when == When() else _LEAST_COVERED_AT_A_TIME):
        return False
    # What others did is no habit of the user's.
    return bool(phrase.subject) or kind in ("task", "tool_failure", "tool_result")


def confidence_from(places: int) -> float:
    """How sure a pattern is that was met in so many separate places.

    >>> confidence_from(1), confidence_from(3), confidence_from(50)
    (0.3, 0.6062, 0.9)
    """
    return round(min(_MOST_CONFIDENCE, 1 - _DOUBT * _LEFT_PER_PLACE ** (places - 1)), 4)


def when_of(episodes: Sequence[Episode], at_least: int = AT_LEAST) -> tuple[When, list[Episode]]:
    """The narrowest time that most of the episodes share, each on a day of its own.

    Args:
        episodes: Oldest first.
        at_least: Separate days it takes; a part of the day alone takes one more.

    Returns:
        The time, and the episodes in it: all of them when there is no such time.
    """
    tries: tuple[tuple[Callable[[Episode], Hashable], int, float], ...] = (
        (lambda one: (weekday(one.at), part(one.at)), at_least, _SHARE),
        (lambda one: (weekday(one.at), None), at_least, _SHARE),
        (lambda one: ("weekend" if one.at.weekday() >= 5 else None, None), at_least + 1, _SHARE_OF_PART),
        (lambda one: (None, part(one.at)), max(at_least + 1, _LEAST_FOR_PART), _SHARE_OF_PART),
    )
    for slot_of, days, share in tries:
        slots = Counter(slot_of(one) for one in episodes)
        slot, count = min(slots.items(), key=lambda item: (-item[1], str(item[0])), default=((None, None), 0))
        inside = [one for one in episodes if slot_of(one) == slot]
        spread = len({one.at.date() for one in inside}) >= days
        if spread and count >= share * len(episodes) and slot != (None, None):
            assert isinstance(slot, tuple)
            return When(*slot), inside
    return When(), list(episodes)


def weekday(moment: datetime) -> str:
    """The day's English name, whatever the locale."""
    return _WEEKDAYS[moment.weekday()]


def part(moment: datetime) -> str:
    """The part of the day.

    >>> part(datetime(2026, 11, 27, 15, 30)), part(datetime(2026, 11, 27, 2))
    ('afternoon', 'night')
    """
    if 5 <= moment.hour < 12:
        return "morning"
    if 12 <= moment.hour < 18:
        return "afternoon"
    return "evening" if 18 <= moment.hour < 23 else "night"
