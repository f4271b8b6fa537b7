"""What a sweep's step wants done, and what it has to decide with.

In: one user's survey. Out: `Act`s, each done whole or not at all, and only while the records it rests on are still as
they were looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import cached_property
from typing import Literal

from proxy.plugs import Evidence, Survey, Surveyed, Transaction
from proxy.policy.retention import Retention
from proxy.scope import Scope
from proxy.types import Language, Memory, Vector

Verdict = Literal["same", "replaces", "beside", "unsure"]
Summarise = Callable[[Sequence[str], Language, Scope], str | None]
"""A summary of lines, oldest first, in a language and on a tenant's account; None leaves it to the extractive one."""
Judge = Callable[[str, str], Verdict]
"""What a newer text means for an older one; asked only about close pairs that rules leave open."""
Worth = Callable[[str, Vector | None], float]
Embed = Callable[[str], Vector | None]


@dataclass(frozen=True, slots=True)
class Act:
    """One change, done whole or not at all.

    Args:
        rests_on: Records as they were looked at; when one of them has changed since, nothing is done.
        do: Makes the change. What a tombstone may refuse is inserted first, before anything else is written.
        ids: Whom it concerns, for the report: ids only.
    """

    rests_on: tuple[Memory, ...]
    do: Callable[[Transaction], object]
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LessonShape:
    """What a rule's `write:` says about lessons.

    Args:
        kind: Given to every lesson; None leaves each its own.
        tags: Added to each.
        confidence: Ceiling.
    """

    kind: str | None = None
    tags: tuple[str, ...] = ()
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Basis:
    """What all steps decide with.

    Args:
        now: The present time, aware.
        zone: The user's, for dates and weekdays.
        retention: The rules in force.
        policy_hash: Of the policy set.
        embed: Vector of a stored text.
        count_tokens: Tokens of a text.
        summarise: Makes summaries; None takes the lines themselves.
        judge: Asked about close pairs; None leaves them alone.
        worth: How likely a text says something worth keeping, 0–1.
        shape: What lessons look like.
    """

    now: datetime
    zone: tzinfo
    retention: Retention
    policy_hash: str = "none"
    embed: Embed = lambda _text: None
    count_tokens: Callable[[str], int] = len
    summarise: Summarise | None = None
    judge: Judge | None = None
    worth: Worth = lambda _text, _vector: 1.0
    shape: LessonShape = field(default_factory=LessonShape)


@dataclass(frozen=True)
class Holding:
    """One user's records, with the look-ups that steps need.

    Args:
        survey: From the store.
    """

    survey: Survey

    @property
    def records(self) -> tuple[Surveyed, ...]:
        """All records, oldest written first."""
        return self.survey.records

    @cached_property
    def by_id(self) -> Mapping[str, Surveyed]:
        """Every record by its id."""
        return {one.memory.id: one for one in self.records}

    @cached_property
    def made_from(self) -> Mapping[str, tuple[Evidence, ...]]:
        """Links by the record that was made."""
        found: dict[str, list[Evidence]] = {}
        for link in self.survey.links:
            found.setdefault(link.derived, []).append(link)
        return {derived: tuple(links) for derived, links in found.items()}

    def active(self) -> Iterator[Surveyed]:
        """The records that recall may use, as far as their state goes."""
        return (one for one in self.records if one.memory.state == "active")

    def sessions(self, records: Collection[Surveyed]) -> set[str]:
        """In how many separate places these were said: sessions, and days where no session is known."""
        return {place for one in records for place in places(one)}


def places(one: Surveyed) -> set[str]:
    """The sessions that a record was said in; where none is known, the day stands for it."""
    first = one.memory.source.session or one.memory.session_id or one.memory.valid_from.date().isoformat()
    return {first, *(session for session, _ in one.again)}


def last_use(memory: Memory) -> datetime:
    """When a memory was last used, or else written."""
    return memory.last_accessed_at or memory.created_at


def whose(memory: Memory) -> tuple[str, str]:
    """What two records must share to be put together: the agent where it counts, and who reads them."""
    return (memory.agent_id if memory.scope == "agent" else "", memory.scope)


def archive(one: Surveyed, now: datetime, change: str) -> Act:
    """Take a record out of use; `restore` brings it back."""
    gone = replace(one.memory, state="archived", updated_at=now)
    return Act((one.memory,), lambda tx: tx.update(gone, None, change=change), (one.memory.id,))
