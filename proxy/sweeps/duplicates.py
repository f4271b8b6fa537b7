"""Near-duplicates that slipped through when they were written: one of each pair stays, the other is archived.

In: one user's records. Out: `Act`s. Texts are one only when they are the same words; a likeness of vectors alone never
merges, nor do texts whose digits differ.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from proxy.conflict import agree, normal
from proxy.plugs import Surveyed, Transaction
from proxy.sweeps.act import Act, Basis, Holding, last_use, whose
from proxy.types import Memory, Source

_SOURCE_RANK = {"tool": 0, "assistant": 1, "user": 2, "api": 2}
_DIGITS = re.compile(r"\d+")
_WORDS = re.compile(r"[a-z][\w.+#-]*", re.IGNORECASE)
_NEGATION = re.compile(
    r"[不没無无别別未非勿莫]|\b(?:not?|never|without|none|neither|nor|cannot)\b|n['’]t\b", re.IGNORECASE
)
_BLOCK = 512
_TRIED = 8
"""How many of a record's nearest are compared word by word."""

Group = tuple[object, ...]


def merge(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Archive what says the same as another record with the same readers.

    Among the same, the one from the better source stays, then the one with a key, the surer, the stronger, the older.
    Said in another session, it gains strength; from the same session, nothing.
    """
    for group in _groups(holding).values():
        stands_for: dict[str, list[Surveyed]] = {}
        kept_by: dict[str, str] = {}
        for keeper, duplicate in _pairs(sorted(group, key=_standing), basis):
            kept_by[duplicate.memory.id] = keeper.memory.id
        for duplicate_id, keeper_id in kept_by.items():
            while keeper_id in kept_by:
                keeper_id = kept_by[keeper_id]  # who keeps another may go for a third
            stands_for.setdefault(keeper_id, []).append(holding.by_id[duplicate_id])
        for keeper_id, duplicates in stands_for.items():
            yield _merged(holding.by_id[keeper_id], duplicates, basis)


def _groups(holding: Holding) -> Mapping[Group, list[Surveyed]]:
    """Only records of one group may be one: same readers, type, kind and digits."""
    groups: dict[Group, list[Surveyed]] = {}
    for one in holding.active():
        memory = one.memory
        group = (*whose(memory), memory.memory_type, memory.kind, digits(memory.content))
        groups.setdefault(group, []).append(one)
    return {group: records for group, records in groups.items() if len(records) > 1}


def digits(text: str) -> tuple[str, ...]:
    """The numbers in a text, in order; full-width ones are the same.

    >>> digits("端口 ８０８０, 15.3")
    ('8080', '15', '3')
    """
    return tuple(_DIGITS.findall(unicodedata.normalize("NFKC", text)))


def _standing(one: Surveyed) -> tuple[float, bool, float, float, float, str]:
    memory = one.memory
    rank = _SOURCE_RANK.get(memory.source.role or "user", 0)
    return (-rank, memory.key is None, -memory.confidence, -memory.strength, memory.created_at.timestamp(), memory.id)


def _pairs(ordered: Sequence[Surveyed], basis: Basis) -> Iterator[tuple[Surveyed, Surveyed]]:
    """Who goes, each once, and for whom."""
    first: dict[str, Surveyed] = {}
    left: list[Surveyed] = []
    for one in ordered:
        keeper = first.setdefault(normal(one.memory.content), one)
        if keeper is not one and _may_unite(keeper.memory, one.memory):
            yield keeper, one
        else:
            left.append(one)
    # The raw trace of a turn is only ever one with the very same words.
    if left and left[0].memory.kind != "turn":
        yield from _alike(left, basis)


def _alike(ordered: Sequence[Surveyed], basis: Basis) -> Iterator[tuple[Surveyed, Surveyed]]:
    held = [(one, one.vector) for one in ordered if one.vector is not None]
    if len(held) < 2:
        return
    least = basis.retention.dedupe_at(held[0][0].memory.memory_type, held[0][0].memory.kind)
    matrix = np.stack([vector for _, vector in held])
    stays = np.ones(len(held), bool)
    for start in range(0, len(held), _BLOCK):
        cosines = matrix[start : start + _BLOCK] @ matrix.T
        for place, row in enumerate(cosines, start):
            # Only those before it: each pair is met once, with the better one as keeper.
            near = np.flatnonzero((row[:place] >= least) & stays[:place])
            for at in near[np.argsort(-row[near], kind="stable")][:_TRIED]:
                keeper, one = held[at][0], held[place][0]
                if _may_unite(keeper.memory, one.memory) and _say_the_same(keeper.memory, one.memory, basis):
                    stays[place] = False
                    yield keeper, one
                    break


def _may_unite(keeper: Memory, other: Memory) -> bool:
    """One slot is not another, and what has a key does not go for what has none."""
    return other.key in (None, keeper.key)


def _say_the_same(one: Memory, other: Memory, basis: Basis) -> bool:
    if agree(one.content, other.content):
        return True
    if basis.judge is None or _marks(one.content) != _marks(other.content):
        return False
    older, newer = sorted((one, other), key=lambda memory: memory.created_at)
    return basis.judge(older.content, newer.content) == "same"


def _marks(text: str) -> tuple[object, ...]:
    """What may not differ whatever a judge says: negation, Latin names and words of the trade."""
    plain = unicodedata.normalize("NFKC", text)
    return len(_NEGATION.findall(plain)), frozenset(word for word in _WORDS.findall(plain) if not word.islower())


def _merged(keeper: Surveyed, duplicates: Sequence[Surveyed], basis: Basis) -> Act:
    def do(tx: Transaction) -> None:
        used = max(last_use(one.memory) for one in (keeper, *duplicates))
        if used > last_use(keeper.memory):
            later = replace(keeper.memory, last_accessed_at=used, updated_at=basis.now)
            tx.update(later, None, change="merged")
        tx.link(keeper.memory, [one.memory.id for one in duplicates], "merged")
        for one in duplicates:
            gone = replace(one.memory, state="archived", superseded_by=keeper.memory.id, updated_at=basis.now)
            tx.update(gone, None, change="merged")
            tx.witness(keeper.memory, one.memory.source, one.memory.created_at)
            for session, at in one.again:
                tx.witness(keeper.memory, Source(session=session), at)

    rests_on = (keeper.memory, *(one.memory for one in duplicates))
    return Act(rests_on, do, tuple(memory.id for memory in rests_on))
