"""How much of what is remembered is junk: duplicates, questions, guesses, echoes, secrets, what is out of date.

Pure. In: records in use, what was injected into the calls they came from, the retention rules, now. Out: an
`AuditReport`. Raw turns are a trace and no claim: they are counted apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from proxy.guard import redact
from proxy.inject import CLOSE_MARK, OPEN_MARK
from proxy.language import sentences
from proxy.policy.retention import Retention
from proxy.policy.speech import question
from proxy.types import Memory

TURN: Final = "turn"
UNUSED_AFTER: Final = timedelta(days=30)
"""Younger records have had no time to be of use."""

_TOLD: Final = re.compile(r"用户(?:要求|希望)|the user (?:asks|wants|would like) ", re.IGNORECASE)
JUNK: Final = ("duplicate", "question", "assistant_authored", "recall_echo", "secret", "stale")
"""What makes a record junk. One that was never used may still be needed tomorrow: it is told, and is none."""

_ASSISTANTS_OWN: Final = frozenset({"decision", "task", "summary", "lesson"})
"""Kinds that may be made of what the assistant said; as anything else, its words pose as the user's."""

_OWNER = re.compile(r"用户的?|用戶的?|\b(?:the )?users?(?:['’]s?)?\b", re.IGNORECASE)
_IDEOGRAPH = r"\u3400-\u9fff"
_WORDS = re.compile(rf"[{_IDEOGRAPH}]|[^\W_{_IDEOGRAPH}]+(?:[-_.:/][^\W_{_IDEOGRAPH}]+)*|[+$€£¥%-]")
_FILLING = frozenset("的了着是在也都就很会请呢啊吧") | frozenset(
    ("the", "a", "an", "is", "are", "am", "be", "to", "of", "in", "on", "at", "for", "with", "and", "that", "it")
)
_BLOCK_LINE = re.compile(r"^\s*- \[[^\]\n]{1,40} · \d{4}-\d\d-\d\d\] ", re.MULTILINE)
_HEADS = ("以下是从以往对话中回忆起的背景资料", "Background recalled from earlier conversations")
_BLOCK_WORDS = (OPEN_MARK, CLOSE_MARK, *_HEADS)

Injected = Mapping[str, Sequence[Memory]]
"""By request id: the memories that stood in that call."""


@dataclass(frozen=True, slots=True)
class Example:
    """One record that was found out.

    Args:
        id: The record's id.
        content: What it says; secrets are redacted.
        reason: Why, in a few words.
        other_id: The record it repeats or gives way to; None where there is none.
    """

    id: str
    content: str
    reason: str
    other_id: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    Args:
        count: Records that have it.
        share: Of the audited records, 0–1.
        examples: The first of them.
    """

    count: int
    share: float
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found.

    Args:
        records: Audited records, raw turns not among them.
        turns: Raw turns.
        repeated_turns: Raw turns that say what an earlier one says.
        junk: Records with a fault out of `JUNK`, each counted once.
        faults: By name: those in `JUNK`, and ``never_used``.
    """

    records: int
    turns: int
    repeated_turns: int
    junk: int
    faults: Mapping[str, Fault]

    @property
    def junk_share(self) -> float:
        """Junk among the audited records, 0–1."""
        return self.junk / self.records if self.records else 0.0

    def as_json(self) -> dict[str, Any]:
        """The report as JSON shows it."""
        return {**asdict(self), "junk_share": self.junk_share}


def audit(
    records: Iterable[Memory],
    now: datetime,
    *,
    retention: Retention | None = None,
    injected: Injected | None = None,
    examples: int = 3,
) -> AuditReport:
    """Look for junk among one user's records.

    Args:
        records: Those in use (active and pending), in any order; history is no junk.
        now: Aware UTC.
        retention: Says from when a record has faded; None leaves fading out.
        injected: What was injected into the calls that `suspects` names; without it, echoes are known by the block's
            words alone.
        examples: Most examples per fault.

    Returns:
        The report.
    """
    ordered = sorted(records, key=lambda memory: (memory.created_at, memory.id))
    turns = [memory for memory in ordered if memory.kind == TURN]
    kept = [memory for memory in ordered if memory.kind != TURN]
    found = {
        "duplicate": list(_duplicates(kept)),
        "question": _each(kept, _asked),
        "assistant_authored": _each(kept, _guessed),
        "recall_echo": _each(kept, lambda memory: _echoed(memory, injected or {})),
        "secret": _each(kept, _secret),
        "stale": [*_each(kept, lambda memory: _outlived(memory, now, retention)), *_replaced(kept)],
        "never_used": _each(kept, lambda memory: _unused(memory, now)),
    }
    junk = {example.id for name in JUNK for example in found[name]}
    faults = {name: _fault(some, len(kept), examples) for name, some in found.items()}
    return AuditReport(len(kept), len(turns), sum(1 for _ in _repeats(turns)), len(junk), faults)


def suspects(records: Iterable[Memory]) -> frozenset[str]:
    """The calls whose injected memories tell an echo from a coincidence.

    Only a record that says what an older one says can be an echo of it, so few calls need to be looked up.

    Args:
        records: As for `audit`.

    Returns:
        Request ids.
    """
    ordered = sorted(records, key=lambda memory: (memory.created_at, memory.id))
    kept = [memory for memory in ordered if memory.kind != TURN]
    return frozenset(later.source.request for later, _ in _repeats(kept) if later.source.request is not None)


def fingerprint(content: str) -> tuple[str, ...]:
    """What a text says, without what does not count: width, case, punctuation, filling words, whose memory it is.

    >>> fingerprint("用户偏好用 pnpm。") == fingerprint("偏好用 ＰＮＰＭ")
    True
    >>> fingerprint("The port is 8080") == fingerprint("The port is 8081")
    False
    """
    plain = _OWNER.sub(" ", unicodedata.normalize("NFKC", content)).casefold()
    return tuple(word for word in _WORDS.findall(plain) if word not in _FILLING)


