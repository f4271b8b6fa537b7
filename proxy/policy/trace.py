"""Why each rule did what it did with an event, condition by condition: for `policy explain`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC

from proxy.policy.checks import Seen
from proxy.policy.evaluation import RuleTrace
from proxy.policy.knowledge import Knowledge
from proxy.policy.passage import Passage, Whole
from proxy.policy.rules import PolicySet, Rule
from proxy.policy.run import Made, matches, passages, places, run
from proxy.standalone import standing
from proxy.types import Event


def traces(policies: PolicySet, event: Event, knowledge: Knowledge) -> Iterator[RuleTrace]:
    """One account per rule, in file order.

    Args:
        policies: The set in force.
        event: What happened.
        knowledge: As for `evaluate`.
    """
    dropped_by: str | None = None
    claimed: list[tuple[int, int]] = []
    for rule in policies.triggers:
        if (untried := _untried(rule, event, dropped_by)) is not None:
            yield RuleTrace(rule.id, rule.file, rule.mode, untried)
            continue
        traced = _traced(rule, Whole(event, knowledge), policies, claimed)
        if traced.outcome == "dropped the event" and rule.mode == "live":
            dropped_by = rule.id
        yield traced


def _untried(rule: Rule, event: Event, dropped_by: str | None) -> str | None:
    if rule.event != event.type:
        return f"waits for {rule.event}"
    if rule.mode == "disabled":
        return "disabled"
    if rule.trigger.sweep is not None:
        return "sweeps stored memories"
    return None if dropped_by is None else f"not reached: {dropped_by} dropped the event"


def _traced(rule: Rule, whole: Whole, policies: PolicySet, claimed: list[tuple[int, int]]) -> RuleTrace:
    before = list(claimed)
    whole.claimed = claimed
    made = run(rule, whole, policies)
    whole.claimed = before  # what this rule itself claims must not show against it
    place = next(matches(rule, whole), None) or _nearest(rule, whole)
    seen: list[Seen] = []
    for gate in rule.ready.gates:
        seen += gate.explain(whole.message[0])
    if place is not None:
        for check in rule.ready.early:
            seen += check.explain(place)
        if rule.ready.source is not None:
            seen.append(_source_seen(rule, place))
        for check in rule.ready.checks:
            seen += check.explain(place)
    shown = made or Made()
    return RuleTrace(
        rule.id,
        rule.file,
        rule.mode,
        _outcome(rule, whole.event, matched=made is not None),
        place.text if place else "",
        tuple(seen),
        # As they would be stored: whoever asks why wants to see the words that come of it.
        tuple(standing(draft, whole.event, whole.event.at.tzinfo or UTC) for draft in shown.drafts),
        tuple(shown.slots),
        tuple(shown.forgets),
        tuple(shown.llm),
        tuple(dict.fromkeys(one.pattern for one in whole.clock.timed_out)),
    )


def _outcome(rule: Rule, event: Event, *, matched: bool) -> str:
    if rule.event == "turn_end" and event.turn % rule.trigger.every:
        return f"not matched: turn {event.turn} is no multiple of {rule.trigger.every}"
    if not matched:
        return "not matched"
    return "dropped the event" if rule.trigger.drop else "matched"


def _nearest(rule: Rule, whole: Whole) -> Passage | None:
    tried = passages(rule, whole)
    if rule.ready.source is not None:
        for passage in tried:
            for place in places(rule, passage):
                return place
    return next(iter(tried), None)


def _source_seen(rule: Rule, place: Passage) -> Seen:
    if place.found is not None:
        value = place.text[place.found.start : place.found.end]
        return Seen("if.match", place.found.pattern, value, True)
    source = rule.ready.source
    patterns: Mapping[str, None] = {}
    if source is not None:
        tried = (lang for lang in place.languages if lang in source.patterns)
        patterns = dict.fromkeys(one.pattern.pattern for lang in tried for one in source.patterns[lang])
    return Seen("if.match", " | ".join(patterns) or f"no pattern for {place.languages[0]}", "", False)
