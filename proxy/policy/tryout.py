"""Examples run: each rule alone against its own examples. In: a rule. Out: what failed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxy.language import detect
from proxy.observe import tool_status
from proxy.policy.actions import Finding
from proxy.policy.check import SAMPLE_TIME
from proxy.policy.evaluation import Evaluation
from proxy.policy.examples import Example, Expected, SessionExample, ToolExample
from proxy.policy.llm import answered
from proxy.policy.match import evaluate, request_event
from proxy.policy.rules import PolicySet, Rule
from proxy.types import Event, Language

_SAID: Mapping[str, str] = {"forgets": "forget", "restores": "restore"}


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
    if example.session_end is not None:
        return _session_event(example.session_end)
    if example.episodes is not None:
        text = "\n".join(example.episodes)
        return Event("schedule", text, detect(text), "user", SAMPLE_TIME)
    role = "user" if example.user is not None else "assistant"
    text = example.user or example.assistant or ""
    finish = "stop" if role == "assistant" else None
    return Event(example.event_type, text, detect(text), role, SAMPLE_TIME, finish_reason=finish)


def _session_event(session: SessionExample) -> Event:
    text = session.text or session.summary
    data = {
        "summary": session.summary,
        "points": list(session.points),
        "session_id": session.session,
        "turns": session.turns,
        "explicit": session.explicit,
    }
    return Event("session_end", text, detect(text), "assistant", SAMPLE_TIME, data=data)


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
        status=tool.status or tool_status(tool.content, data),
        user_text=tool.user,
    )


def failures(rule: Rule) -> list[Finding]:
    """The examples of a rule that do not come out as expected.

    Args:
        rule: Tried whatever its mode, alone: other rules do not count.
    """
    live = replace(rule, trigger=rule.trigger.model_copy(update={"mode": "live"}))
    alone = {asks: PolicySet(triggers=(replace(live, asks=asks),)) for asks in (False, True)}
    found: list[Finding] = []
    for index, example in enumerate(rule.trigger.examples):
        if example.answer is not None and not (rule.trigger.extract and rule.trigger.extract.llm):
            found.append((("examples", index, "answer"), "only a rule with extract.llm gets an answer; remove it"))
            continue
        result = evaluate(alone[example.answer is not None], event_of(example), knowledge=_Given(example))
        message = _failure(result, example)
        if message:
            found.append((("examples", index, "expect"), message))
    return found


@dataclass(frozen=True, slots=True)
class _Given:
    """What an example says about stored memories and the value classifier."""

    example: Example

    def known(self, text: str) -> bool:
        return text.strip().casefold() in {name.strip().casefold() for name in self.example.known}

    def similar(self, text: str, kind: str | None) -> float:
        return self.example.similar

    def value(self, text: str, language: Language) -> float:
        return self.example.value


def _failure(result: Evaluation, example: Example) -> str | None:
    if example.expect == "dropped":
        return None if result.dropped_by else "expected the event to be dropped, but it was not"
    if example.expect == "ignored" and result.dropped_by:
        return "expected nothing, but the event was dropped"
    made = _made(result, example)
    if isinstance(example.expect, str) and (action := _SAID.get(example.expect)):
        fits = made and all(action in one for one in made)
        return None if fits else f"expected {example.expect} but got {_listed(made)}"
    wanted = () if isinstance(example.expect, str) else example.expect
    rest = list(made)
    for expected in wanted:
        hit = next((one for one in rest if _fits(expected, one)), None)
        if hit is None:
            return f"expected {_short(_given(expected))} but got {_listed(made)}"
        rest.remove(hit)
    if rest:
        return f"expected {'nothing' if not wanted else 'nothing more'}, but got {_listed(rest)}"
    return None


def _made(result: Evaluation, example: Example) -> list[dict[str, Any]]:
    answers = [draft for task in result.llm for draft in answered(task, example.answer)]
    made = [_draft_fields(draft) for draft in (*result.drafts, *answers)]
    made += [{"slot": slot.name, "value": slot.value, "memory_type": "working"} for slot in result.slots]
    return made + [{"restore" if one.restore else "forget": one.about} for one in result.forgets]


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
    shown = ("content", "key", "slot", "value", "forget", "restore")
    always = ("forget", "restore")  # their None says something: what was said last
    fields = ({k: v for k, v in one.items() if k in shown and (v is not None or k in always)} for one in made)
    return ", ".join(map(_short, fields)) or "nothing"
