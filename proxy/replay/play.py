"""A transcript put through the policies without writing anything.

Pure but for the clock inside patterns. In: the turns of a transcript and a `PolicySet`. Out: what would be
written, event by event. Nothing is stored, so nothing is merged or superseded: shown is what the rules propose, guarded
and worded as it would be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import tzinfo
from typing import Any, Literal

from proxy import guard, observe
from proxy.conflict import normal
from proxy.language import detect
from proxy.plugs import Embedder
from proxy.policy.evaluation import ForgetRequest
from proxy.policy.knowledge import NOTHING_KNOWN, Knowledge
from proxy.policy.match import evaluate, request_event
from proxy.policy.matcher import TimedOut
from proxy.policy.rules import PolicySet
from proxy.replay.transcript import Turn
from proxy.standalone import standing
from proxy.summary import Line as Told
from proxy.summary import Role, summarise, transcript
from proxy.types import Draft, Event, Language, Message
from proxy.value import WEIGHTS, ValueModel

Sort = Literal["memory", "slot", "forget", "restore"]
Value = Callable[[str, Language], float]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One thing that would be done.

    Args:
        sort: ``memory``, ``slot`` (working memory), ``forget`` or ``restore``.
        rule_id: Trigger id.
        content: The memory's sentence, the slot's value, or what is to be forgotten.
        name: The slot's name, or the memory's key.
        kind, memory_type, scope, confidence, tags, on_conflict: Of a memory.
        model: The model that would be asked; `content` is then what is written without an answer.
    """

    sort: Sort
    rule_id: str
    content: str
    name: str | None = None
    kind: str = ""
    memory_type: str = ""
    scope: str = ""
    confidence: float | None = None
    tags: tuple[str, ...] = ()
    on_conflict: str = ""
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What the policies make of one event.

    Args:
        line: Of the transcript.
        conversation, turn: 1-based numbers.
        event: Event type.
        text: What was said, guarded.
        proposals: What would be done.
        dropped_by: The rule that ended the event.
        shadow: Shadow rules that matched.
        timed_out: Patterns that ran out of time, with their rules.
    """

    line: int
    conversation: int
    turn: int
    event: str
    text: str
    proposals: tuple[Proposal, ...] = ()
    dropped_by: str | None = None
    shadow: tuple[str, ...] = ()
    timed_out: tuple[TimedOut, ...] = ()


class Recorded(Knowledge):
    """What the transcript has said so far; nobody's store is asked.

    Args:
        value: Answers for the value check.
    """

    def __init__(self, value: Value = NOTHING_KNOWN.value) -> None:
        self._value = value
        self._drafts: list[Draft] = []

    def add(self, drafts: Iterable[Draft]) -> None:
        """Take in what was proposed."""
        self._drafts += [draft for draft in drafts if draft.kind != "turn"]

    def known(self, text: str) -> bool:
        """Whether a memory proposed so far names it."""
        return any(text.strip().casefold() in draft.content.casefold() for draft in self._drafts)

    def similar(self, text: str, kind: str | None) -> float:
        """1 where the very same was proposed, else 0: likeness needs a store."""
        same = (draft for draft in self._drafts if normal(draft.content) == normal(text))
        return 1.0 if any(kind in (None, draft.kind) for draft in same) else 0.0

    def value(self, text: str, language: Language) -> float:
        """What the value check gives."""
        return self._value(text, language)


def classifier(embedder: Embedder) -> Value:
    """The value check as the proxy makes it; without weights for this embedder every text passes."""
    model = ValueModel.load(WEIGHTS, embedder.fingerprint)

    def value(text: str, language: Language) -> float:
        if model is None or language == "other" or detect(text) == "other":
            return NOTHING_KNOWN.value(text, language)
        return model.score(text, embedder.documents([text])[0])

    return value


@dataclass(slots=True)
class Replay:
    """Puts the turns of a transcript before one policy set, in order.

    Args:
        policies: The set.
        zone: The user's, for relative dates.
        value: Answers for the value check.
    """

    policies: PolicySet
    zone: tzinfo
    value: Value = NOTHING_KNOWN.value
    _knowledge: Recorded = field(init=False)
    _told: dict[int, list[Told]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._knowledge = Recorded(self.value)

    def turn(self, turn: Turn) -> list[Step]:
        """What one turn comes to; a call that a `request` rule keeps out of memory comes to one step."""
        new = tuple(self._guarded(message) for message in turn.new)
        user_text = self._safe(turn.user_text)
        if new and new[-1].role == "user":
            found = evaluate(self.policies, request_event(user_text, turn.system, turn.at))
            if found.dropped_by is not None:
                line = turn.lines[new[-1].hash]
                return [Step(line, turn.conversation, turn.number, "request", user_text, dropped_by=found.dropped_by)]
        happened = observe.events(
            new,
            turn.context,
            replace(turn.answer, text=self._safe(turn.answer.text)) if turn.answer else None,
            at=turn.at,
            user_id="",
            agent_id="default",
            turn=turn.number,
            user_text=user_text,
        )
        before = [turn.context.text] if turn.context is not None and turn.context.text else []
        return [self._step(turn, event, before) for event in happened]

    def end(self, last: Turn) -> list[Step]:
        """What the end of a conversation comes to, as when its user has gone away.

        Args:
            last: Its last turn.
        """
        lines = self._told.pop(last.conversation, [])
        language = detect(" ".join(line.text for line in lines if line.role == "user"))
        found = summarise(lines, language)
        if not found.summary:
            return []
        data = {
            "summary": found.summary,
            "points": list(found.points),
            "session_id": f"conversation-{last.conversation}",
            "turns": last.number,
            "explicit": False,
        }
        text = transcript(lines, language)
        event = Event("session_end", text, language, "user", last.at, data=data, turn=last.number)
        return [self._step(last, event, [])]

    def _step(self, turn: Turn, event: Event, before: Sequence[str]) -> Step:
        found = evaluate(self.policies, event, knowledge=self._knowledge)
        asked = [(draft, task.model) for task in found.llm for draft in task.fallback]
        proposed: list[tuple[Draft, str | None]] = [*((draft, None) for draft in found.drafts), *asked]
        worded = [(standing(self._safe_draft(draft), event, self.zone, before), model) for draft, model in proposed]
        drafts = [draft for draft, _ in worded]
        self._knowledge.add(drafts)
        if event.role in ("user", "assistant") and event.type != "session_end":
            role: Role = "user" if event.role == "user" else "assistant"
            told = self._told.setdefault(turn.conversation, [])
            told += [Told(draft.content, draft.kind, role) for draft in drafts]
        line = turn.lines.get("" if event.role == "assistant" else event.message_hash or "", max(turn.lines.values()))
        return Step(
            line,
            turn.conversation,
            turn.number,
            event.type,
            event.text,
            (
                *(_of_draft(draft, model) for draft, model in worded),
                *(Proposal("slot", slot.rule_id, self._safe(str(slot.value)), slot.name) for slot in found.slots),
                *(_of_request(request) for request in found.forgets),
            ),
            found.dropped_by,
            found.shadow,
            found.timed_out,
        )

    def _safe(self, text: str) -> str:
        return guard.guard(text[: self.policies.guard.max_chars], self.policies.guard_options).text

    def _guarded(self, message: Message) -> Message:
        return replace(message, text=self._safe(message.text))

    def _safe_draft(self, draft: Draft) -> Draft:
        return replace(draft, content=self._safe(draft.content))


def _of_draft(draft: Draft, model: str | None) -> Proposal:
    return Proposal(
        "memory",
        draft.rule_id,
        draft.content,
        draft.key,
        draft.kind,
        draft.memory_type,
        draft.scope,
        draft.confidence,
        draft.tags,
        draft.on_conflict,
        model,
    )


def _of_request(request: ForgetRequest) -> Proposal:
    return Proposal("restore" if request.restore else "forget", request.rule_id, request.about or "")


def proposal_data(proposal: Proposal) -> dict[str, Any]:
    """A proposal as JSON-ready data, without what it has not."""
    return {name: value for name, value in asdict(proposal).items() if value not in (None, "", ())}
