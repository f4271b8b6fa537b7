"""Conditions made ready to run: a small tree of checks, each able to say what it saw.

In: the pydantic `Conditions`. Out: checks sorted by cost, those about the event alone apart from those about a text.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from proxy.policy.conditions import FEATURES_NOT_ASSERTED, Conditions, Length, SimilarToExisting, Value
from proxy.policy.matcher import Found, Matcher
from proxy.policy.passage import Passage, features
from proxy.shelf import compiled
from proxy.types import Event


@dataclass(frozen=True, slots=True)
class Seen:
    """What one condition saw, for explanations.

    Args:
        condition: Place in the rule, e.g. ``if.not.match``.
        expected: What it asks for.
        value: What was there.
        holds: Whether that is enough.
    """

    condition: str
    expected: str
    value: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """One condition: look at a passage, judge what was seen."""

    name: str
    expected: str
    look: Callable[[Passage], Any]
    judge: Callable[[Any], bool] = bool

    def holds(self, passage: Passage) -> bool:
        """Whether the condition holds."""
        return self.judge(self.look(passage))

    def explain(self, passage: Passage) -> list[Seen]:
        """What was seen."""
        value = self.look(passage)
        return [Seen(self.name, self.expected, _shown(value, passage), self.judge(value))]


@dataclass(frozen=True, slots=True)
class Group:
    """Conditions under all, any or not."""

    name: str
    mode: Literal["all", "any", "not"]
    members: tuple[Leaf | Group, ...]

    def holds(self, passage: Passage) -> bool:
        """Whether the group holds; stops at the first member that decides."""
        decides = self.mode == "any"
        for member in self.members:
            if member.holds(passage) is decides:
                return self.mode != "all"
        return self.mode == "all"

    def explain(self, passage: Passage) -> list[Seen]:
        """What every member saw, then the group itself."""
        seen = [one for member in self.members for one in member.explain(passage)]
        return [*seen, Seen(self.name, self.mode, "", self.holds(passage))]


Check = Leaf | Group


def _shown(value: Any, passage: Passage) -> str:
    if isinstance(value, Found):
        return passage.text[value.start : value.end]
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Ready:
    """A rule's conditions, in the order in which they are tried.

    Args:
        gates: About the event alone; tried once.
        early: About a passage, whatever matched in it; tried before `source`, since they cost nothing.
        source: The top-level `match`, whose captures feed templates.
        checks: About a passage, after `source` matched.
    """

    gates: tuple[Check, ...] = ()
    early: tuple[Check, ...] = ()
    source: Matcher | None = None
    checks: tuple[Check, ...] = ()


def ready(conditions: Conditions | None, *, lines: bool = False) -> Ready:
    """Compile a rule's conditions; `lines` when they are tried sentence by sentence."""
    if conditions is None:
        return Ready()
    source = Matcher.of(conditions.match, lines=lines) if conditions.match else None
    later = (*_text_checks(conditions, "if", match=False), *_knowledge_checks(conditions, "if"))
    return Ready(tuple(_event_checks(conditions, "if")), tuple(_plain_checks(conditions, "if")), source, later)


def _every_check(conditions: Conditions, path: str) -> tuple[Check, ...]:
    return (
        *_event_checks(conditions, path),
        *_plain_checks(conditions, path),
        *_text_checks(conditions, path, match=True),
        *_knowledge_checks(conditions, path),  # these may ask a store: last
    )


def _event_checks(conditions: Conditions, path: str) -> list[Check]:
    def globs(name: str, wanted: tuple[str, ...] | None, get: Callable[[Event], str | None]) -> list[Check]:
        if wanted is None:
            return []
        test = compiled("|".join(fnmatch.translate(glob) for glob in wanted)).match
        return [
            Leaf(
                f"{path}.{name}",
                ", ".join(wanted),
                lambda passage: get(passage.whole.event),
                lambda value: value is not None and test(value) is not None,
            )
        ]

    return [
        *globs("tool", conditions.tool, lambda event: event.tool),
        *globs("status", conditions.status, lambda event: event.status),
        *globs("role", conditions.role, lambda event: event.role),
        *globs("finish_reason", conditions.finish_reason, lambda event: event.finish_reason),
        *globs("agent", conditions.agent, lambda event: event.agent_id),
        *globs("user", conditions.user, lambda event: event.user_id),
    ]


