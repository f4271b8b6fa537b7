"""Examples run: each rule alone against its own examples. In: a rule. Out: what failed. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from proxy.language import detect
from proxy.policy.check import SAMPLE_TIME, Finding
from proxy.policy.examples import Example, Expected, ToolExample
from proxy.policy.extract import infer_status
from proxy.policy.match import Evaluation, evaluate, request_event
from proxy.policy.rules import PolicySet, Rule
from proxy.types import Event


def event_of(example: Example) -> Event:
    """The event that an example stands for."""
    if example.request is not None:
        return request_event(example.request.user, example.request.system, SAMPLE_TIME)
    if example.tool is not None:
        return _tool_event(example.tool)
    if example.turn_end is not None:
        turn = example.turn_end
        return Event(
            "turn_end",
            turn.assistant,
            detect(turn.assistant),
            "assistant",
            SAMPLE_TIME,
            finish_reason=turn.finish_reason,
            user_text=turn.user,
            turn=turn.number,
        )
    role = "user" if example.user is not None else "assistant"
    text = next(text for text in (example.user, example.assistant, example.session_end) if text is not None)
    finish = "stop" if role == "assistant" else None
    return Event(example.event_type, text, detect(text), role, SAMPLE_TIME, finish_reason=finish)


def _tool_event(tool: ToolExample) -> Event:
    try:
        data: Any = json.loads(tool.content)
    except ValueError:
        data = None
    return Event(
        "tool_result",
        tool.content,
        detect(tool.content),
        "tool",
        SAMPLE_TIME,
        tool=tool.name,
        arguments=tool.arguments,
        data=data,
        status=tool.status or infer_status(tool.content, data),
        user_text=tool.user,
    )


def failures(rule: Rule) -> list[Finding]:
    """The examples of a rule that do not come out as expected.

    Args:
        rule: Tried whatever its mode, alone: other rules do not count.
    """
    live = replace(rule, trigger=rule.trigger.model_copy(update={"mode": "live"}))
    alone = PolicySet(triggers=(live,))
    found: list[Finding] = []
    for index, example in enumerate(rule.trigger.examples):
        message = _failure(evaluate(alone, event_of(example)), example)
        if message:
            found.append((("examples", index, "expect"), message))
    return found


def _failure(result: Evaluation, example: Example) -> str | None:
    if example.expect == "dropped":
        return None if result.dropped_by else "expected the event to be dropped, but it was not"
    if example.expect == "ignored" and result.dropped_by:
        return "expected nothing, but the event was dropped"
    wanted = () if isinstance(example.expect, str) else example.expect
    made = [_draft_fields(draft) for draft in result.drafts]
    made += [{"slot": slot.name, "value": slot.value, "memory_type": "working"} for slot in result.slots]
    rest = list(made)
    for expected in wanted:
        hit = next((one for one in rest if _fits(expected, one)), None)
        if hit is None:
            return f"expected {_short(_given(expected))} but got {_listed(made)}"
        rest.remove(hit)
    if rest:
        return f"expected {'nothing' if not wanted else 'nothing more'}, but got {_listed(rest)}"
    return None


def _draft_fields(draft: Any) -> dict[str, Any]:
    names = ("content", "kind", "memory_type", "scope", "key", "tags", "confidence", "language", "on_conflict")
    return {name: getattr(draft, name) for name in names}


def _given(expected: Expected) -> dict[str, Any]:
    return {name: getattr(expected, name) for name in expected.model_fields_set}


def _fits(expected: Expected, made: dict[str, Any]) -> bool:
    return all(name in made and made[name] == value for name, value in _given(expected).items())


def _short(fields: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields.items()) + "}"


def _listed(made: list[dict[str, Any]]) -> str:
    shown = ("content", "key", "slot", "value")
    return (
        ", ".join(_short({k: v for k, v in one.items() if k in shown and v is not None}) for one in made) or "nothing"
    )
