"""What a new claim is to an earlier one: the same, its opposite, another value in its place, or about something else.

Pure. The subject and the predicate must be equal, and the frame too, before two values can compete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from proxy.claim.opposites import OPPOSITE_OF
from proxy.claim.types import Claim, Claims, Relation

_TASTE: Final = frozenset(("like", "eat", "drink", "handle", "want"))
"""Who does not eat a thing cannot be one who loves it: of these the opposite of one is the opposite of another."""
_STATES: Final = ("be", "at", "language", "host@", "live@")
_TIME = re.compile(
    r"^(?:mon|tues|wednes|thurs|fri|satur|sun)day$|^(?:january|february|march|april|may|june|july|august|september|october"
    r"|november|december)$|^(?:am|pm|o'clock|noon|midnight|morning|evening|afternoon|night|weekend|weekday|dawn)$|^\d{1,2}:\d{2}"
    r"|^\d{1,2}[ap]m$|^\d{4}-\d{2}"
)
_NUMBER = re.compile(r"\d")
_PURE_NUMBER = re.compile(r"^\d[\d.:,]*$")
_GRAVEST_FIRST: Final[tuple[Relation, ...]] = ("replaces", "flip", "rivals", "same", "another", "apart")
_ZH_SIGNS = re.compile(r"^[\u3400-\u9fff]$")


def relate(new: Claims, old: Claims) -> Relation:
    """What a new text is to an earlier one, by what they claim.

    Args:
        new: Of the new text.
        old: Of the earlier one.

    Returns:
        The gravest relation of any two of their claims; ``same`` only when each claim of the new one is in the old one.
    """
    found = [relate_claims(one, other) for one in new.stated for other in old.stated]
    if new.added:  # "also works at Bosch" takes nothing away, unless it denies it
        found = [relation for relation in found if relation in ("same", "flip", "apart")]
    gravest: Relation = min(found, key=_GRAVEST_FIRST.index, default="apart")
    if gravest == "same":
        known = all(any(relate_claims(one, other) == "same" for other in old.stated) for one in new.stated)
        return "same" if known and len(new.stated) == len(old.stated) else "apart"
    return gravest


def answers(new: Claims, old: Claims) -> bool:
    """Whether a new text speaks to all that an earlier one says: else the rest would be lost with it."""
    return all(any(relate_claims(one, other) != "apart" for one in new.stated) for other in old.stated)


def relate_claims(new: Claim, old: Claim) -> Relation:
    """What one claim is to an earlier one."""
    if new.subject != old.subject:
        return "apart"
    if new.positive != old.positive:
        return "flip" if _contradicts(new, old) else "apart"
    if new.predicate == "become" and old.predicate.startswith(_STATES) and new.positive:
        # "The release moved to Tuesday", whatever was said of its day before.
        return "replaces" if old.valued != "many" and new.value != old.value and _of_one_sort(new, old) else "apart"
    if new.predicate != old.predicate or new.frame != old.frame:
        return "apart"
    if new.value == old.value:
        return "same"
    if (
        not new.positive
        or not new.value
        or not old.value
        or _within(new.value, old.value)
        or not _of_one_sort(new, old)
    ):
        return "apart"
    if new.valued == "one":
        return "replaces"
    if new.valued == "rival" or excludes(new.value, old.value):
        return "rivals"
    if new.predicate == "have" and len(new.value) > 2 < len(old.value) and _counts_animals(new.value, old.value):
        return "rivals"
    return "another"


def excludes(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two values of the same thing cannot both hold: opposites, or numbers of the same unit.

    >>> excludes(("dark", "theme"), ("light", "theme")), excludes(("green", "tea"), ("black", "tea"))
    (True, False)
    >>> excludes(("2", "cat"), ("3", "cat")), excludes(("2", "cat"), ("1", "dog"))
    (True, False)
    """
    here, there = _differing(one, other)
    if not here or not there:
        return False
    if _counted(one, other):
        return True
    return bool(OPPOSITE_OF.get(here, frozenset()) & OPPOSITE_OF.get(there, frozenset()))


def _counted(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether only the numbers differ, and what is counted follows: 2 cats and 3 cats, Python 3.11 and 3.12."""
    here, there = _differing(one, other)
    return len(one) > 1 and bool(_PURE_NUMBER.match(here) and _PURE_NUMBER.match(there))


def _counts_animals(one: Sequence[str], other: Sequence[str]) -> bool:
    """Two cats, and then one dog: who counts animals counts all there are."""
    return one[1] == other[1] == "只" and one[0] != other[0] and bool(_NUMBER.match(one[0]) and _NUMBER.match(other[0]))


def _differing(one: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """The span in which two values differ, when something is left that they share; ideographs are one word."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return _joined(one[start : len(one) - end]), _joined(other[start : len(other) - end])


def _joined(words: Sequence[str]) -> str:
    return ("" if any(map(_ZH_SIGNS.match, words)) else " ").join(words)


def _contradicts(new: Claim, old: Claim) -> bool:
    if new.frame != old.frame and new.frame and old.frame:
        return False
    alike = new.predicate == old.predicate or {new.predicate, old.predicate} <= _TASTE
    if not alike or not new.value:
        return False
    denied, held = (old, new) if new.positive else (new, old)
    # Who drinks no cola drinks no diet cola either; who eats no coffee cake may drink coffee.
    wider = (
        denied is new and 0 < len(denied.value) < len(held.value) and held.value[-len(denied.value) :] == denied.value
    )
    return wider or _thing(new) == _thing(old)


def _thing(claim: Claim) -> frozenset[str]:
    return frozenset(claim.value) - {"eat", "drink", "food", "dish", "dishe", "吃", "喝", "的"}


def _within(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether one value says the other more closely, or a list has grown: neither takes the other's place."""
    return set(one) <= set(other) or set(other) <= set(one)


def _of_one_sort(new: Claim, old: Claim) -> bool:
    """A day does not compete with a place, nor 34 years with 180 cm."""
    timed = [any(map(_TIME.match, claim.value)) for claim in (new, old)]
    if timed[0] != timed[1]:
        return all(any(map(_NUMBER.match, claim.value)) for claim in (new, old))
    if new.predicate in ("be:number", "age"):
        units = [[word for word in claim.value if not _NUMBER.search(word)] for claim in (new, old)]
        return units[0] == units[1]
    return True
