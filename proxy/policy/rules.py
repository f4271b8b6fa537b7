"""Rules ready to run, and the immutable set of everything that the policy files say.

In: validated triggers and sections. Out: a `PolicySet`, swapped as a whole when files change.
"""

from __future__ import annotations

import string
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from proxy.guard import GuardOptions
from proxy.policy.checks import Ready, ready
from proxy.policy.literals import Clause, required
from proxy.policy.model import Extract, Guard, TextByLanguage, Trigger, WhenSchedule
from proxy.policy.retention import Retention
from proxy.policy.retrieval import Retrieval
from proxy.policy.schedule import Schedule
from proxy.policy.sieve import Sieve
from proxy.policy.speech import SIGNS
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
        schedule: When it runs; None for a rule that waits for something to happen.
        asks: Whether it extracts by a model that config.yaml has; without one it takes what `otherwise` says.
    """

    trigger: Trigger
    event: EventType
    unit: Unit
    ready: Ready
    file: str
    schedule: Schedule | None = None
    asks: bool = False

    @property
    def id(self) -> str:
        """The trigger's id."""
        return self.trigger.id

    @property
    def mode(self) -> str:
        """``live``, ``shadow`` or ``disabled``."""
        return self.trigger.mode

    @classmethod
    def of(cls, trigger: Trigger, file: str, models: Collection[str] = ()) -> Rule:
        """Compile a trigger; `models` are the names under `models:` in config.yaml."""
        unit = unit_of(trigger, trigger.event)
        llm = trigger.extract.llm if trigger.extract else None
        return cls(
            trigger,
            trigger.event,
            unit,
            ready(trigger.if_, lines=unit == "sentence"),
            file,
            Schedule.parse(trigger.when.schedule) if isinstance(trigger.when, WhenSchedule) else None,
            llm is not None and has_model(llm.model, models),
        )


def has_model(name: str, models: Collection[str]) -> bool:
    """Whether config.yaml has a model of this name; its names may hold a ``*``.

    >>> has_model("claude-haiku", ["claude-*"]), has_model("extractor", ["claude-*"])
    (True, False)
    """
    return any(fnmatchcase(name, known) for known in models)


def unit_of(trigger: Trigger, event: EventType) -> Unit:
    """What a trigger's conditions are tried on.

    Statements are looked for sentence by sentence, so that several facts in one message become several memories.
    """
    if event == "request":
        return "request"
    if trigger.drop or event in ("tool_result", "session_end", "schedule"):
        return "message"
    verbatim = trigger.extract.verbatim if trigger.extract else None
    return "own message" if verbatim is not None and verbatim.of == "message" else "sentence"


_FEATURES = tuple(SIGNS)
_SIGNED = frozenset(SIGNS)
_SIGNS = [[required(pattern) for pattern in patterns] for patterns in SIGNS.values()]


@dataclass(frozen=True, slots=True)
class Likely:
    """What may come of a text.

    Args:
        rules: Those that may match, in file order; the others cannot.
        absent: Features that no part of it has, as far as that is known.
    """

    rules: Sequence[Rule]
    absent: frozenset[str]


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
        """The rules that run for each event, in file order; disabled ones and sweeps left out."""
        grouped: dict[EventType, list[Rule]] = {}
        for rule in self.triggers:
            if rule.mode != "disabled" and rule.trigger.sweep is None:
                grouped.setdefault(rule.event, []).append(rule)
        return {event: tuple(rules) for event, rules in grouped.items()}

    @cached_property
    def _sieves(self) -> Mapping[EventType, Sieve]:
        return {
            event: Sieve([*map(_clauses, rules), *(_SIGNS if event == "user_message" else [])])
            for event, rules in self.by_event.items()
        }

    def likely(self, event: EventType, text: str) -> Likely:
        """What of the rules and features need not be looked at, since the text lacks the words for it.

        Args:
            event: What happened.
            text: All text that patterns are run on.
        """
        rules = self.by_event.get(event)
        if rules is None:
            return Likely((), frozenset())
        found = self._sieves[event].likely(text)
        first_sign = bisect_left(found, len(rules))
        tried = [rules[number] for number in found[:first_sign]]
        if event != "user_message":
            return Likely(tried, frozenset())  # rules on other events rarely ask how something is said
        return Likely(tried, _SIGNED.difference([_FEATURES[number - len(rules)] for number in found[first_sign:]]))

    @cached_property
    def counts_turns(self) -> bool:
        """Whether any rule waits for every so many turns of a session."""
        return any(rule.trigger.every > 1 for rule in self.by_event.get("turn_end", ()))

    @cached_property
    def schedules(self) -> tuple[Rule, ...]:
        """The rules that run at a time of their own, in file order: sweeps, and those that look at recent episodes.

        Disabled ones are left out; what a shadow rule would do is for the caller to log and not to do.
        """
        return tuple(rule for rule in self.triggers if rule.schedule is not None and rule.mode != "disabled")

    def alone(self, rule: Rule) -> PolicySet:
        """This set with one of its rules only: a `schedule` event is put before the rule whose time has come."""
        return replace(self, triggers=(rule,))

    @cached_property
    def guard_options(self) -> GuardOptions:
        """What the guard does about each kind of secret and personal data."""
        pii = self.guard.pii
        return GuardOptions(self.guard.secrets, pii.phone, pii.id_number, pii.card, pii.email)


def _clauses(rule: Rule) -> list[tuple[Clause, ...]]:
    match = rule.trigger.if_.match if rule.trigger.if_ else None
    if match is None:
        return [()]
    patterns = {pattern for texts in match.given().values() for pattern in texts}
    return [required(pattern, rule.unit == "sentence") for pattern in patterns]


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
