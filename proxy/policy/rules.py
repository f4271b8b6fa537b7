"""Rules ready to run, and the immutable set of everything that the policy files say.

In: validated triggers and sections. Out: a `PolicySet`, swapped as a whole when files change.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from proxy.guard import GuardOptions
from proxy.policy.checks import Ready, ready
from proxy.policy.model import Extract, Guard, TextByLanguage, Trigger
from proxy.policy.retention import Retention
from proxy.policy.retrieval import Retrieval
from proxy.types import EventType, Language

Unit = Literal["sentence", "message", "own message", "request"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One trigger, compiled.

    Args:
        trigger: As written.
        event: What it waits for.
        unit: What its conditions are tried on.
        ready: Its conditions.
        file: Where it stands.
    """

    trigger: Trigger
    event: EventType
    unit: Unit
    ready: Ready
    file: str

    @property
    def id(self) -> str:
        """The trigger's id."""
        return self.trigger.id

    @property
    def mode(self) -> str:
        """``live``, ``shadow`` or ``disabled``."""
        return self.trigger.mode

    @classmethod
    def of(cls, trigger: Trigger, file: str) -> Rule:
        """Compile a trigger whose `when` is an event."""
        event = trigger.event
        assert event is not None, "schedules are refused before"
        unit = unit_of(trigger, event)
        return cls(trigger, event, unit, ready(trigger.if_, lines=unit == "sentence"), file)


def unit_of(trigger: Trigger, event: EventType | None) -> Unit:
    """What a trigger's conditions are tried on.

    Statements are looked for sentence by sentence, so that several facts in one message become several memories.
    """
    if event == "request":
        return "request"
    if trigger.drop or event in ("tool_result", "session_end"):
        return "message"
    verbatim = trigger.extract.verbatim if trigger.extract else None
    return "own message" if verbatim is not None and verbatim.of == "message" else "sentence"


@dataclass(frozen=True)
class PolicySet:
    """Everything the policy files say; never changes.

    Args:
        triggers: All rules in file order, disabled ones included.
        retention: How long memories last.
        retrieval: What counts for more.
        guard: What stands before the store.
        hash: Short hash of what the files mean (not of comments, examples or layout).
        files: The files read, in order.
    """

    triggers: tuple[Rule, ...] = ()
    retention: Retention = field(default_factory=Retention)
    retrieval: Retrieval = field(default_factory=Retrieval)
    guard: Guard = field(default_factory=Guard)
    hash: str = "none"
    files: tuple[str, ...] = ()

    @cached_property
    def by_event(self) -> Mapping[EventType, tuple[Rule, ...]]:
        """The rules that run for each event, in file order; disabled ones left out."""
        grouped: dict[EventType, list[Rule]] = {}
        for rule in self.triggers:
            if rule.mode != "disabled":
                grouped.setdefault(rule.event, []).append(rule)
        return {event: tuple(rules) for event, rules in grouped.items()}

    @cached_property
    def guard_options(self) -> GuardOptions:
        """What the guard does about each kind of secret and personal data."""
        pii = self.guard.pii
        return GuardOptions(self.guard.secrets, pii.phone, pii.id_number, pii.card, pii.email)


def template_texts(extract: Extract) -> Mapping[Language | Literal["every"], str]:
    """The templates of an extract by language, as far as written."""
    source: TextByLanguage | None = extract.template
    if source is None:
        return {}
    return {name: text for name in ("zh", "en", "other", "every") if (text := getattr(source, name)) is not None}


def names_in(template: str) -> list[str]:
    """The `$names` that a template uses.

    Raises:
        ValueError: A ``$`` that starts no name.

    >>> names_in("用户喜欢$thing，${place}"), names_in("5 $$")
    (['thing', 'place'], [])
    """
    parsed = string.Template(template)
    if not parsed.is_valid():
        raise ValueError("a $ is followed by no name; write $$ for a dollar sign, ${name} before letters")
    return parsed.get_identifiers()