def _plain_checks(conditions: Conditions, path: str) -> list[Check]:
    found: list[Check] = []
    if conditions.length is not None:
        found.append(_length(conditions.length, path))
    if conditions.language is not None:
        wanted = conditions.language
        found.append(Leaf(f"{path}.language", ", ".join(wanted), lambda p: p.languages[0], lambda v: v in wanted))
    return found


def _text_checks(conditions: Conditions, path: str, *, match: bool) -> list[Check]:
    found: list[Check] = []
    if match and conditions.match is not None:
        found.append(_match(Matcher.of(conditions.match), f"{path}.match"))
    if conditions.has is not None:
        names = conditions.has
        found.append(Leaf(f"{path}.has", ", ".join(names), lambda p: features(p, names)))
    if conditions.asserted is not None:
        want = conditions.asserted
        found.append(_asserted(f"{path}.asserted", want))
    if conditions.unclaimed is not None:
        free = conditions.unclaimed
        found.append(Leaf(f"{path}.unclaimed", str(free).lower(), lambda p: p.unclaimed, lambda v: v is free))
    if conditions.not_ is not None:
        found.append(Group(f"{path}.not", "not", _every_check(conditions.not_, f"{path}.not")))
    for mode in ("all", "any"):
        for_mode: tuple[Conditions, ...] | None = getattr(conditions, mode)
        if for_mode is not None:
            members = tuple(_as_one(one, f"{path}.{mode}[{index}]") for index, one in enumerate(for_mode))
            found.append(Group(f"{path}.{mode}", "all" if mode == "all" else "any", members))
    return found


def _knowledge_checks(conditions: Conditions, path: str) -> list[Check]:
    found: list[Check] = []
    if (known := conditions.known) is not None:
        found.append(Leaf(f"{path}.known", str(known).lower(), lambda p: p.known, lambda v: v is known))
    if conditions.value is not None:
        found.append(_value(conditions.value, f"{path}.value"))
    if conditions.similar_to_existing is not None:
        found.append(_similar(conditions.similar_to_existing, f"{path}.similar_to_existing"))
    return found


def _value(wanted: Value, path: str) -> Check:
    least = wanted.at_least
    return Leaf(path, f"at least {least:g}", lambda p: p.value, lambda value: value >= least)


def _similar(wanted: SimilarToExisting, path: str) -> Check:
    least, kind = wanted.at_least, wanted.kind
    shown = f"at least {least:g}" + (f" to a memory of kind {kind}" if kind else "")
    return Leaf(path, shown, lambda p: p.similar(kind), lambda value: value >= least)


def _as_one(conditions: Conditions, path: str) -> Check:
    members = _every_check(conditions, path)
    return members[0] if len(members) == 1 else Group(path, "all", members)


def _length(length: Length, path: str) -> Check:
    most = length.max
    shown = f"{length.min}–{'' if most is None else most} characters"
    return Leaf(
        f"{path}.length", shown, lambda p: len(p.text), lambda n: n >= length.min and (most is None or n <= most)
    )


def _match(matcher: Matcher, path: str) -> Check:
    patterns = " | ".join(dict.fromkeys(one.pattern.pattern for some in matcher.patterns.values() for one in some))
    return Leaf(path, patterns, lambda p: p.first(matcher), lambda v: v is not None)


def _asserted(path: str, want: bool) -> Check:
    return Leaf(
        path,
        str(want).lower(),
        lambda p: features(p, FEATURES_NOT_ASSERTED) or ("asserted",),
        lambda value: (value == ("asserted",)) is want,
    )
