"""Reflection on what is stored: one `reflective` memory per pattern, with its evidence.

In: one user's records. Out: `Act`s. A pattern found again updates its record and never makes a second one; a lesson
that lost its evidence goes. What a user edited or put away stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import uuid_utils

from proxy.plugs import Surveyed, Transaction
from proxy.reflect import AT_LEAST, Episode, Pattern, patterns
from proxy.sweeps.act import Act, Basis, Holding, archive, whose
from proxy.sweeps.clusters import LOOSELY, clusters
from proxy.types import Language, Memory, Source

TAG = "reflection"
_MOST_LOOKED_AT = 2_000
"""The newest of a group; what came before has had its chance."""
_PUT_AWAY = frozenset({"archived", "compressed", "merged", "over the limit"})
"""Archived by a sweep: the episode happened all the same."""
_OURS = frozenset({"created", "reflected", "restored"})
_SAME_SHARE = 0.5
_SOURCE_RANK = {"tool": 0, "assistant": 1, "user": 2, "api": 2}

Group = tuple[str, str, Language]


def reflect(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Find patterns among episodes, and make, update or archive the lessons on them."""
    known = {one.memory.id: one for one in holding.records if TAG in one.memory.tags}
    met: set[str] = set()
    for group, episodes in _groups(holding).items():
        for pattern in _found(episodes, group[2], basis):
            lesson = _same(pattern, group, known, holding)
            if lesson is None and pattern.key not in met:
                yield _made(pattern, holding, basis)
            elif lesson is not None and lesson.memory.id not in met:
                yield from _updated(lesson, pattern, holding, basis)
            met |= {pattern.key, *([lesson.memory.id] if lesson else [])}
    for lesson in known.values():
        if lesson.memory.state == "active" and lesson.memory.id not in met and _is_groundless(lesson, holding):
            yield archive(lesson, basis.now, "evidence gone")


def _groups(holding: Holding) -> Mapping[Group, list[Surveyed]]:
    groups: dict[Group, list[Surveyed]] = {}
    for one in holding.records:
        memory = one.memory
        if memory.memory_type == "episodic" and memory.kind != "summary" and _happened(one):
            groups.setdefault((*whose(memory), memory.language), []).append(one)
    return {
        group: sorted(records, key=lambda one: (one.memory.valid_from, one.memory.id))[-_MOST_LOOKED_AT:]
        for group, records in groups.items()
    }


def _happened(one: Surveyed) -> bool:
    return one.memory.state == "active" or (one.memory.state == "archived" and one.change in _PUT_AWAY)


def _found(records: Sequence[Surveyed], language: Language, basis: Basis) -> Iterator[Pattern]:
    # A record that was said again is several episodes by itself.
    for cluster in clusters(records, 1, least=LOOSELY):
        episodes = [episode for one in cluster for episode in _episodes(one, basis)]
        if len(episodes) >= AT_LEAST:
            yield from patterns(episodes, language)


def _episodes(one: Surveyed, basis: Basis) -> Iterator[Episode]:
    memory = one.memory
    first = memory.source.session or memory.session_id
    said = [(first, memory.valid_from, memory.source.message_hash or memory.id)]
    said += [(session, at, f"{memory.id} in {session}") for session, at in one.again]
    for session, at, origin in said:
        local = at.astimezone(basis.zone)
        place = session or local.date().isoformat()
        yield Episode(memory.id, memory.content, local, place, memory.kind, origin)


def _same(pattern: Pattern, group: Group, known: Mapping[str, Surveyed], holding: Holding) -> Surveyed | None:
    """The lesson that a pattern was made into before: by most of its evidence, or by its words."""
    best: tuple[float, str] | None = None
    for lesson in known.values():
        if (*whose(lesson.memory), lesson.memory.language) != group:
            continue
        linked = {link.evidence for link in holding.made_from.get(lesson.memory.id, ())}
        shared = len(linked & set(pattern.evidence))
        share = shared / min(len(linked), len(pattern.evidence)) if shared else 0.0
        if lesson.memory.key == pattern.key:
            share = 1.0
        if share >= _SAME_SHARE and (best is None or (share, lesson.memory.id) > best):
            best = (share, lesson.memory.id)
    return None if best is None else known[best[1]]


def _is_groundless(lesson: Surveyed, holding: Holding) -> bool:
    """Whether so much of the evidence was withdrawn that too little is left; what merely aged out is no withdrawal."""
    linked = [holding.by_id[link.evidence] for link in holding.made_from.get(lesson.memory.id, ())]
    left = sum(1 + len(one.again) for one in linked if _happened(one))
    return left < AT_LEAST and any(not _happened(one) for one in linked)


def _made(pattern: Pattern, holding: Holding, basis: Basis) -> Act:
    evidence = [holding.by_id[id_].memory for id_ in pattern.evidence]
    newest = evidence[-1]
    lesson = Memory(
        id=str(uuid_utils.uuid7()),
        tenant=newest.tenant,
        user_id=newest.user_id,
        agent_id=newest.agent_id,
        scope=newest.scope,
        memory_type="reflective",
        kind=basis.shape.kind or pattern.kind,
        content=pattern.content,
        created_at=basis.now,
        updated_at=basis.now,
        valid_from=newest.valid_from,
        key=pattern.key,
        tags=(TAG, *(tag for tag in basis.shape.tags if tag != TAG)),
        language=newest.language,
        confidence=min(pattern.confidence, basis.shape.confidence),
        source=Source(role=_role(evidence), rule="sweep:reflect", policy_hash=basis.policy_hash),
        token_estimate=basis.count_tokens(pattern.content),
    )

    def do(tx: Transaction) -> None:
        tx.insert(lesson, basis.embed(lesson.content))
        tx.link(lesson, pattern.evidence, "reflected")

    return Act(tuple(evidence), do, (lesson.id,))


def _updated(lesson: Surveyed, pattern: Pattern, holding: Holding, basis: Basis) -> Iterator[Act]:
    memory = lesson.memory
    linked = {link.evidence for link in holding.made_from.get(memory.id, ())}
    confidence = min(pattern.confidence, basis.shape.confidence)
    # Evidence that was erased for its age still counts for what was learnt from it.
    fewer = confidence < memory.confidence and set(pattern.evidence) >= linked
    news = memory.content != pattern.content or not set(pattern.evidence) <= linked or confidence > memory.confidence
    if memory.state != "active" or lesson.change not in _OURS or fewer or not news:
        return
    rewritten = memory.content != pattern.content
    following = replace(
        memory,
        content=pattern.content,
        confidence=confidence,
        valid_from=max(memory.valid_from, holding.by_id[pattern.evidence[-1]].memory.valid_from),
        version=memory.version + 1 if rewritten else memory.version,
        token_estimate=basis.count_tokens(pattern.content),
        updated_at=basis.now,
    )

    def do(tx: Transaction) -> None:
        tx.update(following, basis.embed(following.content) if rewritten else None, change="reflected")
        tx.unlink(memory)
        tx.link(memory, pattern.evidence, "reflected")

    yield Act((memory, *(holding.by_id[id_].memory for id_ in pattern.evidence)), do, (memory.id,))


def _role(evidence: Sequence[Memory]) -> str:
    return min((memory.source.role or "user" for memory in evidence), key=lambda name: _SOURCE_RANK.get(name, 0))
