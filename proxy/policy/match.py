"""The matcher: an event put before the rules, and what comes of it. Pure; well below a millisecond without a trace.

In: a `PolicySet` and an `Event`. Out: an `Evaluation` with drafts, slots, and (when asked) what every condition saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from proxy.language import detect
from proxy.policy.checks import Seen
from proxy.policy.extract import drafts as extracted
from proxy.policy.passage import Passage, Whole
from proxy.policy.patterns import MAX_MATCHES
from proxy.policy.rules import PolicySet, Rule
from proxy.types import Draft, Event, SlotWrite


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """What happened to one rule.

    Args:
        rule_id: Trigger id.
        file: Where it stands.
        mode: ``live``, ``shadow`` or ``disabled``.
        outcome: ``matched``, ``dropped the event``, ``not matched``, or why it was not tried.
        text: The passage shown: the one that matched, else the first.
        conditions: What every condition saw there.
        drafts: What it proposes.
        slots: What it fills.
        timed_out: Patterns that ran out of time and so did not match.
    """

    rule_id: str
    file: str
    mode: str
    outcome: str
    text: str = ""
    conditions: tuple[Seen, ...] = ()
    drafts: tuple[Draft, ...] = ()
    slots: tuple[SlotWrite, ...] = ()
    timed_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the policies make of one event.

    Args:
        drafts: Memories that live rules propose, in rule order.
        slots: Working-memory slots that live rules fill.
        dropped_by: The live rule that ended the event, if one did.
        matched: Live rules that matched.
        shadow: Shadow rules that matched; they write nothing.
        timed_out: Patterns that ran out of time.
        traces: One per rule, when asked for.
    """

    drafts: tuple[Draft, ...] = ()
    slots: tuple[SlotWrite, ...] = ()
    dropped_by: str | None = None
    matched: tuple[str, ...] = ()
    shadow: tuple[str, ...] = ()
    timed_out: tuple[str, ...] = ()
    traces: tuple[RuleTrace, ...] = ()


def request_event(user: str, system: str, at: datetime, *, agent_id: str = "default", user_id: str = "") -> Event:
    """The event that `when: request` rules see: the newest user message, with the system text beside it.

    Args:
        user: Text of the newest user message.
        system: The leading system and developer messages, joined.
        at: When the request came.
        agent_id, user_id: For `agent:` and `user:` conditions.
    """
    data = {"system": system} if system else None
    return Event(
        "request", user, detect(user), "user", at, data=data, user_text=user, agent_id=agent_id, user_id=user_id
    )


def evaluate(policies: PolicySet, event: Event, *, trace: bool = False) -> Evaluation:
    """Put an event before the rules.

    Args:
        policies: The set in force.
        event: What happened.
        trace: Also say what every condition of every rule saw.

    Returns:
        Drafts and slots of the rules that match; a rule with `drop: true` ends the event for the rules after it.
    """
    whole = Whole(event)
    result = _Collected()
    for rule in policies.by_event.get(event.type, ()):
        matched, drafts, slots = _run(rule, whole, policies)
        if not matched:
            continue
        if rule.mode == "shadow":
            result.shadow.append(rule.id)
            continue
        result.matched.append(rule.id)
        if rule.trigger.drop:
            result.dropped_by = rule.id
            break
        result.drafts += drafts
        result.slots += slots
    return Evaluation(
        tuple(result.drafts),
        tuple(result.slots),
        result.dropped_by,
        tuple(result.matched),
        tuple(result.shadow),
        tuple(whole.clock.timed_out),
        tuple(_traces(policies, event)) if trace else (),
    )


@dataclass(slots=True)
class _Collected:
    drafts: list[Draft] = field(default_factory=list)
    slots: list[SlotWrite] = field(default_factory=list)
    matched: list[str] = field(default_factory=list)
    shadow: list[str] = field(default_factory=list)
    dropped_by: str | None = None


def _run(rule: Rule, whole: Whole, policies: PolicySet) -> tuple[bool, list[Draft], list[SlotWrite]]:
    if rule.event == "turn_end" and whole.event.turn % rule.trigger.every:
        return False, [], []
    if rule.ready.gates and not all(gate.holds(whole.message[0]) for gate in rule.ready.gates):
        return False, [], []
    drafts: dict[str, Draft] = {}
    slots: dict[str, SlotWrite] = {}
    matched = False
    for passage in _matches(rule, whole):
        if rule.trigger.drop:
            return True, [], []
        made = extracted(rule, passage, policies.hash, policies.guard.tool_confidence)
        if isinstance(made, Draft):
            drafts.setdefault(made.content, made)
            if rule.mode == "live" and rule.unit == "sentence":
                whole.claimed.append(passage.place)
        elif made:
            slots |= {slot.name: slot for slot in made}
        matched = matched or bool(made)
        if len(drafts) >= (1 if rule.event == "turn_end" else MAX_MATCHES):  # one note per answer
            break
    return matched, list(drafts.values()), list(slots.values())


