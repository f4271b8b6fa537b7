"""What an owner lived through in a while, as one event: what schedule rules that extract look at. Pure.

In: a survey of one user's records. Out: one ``schedule`` event for each of the user's agents that had episodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime

from proxy.plugs import Survey
from proxy.scope import Scope
from proxy.types import Event, Memory

_MOST_CHARS = 8_000


def episodes(survey: Survey, since: datetime, now: datetime) -> Iterator[tuple[Scope, Event]]:
    """The events of one user.

    Args:
        survey: All the user's records.
        since, now: Which episodes count: those from after `since` up to `now`.

    Yields:
        Each agent's scope with its event; the text has one episode a line, oldest first, each once.
    """
    by_agent: defaultdict[str, list[Memory]] = defaultdict(list)
    for one in survey.records:
        memory = one.memory
        if memory.memory_type == "episodic" and memory.state == "active" and since < memory.created_at <= now:
            by_agent[memory.agent_id].append(memory)
    for agent_id, memories in by_agent.items():
        scope = Scope(survey.scope.tenant, survey.scope.user_id, agent_id)
        yield scope, _event(scope, sorted(memories, key=lambda memory: (memory.created_at, memory.id)), now)


def _event(scope: Scope, memories: list[Memory], now: datetime) -> Event:
    lines = dict.fromkeys(" ".join(memory.content.split()) for memory in memories)
    languages = Counter(memory.language for memory in memories)
    return Event(
        type="schedule",
        text="\n".join(lines)[:_MOST_CHARS],
        language=languages.most_common(1)[0][0],
        role="user",
        at=now,
        agent_id=scope.agent_id,
        user_id=scope.user_id,
    )
