"""What a play left in memory against what it planted there. Pure.

In: a play's marks, each user's records. Out: a `Verdict`: what was missed, what is wrong, how much is junk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bench.playing import Kept
from bench.screenplay import Mark, Play
from proxy.audit import AuditReport, audit
from proxy.conflict import normal
from proxy.guard import redact
from proxy.policy.retention import Retention
from proxy.types import Memory

_TRACES = frozenset({"turn", "tool_result", "tool_failure", "summary", "task", "lesson"})
"""Kinds that tell what happened; all others claim something about the user."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A record that claims what it must not.

    Args:
        memory: The record.
        reason: Why: the mark that it meets, or that it meets none.
    """

    memory: Memory
    reason: str

    def __str__(self) -> str:
        memory = self.memory
        return f"{memory.user_id}: {memory.content!r} ({memory.kind}, rule {memory.source.rule}): {self.reason}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a play ended.

    Args:
        planted: Marks of what had to be remembered.
        missed: Those that no record tells.
        claims: Active records that claim something about a user.
        wrong: Those that are not so, or were not said.
        leaks: Records of any kind and state that hold a secret.
        audits: By user.
    """

    planted: int
    missed: tuple[Mark, ...]
    claims: int
    wrong: tuple[Wrong, ...]
    leaks: tuple[Memory, ...]
    audits: Mapping[str, AuditReport]

    @property
    def recall(self) -> float:
        """Share of what was planted that is remembered, 0–1."""
        return 1 - len(self.missed) / self.planted if self.planted else 1.0

    @property
    def precision(self) -> float:
        """Share of the claims that are right, 0–1."""
        return 1 - len(self.wrong) / self.claims if self.claims else 1.0

    @property
    def junk_share(self) -> float:
        """Junk among all records but turns, 0–1."""
        records = sum(report.records for report in self.audits.values())
        return sum(report.junk for report in self.audits.values()) / records if records else 0.0

    def faults(self, name: str) -> int:
        """Records with one of the audit's faults."""
        return sum(report.faults[name].count for report in self.audits.values())


def judge(play: Play, kept: Mapping[str, Kept], now: datetime, retention: Retention | None = None) -> Verdict:
    """Compare what was kept with the play's marks.

    Args:
        play: What was played.
        kept: By user.
        now: The play's clock.
        retention: For what has faded.
    """
    planted = [mark for mark in play.marks if mark.wanted in ("remembered", "known_once")]
    missed = [mark for mark in planted if not _told(mark, kept[mark.user])]
    claims = {user: [memory for memory in one.active if _claims(memory)] for user, one in kept.items()}
    return Verdict(
        planted=len(planted),
        missed=tuple(missed),
        claims=sum(map(len, claims.values())),
        wrong=tuple(
            Wrong(memory, reason)
            for user, some in claims.items()
            for memory in some
            if (reason := _fault([mark for mark in play.marks if mark.user == user], memory.content))
        ),
        leaks=tuple(memory for one in kept.values() for memory in one.records if redact(memory.content).found),
        audits={user: audit(one.active, now, retention=retention, injected=one.injected) for user, one in kept.items()},
    )


def census(kept: Mapping[str, Kept]) -> Counter[tuple[str, str, str, str]]:
    """How many records say what, by user, state and kind: what must not change when all is said again."""
    return Counter(
        (user, memory.state, memory.kind, normal(memory.content))
        for user, one in kept.items()
        for memory in one.records
    )


def _claims(memory: Memory) -> bool:
    return memory.kind not in _TRACES and memory.state == "active"


def _told(mark: Mark, kept: Kept) -> bool:
    some: Sequence[Memory] = kept.active if mark.wanted == "remembered" else kept.records
    return any(memory.kind not in _TRACES and mark.says(memory.content) for memory in some)


def _fault(marks: Sequence[Mark], content: str) -> str:
    """Why a claim is wrong; empty when it is right."""
    against = next((mark for mark in marks if mark.wanted == "absent" and mark.says(content)), None)
    if against is not None:
        return f"it must not be there ({against.place})"
    if not any(mark.wanted != "absent" and mark.says(content) for mark in marks):
        return "nothing of the kind was planted"
    return ""
