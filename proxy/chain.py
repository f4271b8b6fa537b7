"""The chain of a task's tool calls: which memory came of the call before, and the way back from any of them.

In: the steps of a session (`WorkingMemory.steps`), a draft and its event; or a store and a memory. Out: parent ids, and
the steps that led to a memory, for people who ask why something was recommended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.observe import content_hash
from proxy.plugs import Store
from proxy.scope import Scope
from proxy.types import Draft, Event, Memory, iso

Raw = Mapping[str, Any]
"""A step as the working layer holds it."""
_MOST_STEPS = 100


@dataclass(frozen=True, slots=True)
class Step:
    """One step on the way to a memory.

    Args:
        tool: Name of the tool; None for what was not made from a tool's result.
        status: ``ok`` or ``error``.
        memory_id: The memory that was made of it; None when it only filled a slot.
        content: That memory's text; None likewise.
        at: ISO 8601 in UTC.
    """

    tool: str | None
    status: str
    memory_id: str | None
    content: str | None
    at: str | None


def task_of(user_text: str) -> str:
    """What the steps of one task have in common: a hash of what the user asked for.

    Args:
        user_text: The newest user text of the turn, which a loop of tool calls keeps.
    """
    return content_hash("user", user_text)


def parent_of(draft: Draft, event: Event, steps: Sequence[Raw], made: Sequence[tuple[Event, str]] = ()) -> str | None:
    """The memory that a draft follows in its task: the one of the call before.

    Args:
        draft: What is about to be written.
        event: What it was made from.
        steps: The session's task chain before this turn, oldest first.
        made: Tool results of this very turn and the memories that came of them, in order. Calls made side by side do
            not follow one another, so only what is no tool result itself follows these.

    Returns:
        Its id; None for a rule without ``link: parent``, and for the first of a task. Calls that made no memory are
        stepped over.

    >>> from datetime import UTC, datetime
    >>> result = Event("tool_result", "2 seats", "en", "tool", datetime(2026, 11, 2, tzinfo=UTC), user_text="book it")
    >>> draft = Draft("r", "p", "2 seats", "episodic", "tool_result", "agent", 0.5, "en", link_parent=True)
    >>> steps = [{"memory_id": "a", "task": task_of("book it")}, {"memory_id": None, "task": task_of("book it")}]
    >>> parent_of(draft, result, steps), parent_of(draft, result, [{"memory_id": "a", "task": task_of("other")}])
    ('a', None)
    """
    if not draft.link_parent:
        return None
    if event.type != "tool_result" and made:
        return made[-1][1]
    task = task_of(event.user_text)
    earlier = (str(step["memory_id"]) for step in reversed(steps) if step.get("memory_id") and _same_task(step, task))
    return next(earlier, None)


def walk(store: Store, scope: Scope, memory_id: str, steps: Sequence[Raw] = ()) -> list[Step]:
    """The way that led to a memory.

    Args:
        store: Holds the memories.
        scope: Who asks; what it may not read ends the way.
        memory_id: Where to start.
        steps: The session's task chain while the working layer still has it: calls that made no memory stand there.

    Returns:
        Oldest first, the memory itself last; empty when there is none.
    """
    path: list[Memory] = []
    wanted: str | None = memory_id
    while wanted is not None and len(path) < _MOST_STEPS and all(one.id != wanted for one in path):
        memory = store.get(scope, wanted)
        if memory is None:
            break
        path.append(memory)
        wanted = memory.parent_id
    way: list[Step] = []
    for memory in reversed(path):
        way += [*_before(memory, steps), _of(memory)]
    return way


def _same_task(step: Raw, task: str) -> bool:
    return bool(step.get("task", task) == task)


def _before(memory: Memory, steps: Sequence[Raw]) -> list[Step]:
    """The calls right before a memory that made none themselves."""
    own = [place for place, step in enumerate(steps) if step.get("memory_id") == memory.id]
    # A memory of the answer is no step, but comes after the results that its request brought.
    brought = [place + 1 for place, step in enumerate(steps) if step.get("request_id") == memory.source.request]
    end = own[0] if own else (brought[-1] if brought and memory.source.request else 0)
    if not end:
        return []
    task = str(steps[end if own else end - 1].get("task", ""))
    found: list[Step] = []
    for step in reversed(steps[:end]):
        if step.get("memory_id") or not _same_task(step, task):
            break
        found.append(Step(step.get("tool"), str(step.get("status", "ok")), None, None, step.get("at")))
    return found[::-1]


def _of(memory: Memory) -> Step:
    status = "error" if memory.kind == "tool_failure" else "ok"
    return Step(memory.source.tool, status, memory.id, memory.content, iso(memory.valid_from))
