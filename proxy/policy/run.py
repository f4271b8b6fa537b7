"""One rule run against one event. Pure. In: a rule and the event's `Whole`. Out: what it makes, or None."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from proxy.policy.ask import llm_task
from proxy.policy.evaluation import ForgetRequest
from proxy.policy.extract import content_of
from proxy.policy.extract import drafts as extracted
from proxy.policy.llm import LlmTask
from proxy.policy.passage import Passage, Whole
from proxy.policy.patterns import MAX_MATCHES
from proxy.policy.rules import PolicySet, Rule
from proxy.types import Draft, SlotWrite


@dataclass(slots=True)
class Made:
    """What one or more rules make of an event; each list in the order of the rules."""

    drafts: list[Draft] = field(default_factory=list)
    slots: list[SlotWrite] = field(default_factory=list)
    forgets: list[ForgetRequest] = field(default_factory=list)
    llm: list[LlmTask] = field(default_factory=list)

    def add(self, other: Made) -> None:
        """Take over what another rule makes."""
        self.drafts += other.drafts
        self.slots += other.slots
        self.forgets += other.forgets
        self.llm += other.llm


def run(rule: Rule, whole: Whole, policies: PolicySet) -> Made | None:
    """Run one rule.

    Args:
        rule: One that waits for this event.
        whole: The event; what a live rule makes a memory of is noted in `claimed`.
        policies: The set it belongs to.

    Returns:
        None when the rule does not match; an empty `Made` when it drops the event.
    """
    if rule.event == "turn_end" and whole.event.turn % rule.trigger.every:
        return None
    if rule.ready.gates and not all(gate.holds(whole.message[0]) for gate in rule.ready.gates):
        return None
    if rule.trigger.drop:
        return Made() if next(matches(rule, whole), None) is not None else None
    if rule.trigger.forget or rule.trigger.restore:
        return _forgets(rule, whole)
    if rule.asks:
        return _asks(rule, whole, policies)
    return _writes(rule, whole, policies)


def _writes(rule: Rule, whole: Whole, policies: PolicySet) -> Made | None:
    drafts: dict[str, Draft] = {}
    slots: dict[str, SlotWrite] = {}
    for passage in matches(rule, whole):
        made = extracted(rule, passage, policies.hash, policies.guard.tool_confidence)
        if isinstance(made, Draft):
            drafts.setdefault(made.content, made)
            _claim(rule, passage)
        elif made:
            slots |= {slot.name: slot for slot in made}
        if len(drafts) >= _most(rule):
            break
    return Made(list(drafts.values()), list(slots.values())) if drafts or slots else None


def _asks(rule: Rule, whole: Whole, policies: PolicySet) -> Made | None:
    asked = list(islice(matches(rule, whole), _most(rule)))
    task = llm_task(rule, asked, policies.hash, policies.guard.tool_confidence) if asked else None
    if task is None:
        return None
    for passage in asked:  # also what the model will find nothing in: a general rule must not say otherwise
        _claim(rule, passage)
    return Made(llm=[task])


def _forgets(rule: Rule, whole: Whole) -> Made | None:
    found: dict[str | None, ForgetRequest] = {}
    for passage in matches(rule, whole):
        about = content_of(rule, passage) if rule.trigger.extract else None
        if about or rule.trigger.extract is None:
            found.setdefault(about, ForgetRequest(rule.id, about, rule.trigger.restore))
            _claim(rule, passage)
        if len(found) >= MAX_MATCHES:
            break
    return Made(forgets=list(found.values())) if found else None


def _most(rule: Rule) -> int:
    return 1 if rule.event == "turn_end" else MAX_MATCHES  # one note per answer


def _claim(rule: Rule, passage: Passage) -> None:
    if rule.mode == "live" and rule.unit == "sentence":
        passage.whole.claimed.append(passage.place)


def passages(rule: Rule, whole: Whole) -> tuple[Passage, ...]:
    """The texts that a rule's conditions are tried on."""
    if rule.unit == "sentence":
        return whole.sentences
    if rule.unit == "request":
        return whole.request
    return whole.own_message if rule.unit == "own message" else whole.message


def matches(rule: Rule, whole: Whole) -> Iterator[Passage]:
    """The passages, each with the span of its match, for which all conditions of a rule hold."""
    early, source, checks = rule.ready.early, rule.ready.source, rule.ready.checks
    if rule.unit == "sentence" and source and whole.nowhere(source):
        return
    for passage in passages(rule, whole):
        if early and not all(check.holds(passage) for check in early):
            continue
        for place in places(rule, passage) if source else (passage,):
            for check in checks:
                if not check.holds(place):
                    break
            else:
                yield place


def places(rule: Rule, passage: Passage) -> Iterator[Passage]:
    """The spans that a rule's own pattern finds in a text."""
    source = rule.ready.source
    assert source is not None
    if rule.unit == "sentence":
        for found in passage.every(source):
            yield passage.at(found)
    elif (first := passage.first(source)) is not None:
        yield passage.at(first)