# --- faults of one record ---


def _each(records: Sequence[Memory], fault: Callable[[Memory], Example | None]) -> list[Example]:
    return [found for memory in records if (found := fault(memory)) is not None]


def _example(memory: Memory, reason: str, other: str | None = None) -> Example:
    return Example(memory.id, redact(memory.content).text, reason, other)


def _asked(memory: Memory) -> Example | None:
    # What is told of the user ("The user wants to know why") tells something, whatever question stands in it.
    if _TOLD.match(memory.content):
        return None
    said = sentences(memory.content)
    # Records of what happened may tell what was asked; one that only asks tells nothing.
    return _example(memory, "it asks, and tells nothing") if said and all(map(question, said)) else None


def _guessed(memory: Memory) -> Example | None:
    if memory.source.role != "assistant" or memory.kind in _ASSISTANTS_OWN:
        return None
    return _example(memory, f"the assistant's words, kept as {memory.kind}")


def _echoed(memory: Memory, injected: Injected) -> Example | None:
    lowered = memory.content.casefold()
    if any(words.casefold() in lowered for words in _BLOCK_WORDS) or _BLOCK_LINE.search(memory.content):
        return _example(memory, "it holds words of the injected block")
    for recalled in injected.get(memory.source.request or "", ()):
        if recalled.id != memory.id and fingerprint(recalled.content) == fingerprint(memory.content):
            return _example(memory, "it repeats a memory that was injected into its own call", recalled.id)
    return None


def _secret(memory: Memory) -> Example | None:
    found = sorted(set(redact(memory.content).found))
    return _example(memory, f"it holds: {', '.join(found)}") if found else None


def _outlived(memory: Memory, now: datetime, retention: Retention | None) -> Example | None:
    if memory.superseded_by is not None:
        return _example(memory, "superseded, and still in use", memory.superseded_by)
    if memory.expires_at is not None and memory.expires_at <= now:
        return _example(memory, f"expired on {memory.expires_at:%Y-%m-%d}")
    if retention is None:
        return None
    state = retention.state_after(
        memory.memory_type,
        memory.kind,
        confidence=memory.confidence,
        strength=memory.strength,
        unused_s=(now - (memory.last_accessed_at or memory.updated_at)).total_seconds(),
        age_s=(now - memory.created_at).total_seconds(),
    )
    return _example(memory, "faded, and not archived") if state == "archived" else None


def _unused(memory: Memory, now: datetime) -> Example | None:
    if memory.access_count or now - memory.created_at < UNUSED_AFTER:
        return None
    return _example(memory, f"never used since {memory.created_at:%Y-%m-%d}")


# --- faults that show beside other records ---


def _readers(memory: Memory) -> tuple[str, str, str]:
    """Who reads it: records of different agents are no duplicates of each other."""
    owner = "" if memory.scope == "shared" else memory.user_id
    return memory.tenant, owner, memory.agent_id if memory.scope == "agent" else ""


def _repeats(ordered: Sequence[Memory]) -> Iterator[tuple[Memory, Memory]]:
    """Each record that says what an earlier one says, with that one."""
    first: dict[tuple[tuple[str, str, str], tuple[str, ...]], Memory] = {}
    for memory in ordered:
        says = fingerprint(memory.content)
        earlier = first.setdefault((_readers(memory), says), memory)
        if earlier is not memory and says:
            yield memory, earlier


def _duplicates(ordered: Sequence[Memory]) -> Iterator[Example]:
    seen = set()
    for later, earlier in _repeats(ordered):
        seen.add(later.id)
        yield _example(later, "it says what an earlier record says", earlier.id)
    for memory, other in _contained(ordered):
        if memory.id not in seen and other.id not in seen:
            yield _example(memory, "a record made of the same message says this and more", other.id)


def _contained(ordered: Sequence[Memory]) -> Iterator[tuple[Memory, Memory]]:
    """Each record all of whose words stand, in their order, in another one that was made of the same message."""
    same_message: dict[tuple[tuple[str, str, str], str], list[Memory]] = defaultdict(list)
    for memory in ordered:
        if memory.source.message_hash is not None:
            same_message[_readers(memory), memory.source.message_hash].append(memory)
    for together in same_message.values():
        says = {memory.id: fingerprint(memory.content) for memory in together}
        for memory in together:
            for other in together:
                part, whole = says[memory.id], says[other.id]
                if 0 < len(part) < len(whole) and any(whole[at : at + len(part)] == part for at in range(len(whole))):
                    yield memory, other
                    break


def _replaced(ordered: Sequence[Memory]) -> Iterator[Example]:
    """A slot has one answer: the newest."""
    newest: dict[tuple[tuple[str, str, str], str], Memory] = {}
    for memory in ordered:
        if memory.key is None or memory.state != "active":
            continue
        slot = (_readers(memory), memory.key)
        older = newest.get(slot)
        if older is not None and memory.valid_from > older.valid_from:
            yield _example(older, f"the slot {memory.key} has a newer answer", memory.id)
        elif older is not None:
            yield _example(memory, f"the slot {memory.key} has a newer answer", older.id)
            continue
        newest[slot] = memory


def _fault(found: Sequence[Example], of: int, examples: int) -> Fault:
    # A record may be out of date for two reasons, and is one record all the same.
    by_id = {example.id: example for example in reversed(found)}
    some = sorted(by_id.values(), key=lambda example: example.id)
    return Fault(len(by_id), len(by_id) / of if of else 0.0, tuple(some[:examples]))
