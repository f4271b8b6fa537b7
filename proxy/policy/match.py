"""The matcher: an event put before the rules, and what comes of it. Pure; well below a millisecond without a trace.

In: a `PolicySet`, an `Event`, and what is known of stored memories. Out: an `Evaluation` with drafts, slots, requests
to forget, questions for a model, and (when asked) what every condition saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from proxy.language import detect
from proxy.policy.evaluation import Evaluation, ForgetRequest, RuleTrace
from proxy.policy.knowledge import NOTHING_KNOWN, Knowledge
from proxy.policy.passage import Whole
from proxy.policy.rules import PolicySet
from proxy.policy.run import Made, run
from proxy.policy.trace import traces
from proxy.types import Event


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


def evaluate(
    policies: PolicySet, event: Event, *, knowledge: Knowledge = NOTHING_KNOWN, trace: bool = False
) -> Evaluation:
    """Put an event before the rules.

    Args:
        policies: The set in force.
        event: What happened.
        knowledge: Answers for the conditions `known`, `similar_to_existing` and `value`.
        trace: Also say what every condition of every rule saw.

    Returns:
        What the rules that match make of it; a rule with `drop: true` ends the event for the rules after it.
    """
    if event.type not in policies.by_event and not trace:
        return _NOTHING
    whole = Whole(event, knowledge)
    result = Made()
    matched: list[str] = []
    shadow: list[str] = []
    dropped_by: str | None = None
    likely = policies.likely(event.type, whole.searched)
    whole.absent = likely.absent - {"role_play"} if event.in_play else likely.absent
    for rule in likely.rules:
        whole.clock.rule_id = rule.id
        made = run(rule, whole, policies)
        if made is None:
            continue
        if rule.mode == "shadow":
            shadow.append(rule.id)
            continue
        matched.append(rule.id)
        if rule.trigger.drop:
            dropped_by = rule.id
            break
        result.add(made)
    return Evaluation(
        tuple(result.drafts),
        tuple(result.slots),
        dropped_by,
        tuple(matched),
        tuple(shadow),
        tuple(whole.clock.timed_out),
        tuple(traces(policies, event, knowledge)) if trace else (),
        tuple(result.forgets),
        tuple(result.llm),
    )


_NOTHING = Evaluation()
__all__: Sequence[str] = ["Evaluation", "ForgetRequest", "RuleTrace", "evaluate", "request_event"]
