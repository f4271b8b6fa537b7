"""What a rule does, held against what it waits for: exactly one action, and the parts that belong to it.

In: a validated trigger. Out: `(place in the trigger, message)` pairs for `check.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from proxy.policy.extract import ASSISTANT_KINDS
from proxy.policy.model import Trigger
from proxy.policy.rules import has_model
from proxy.yamlcheck import did_you_mean
from proxy.yamlfile import Where

Finding = tuple[Where, str]
OPTIONAL_MODEL = "extractor"
"""The model that shipped rules name; where config.yaml has none of this name, they take what `otherwise` says."""


def action_findings(trigger: Trigger, models: Collection[str]) -> Iterator[Finding]:
    """What is wrong with a trigger's action.

    Args:
        trigger: From a validated file.
        models: Names under `models:` in config.yaml.
    """
    actions = [name for name in ("drop", "sweep", "forget", "restore") if getattr(trigger, name)]
    if len(actions) > 1:
        yield (actions[1],), f"a rule does one thing; remove {actions[0]} or {actions[1]}"
    elif not actions:
        yield from _writes(trigger, models)
    elif actions == ["drop"]:
        for name in ("extract", "write"):
            if getattr(trigger, name) is not None:
                yield (name,), f"a rule that drops the event has no {name}; remove one of the two"
    elif actions == ["sweep"]:
        yield from _sweeps(trigger)
    else:
        yield from _forgets(trigger, actions[0])


def _writes(trigger: Trigger, models: Collection[str]) -> Iterator[Finding]:
    extract, write = trigger.extract, trigger.write
    if trigger.event == "request":
        yield ("when",), "a rule on 'request' can only drop; give drop: true, or wait for user_message"
    other = "sweep" if trigger.event == "schedule" else "drop: true"
    for name, given in (("extract", extract), ("write", write)):
        if given is None:
            yield (), f"the rule has no {name}; give extract and write, or {other}"
    if extract is None or write is None:
        return
    yield from _asked(trigger, models)
    slots = extract.slots is not None or write.slot is not None
    if slots and write.memory_type != "working":
        yield ("write", "memory_type"), "slots are working memory; write memory_type: working"
    if write.memory_type == "working" and not slots:
        yield ("write",), "working memory is kept in slots; give extract.slots or write.slot"
    if extract.slots is not None and write.slot is not None:
        yield ("write", "slot"), "extract.slots names the slots already"
    if write.scope == "session" and write.memory_type != "working":
        yield ("write", "scope"), "'session' is for working memory; use agent or user"
    yield from _assistant(trigger)


def _asked(trigger: Trigger, models: Collection[str]) -> Iterator[Finding]:
    llm = trigger.extract.llm if trigger.extract else None
    if llm is None:
        return
    if trigger.write is not None and trigger.write.slot is not None:
        yield ("write", "slot"), "a model makes memories, not slots; remove slot"
    if llm.model != OPTIONAL_MODEL and not has_model(llm.model, models):
        hint = did_you_mean(llm.model, [*models, OPTIONAL_MODEL])
        yield ("extract", "llm", "model"), f"'{llm.model}' is not under models: in config.yaml{hint}"


def _assistant(trigger: Trigger) -> Iterator[Finding]:
    if trigger.write is None or trigger.event not in ("assistant_message", "turn_end"):
        return
    if trigger.write.memory_type != "working" and trigger.write.kind not in ASSISTANT_KINDS:
        kinds = ", ".join(ASSISTANT_KINDS)
        yield (
            ("write", "kind"),
            f"what the assistant says makes only memories of kind {kinds}, not '{trigger.write.kind}'",
        )


def _sweeps(trigger: Trigger) -> Iterator[Finding]:
    if trigger.event != "schedule":
        yield ("when",), 'a sweep runs at a time; write when: {schedule: "daily 03:00"}'
    for name in ("if_", "extract", "examples"):
        if getattr(trigger, name):
            shown = name.rstrip("_")
            yield (shown,), f"a sweep looks at every stored memory and takes no {shown}; remove it"
    if trigger.write is None:
        return
    if "reflect" not in (trigger.sweep or ()):
        yield ("write",), "only reflect writes in a sweep; add it to sweep, or remove write"
    elif trigger.write.memory_type != "reflective":
        yield ("write", "memory_type"), "reflect writes lessons; write memory_type: reflective"


def _forgets(trigger: Trigger, action: str) -> Iterator[Finding]:
    extract = trigger.extract
    if trigger.event != "user_message":
        yield ("when",), f"only the user can ask to {action}; write when: user_message"
    if trigger.if_ is None:
        yield (), f"a rule without if would {action} at every message; say when it matches"
    if trigger.write is not None:
        yield ("write",), f"a rule that says {action} writes nothing; remove one of the two"
    if extract is not None and (extract.slots is not None or extract.llm is not None):
        yield ("extract",), f"what to {action} is said by a template or verbatim"
