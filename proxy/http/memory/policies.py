"""The door of policies: what is in force, and what it makes of a text."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import orjson
from aiohttp import web

from proxy.auth import Principal
from proxy.errors import RequestError
from proxy.guard import guard
from proxy.http.answers import shape_answer
from proxy.http.bodies import Explaining, read_body
from proxy.http.house_shapes import ExplainAnswer, ExplainedMessage, PoliciesAnswer, RuleShape
from proxy.http.memory.entrance import Entrance
from proxy.http.operation import Answer, Operation, Route
from proxy.language import detect
from proxy.observe import content_hash, parsed, tool_status
from proxy.policy.explain import explain
from proxy.policy.knowledge import Knowledge
from proxy.policy.match import evaluate
from proxy.policy.rules import PolicySet, Rule
from proxy.scope import Scope
from proxy.types import Event, EventType, Message
from proxy.wire import chat
from proxy.wire.splice import parse

_EVENTS: dict[str, EventType] = {
    "user": "user_message",
    "assistant": "assistant_message",
    "tool": "tool_result",
    "function": "tool_result",
}
_REFUSED = "the newest policy files were refused, and the ones before are in force; an admin key shows why"


@dataclass(frozen=True)
class PoliciesDoor:
    """`/memory/policies`.

    Args:
        entrance: The way in.
        policies: Returns the live policy set.
        refused: Returns why the newest files are not in force.
        knowledge: For an owner, what conditions may ask of their memories.
        clock: Returns now, aware UTC.
        shows_details: Whether every caller may see where the files lie, and what is wrong in them.
    """

    entrance: Entrance
    policies: Callable[[], PolicySet]
    refused: Callable[[], str | None]
    knowledge: Callable[[Scope], Knowledge]
    clock: Callable[[], datetime]
    shows_details: bool

    def routes(self) -> list[Route]:
        """This door's routes."""
        path = "/memory/policies"
        listed = Operation(
            "GET", path, "The rules in force", "policies", "memory:read",
            (Answer(200, "The set in force.", PoliciesAnswer),), scoped=False,
        )  # fmt: skip
        explained = Operation(
            "POST", f"{path}/explain", "Which rules a text meets, condition by condition; nothing is written",
            "policies", "memory:read", (Answer(200, "One entry per message.", ExplainAnswer),), body=Explaining,
        )  # fmt: skip
        return [Route(listed, self.listed), Route(explained, self.explained)]

    async def listed(self, request: web.Request, principal: Principal) -> web.Response:
        """The rules in force."""
        found, error = self.policies(), self.refused()
        details = self.shows_details or principal.may("admin")
        names = dict(zip(found.files, found.files if details else _plain_names(found.files), strict=True))
        return shape_answer(
            PoliciesAnswer(
                hash=found.hash,
                error=error if error is None or details else _REFUSED,
                files=tuple(names.values()),
                rules=tuple(_rule(rule, names.get(rule.file, rule.file)) for rule in found.triggers),
            )
        )

    async def explained(self, request: web.Request, principal: Principal) -> web.Response:
        """What the rules make of a text, or of messages."""
        body = await read_body(request, Explaining)
        named = body.model_dump(include={"user_id", "agent_id"}, exclude_none=True)
        scope = self.entrance.owner(request, principal, named)
        if (body.text is None) == (body.messages is None):
            raise RequestError("give text, or messages", code="invalid_field", param="text")
        messages = [_spoken(body)] if body.messages is None else _messages(body)
        names = self.policies().files
        shown = dict(
            zip(names, names if self.shows_details or principal.may("admin") else _plain_names(names), strict=True)
        )
        return shape_answer(await self.entrance.run(lambda: self._explained(scope, messages, body.all, shown)))

    def _explained(
        self, scope: Scope, messages: Sequence[Message], every: bool, names: dict[str, str]
    ) -> ExplainAnswer:
        policies, knowledge = self.policies(), self.knowledge(scope)
        entries, asked = [], ""
        for place, message in enumerate(messages):
            event = _event(message, scope, self.clock(), asked, policies)
            if event is None:
                continue
            asked = event.text if message.role == "user" else asked
            rules = explain(evaluate(policies, event, knowledge=knowledge, trace=True), only_tried=not every)
            told = tuple({**rule, "file": names.get(rule["file"], rule["file"])} for rule in rules)
            entries.append(ExplainedMessage(message=place, event=event.type, text=event.text, rules=told))
        return ExplainAnswer(data=tuple(entries))


def _rule(rule: Rule, file: str) -> RuleShape:
    return RuleShape.model_validate(
        {"id": rule.id, "file": file, "mode": rule.mode, "when": rule.event, "why": rule.trigger.why}
    )


def _plain_names(files: Sequence[str]) -> list[str]:
    """The files without the folder that all of them lie in.

    >>> _plain_names(["/etc/p/10-a.yaml", "/etc/p/local/b.yaml"]), _plain_names(["/etc/p/10-a.yaml"]), _plain_names([])
    (['10-a.yaml', 'local/b.yaml'], ['10-a.yaml'], [])
    """
    folders = {str(Path(file).parent) for file in files}
    try:
        top = Path(os.path.commonpath(folders)) if folders else Path()
        return [Path(file).relative_to(top).as_posix() for file in files]
    except ValueError:
        return [Path(file).name for file in files]


def _spoken(body: Explaining) -> Message:
    text = body.text or ""
    return Message(body.role, text, content_hash(body.role, text), "", name=body.tool)


def _messages(body: Explaining) -> Sequence[Message]:
    said = [message.model_dump() for message in body.messages or ()]
    return chat.messages(parse(orjson.dumps({"messages": said}))) or ()


def _event(message: Message, scope: Scope, now: datetime, asked: str, policies: PolicySet) -> Event | None:
    type_ = _EVENTS.get(message.role)
    if type_ is None:
        return None
    # As in a real turn, the rules never see a secret.
    text = guard(message.text, policies.guard_options).text
    event = Event(type_, text, detect(text), message.role, now, message_hash=message.hash, user_text=asked or text)
    event = replace(event, agent_id=scope.agent_id, user_id=scope.user_id)
    if type_ != "tool_result":
        return event
    data = parsed(text)
    return replace(event, role="tool", tool=message.name or "", data=data, status=tool_status(text, data))
