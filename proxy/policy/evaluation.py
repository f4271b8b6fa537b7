"""What the policies make of one event: the nouns that `match.evaluate` gives out."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.policy.checks import Seen
from proxy.policy.llm import LlmTask
from proxy.policy.matcher import TimedOut
from proxy.types import Draft, SlotWrite


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """The user asks to forget something, or takes that back.

    Args:
        rule_id: Trigger id.
        about: What; None for what was said (or forgotten) last.
        restore: Whether a forget is taken back.
    """

    rule_id: str
    about: str | None
    restore: bool


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
        forgets: What it asks to forget or to restore.
        llm: What it asks a model.
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
    forgets: tuple[ForgetRequest, ...] = ()
    llm: tuple[LlmTask, ...] = ()
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
        timed_out: Patterns that ran out of time and so did not match, with their rules.
        traces: One per rule, when asked for.
        forgets: What live rules ask to forget or to restore.
        llm: What live rules ask a model; each task brings along what is written without an answer.
    """

    drafts: tuple[Draft, ...] = ()
    slots: tuple[SlotWrite, ...] = ()
    dropped_by: str | None = None
    matched: tuple[str, ...] = ()
    shadow: tuple[str, ...] = ()
    timed_out: tuple[TimedOut, ...] = ()
    traces: tuple[RuleTrace, ...] = ()
    forgets: tuple[ForgetRequest, ...] = ()
    llm: tuple[LlmTask, ...] = ()