def _passages(rule: Rule, whole: Whole) -> tuple[Passage, ...]:
    if rule.unit == "sentence":
        return whole.sentences
    if rule.unit == "request":
        return whole.request
    return whole.own_message if rule.unit == "own message" else whole.message


def _matches(rule: Rule, whole: Whole) -> Iterator[Passage]:
    source, checks = rule.ready.source, rule.ready.checks
    if rule.unit == "sentence" and source and not source.anywhere(whole.lines, whole.languages, whole.clock):
        return  # most rules, most of the time: one search over all sentences instead of one in each
    for passage in _passages(rule, whole):
        for place in _places(rule, passage, whole) if source else (passage,):
            if all(check.holds(place) for check in checks):
                yield place


def _places(rule: Rule, passage: Passage, whole: Whole) -> Iterator[Passage]:
    source = rule.ready.source
    assert source is not None
    if rule.unit == "sentence":
        for found in source.every(passage.text, passage.languages, whole.clock):
            yield passage.at(found)
    elif (first := source.first(passage.text, passage.languages, whole.clock)) is not None:
        yield passage.at(first)


def _traces(policies: PolicySet, event: Event) -> Iterator[RuleTrace]:
    dropped_by: str | None = None
    claimed: list[tuple[int, int]] = []
    for rule in policies.triggers:
        about = (rule.id, rule.file, rule.mode)
        if rule.event != event.type:
            yield RuleTrace(*about, f"waits for {rule.event}")
            continue
        if rule.mode == "disabled":
            yield RuleTrace(*about, "disabled")
            continue
        if dropped_by is not None:
            yield RuleTrace(*about, f"not reached: {dropped_by} dropped the event")
            continue
        traced = _traced(rule, Whole(event), policies, claimed)
        if traced.outcome == "dropped the event" and rule.mode == "live":
            dropped_by = rule.id
        yield traced


def _traced(rule: Rule, whole: Whole, policies: PolicySet, claimed: list[tuple[int, int]]) -> RuleTrace:
    before = list(claimed)
    whole.claimed = claimed
    matched, drafts, slots = _run(rule, whole, policies)
    whole.claimed = before  # what this rule itself claims must not show against it
    outcome = ("dropped the event" if rule.trigger.drop else "matched") if matched else "not matched"
    if rule.event == "turn_end" and whole.event.turn % rule.trigger.every:
        outcome = f"not matched: turn {whole.event.turn} is no multiple of {rule.trigger.every}"
    place = next(iter(_matches(rule, whole)), None) or _nearest(rule, whole)
    seen: list[Seen] = []
    for gate in rule.ready.gates:
        seen += gate.explain(whole.message[0])
    if place is not None:
        if rule.ready.source is not None:
            seen.append(_source_seen(rule, place))
        for check in rule.ready.checks:
            seen += check.explain(place)
    return RuleTrace(
        rule.id,
        rule.file,
        rule.mode,
        outcome,
        place.text if place else "",
        tuple(seen),
        tuple(drafts),
        tuple(slots),
        tuple(dict.fromkeys(whole.clock.timed_out)),
    )


def _nearest(rule: Rule, whole: Whole) -> Passage | None:
    passages = _passages(rule, whole)
    if rule.ready.source is not None:
        for passage in passages:
            for place in _places(rule, passage, whole):
                return place
    return next(iter(passages), None)


def _source_seen(rule: Rule, place: Passage) -> Seen:
    if place.found is not None:
        value = place.text[place.found.start : place.found.end]
        return Seen("if.match", place.found.pattern, value, True)
    source = rule.ready.source
    patterns: Mapping[str, None] = {}
    if source is not None:
        tried = (lang for lang in place.languages if lang in source.patterns)
        patterns = dict.fromkeys(p.pattern for lang in tried for p in source.patterns[lang])
    return Seen("if.match", " | ".join(patterns) or f"no pattern for {place.languages[0]}", "", False)
