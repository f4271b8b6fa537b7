"""Related old memories go under one summary, which can be undone: the members are archived, not lost.

In: one user's records. Out: `Act`s. Restoring a member works as for any archived record; forgetting one erases the
summary and makes the others active again, so that the next sweep makes a summary without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo

import uuid_utils

from proxy.clip import one_line
from proxy.conflict import normal
from proxy.plugs import Surveyed, Transaction
from proxy.policy.retention import CompressRule
from proxy.scope import Scope
from proxy.sweeps.act import Act, Basis, Holding, last_use, whose
from proxy.sweeps.clusters import clusters
from proxy.types import Language, Memory, MemoryType, Source

TAG = "compressed"
_MOST_MEMBERS = 50
_MOST_LINES = 12
_MOST_LINE_CHARS = 160
_HEAD: dict[Language, str] = {"zh": "{since} 至 {until} 的 {count} 条相关记忆："}
_HEAD_ELSE = "{count} related memories, {since} to {until}:"
_SOURCE_RANK = {"tool": 0, "assistant": 1, "user": 2, "api": 2}


def compress(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Put related records that nobody used for long under summaries."""
    for memory_type, rule in basis.retention.compress.items():
        for group in _groups(holding, basis, memory_type, rule):
            for cluster in clusters(group, rule.at_least):
                for start in range(0, len(cluster), _MOST_MEMBERS):
                    members = cluster[start : start + _MOST_MEMBERS]
                    if len(members) >= rule.at_least:
                        yield _compressed(members, basis)


def _groups(holding: Holding, basis: Basis, memory_type: MemoryType, rule: CompressRule) -> Iterator[list[Surveyed]]:
    groups: dict[tuple[object, ...], list[Surveyed]] = {}
    for one in holding.active():
        memory = one.memory
        old = (basis.now - last_use(memory)).total_seconds() > rule.older_than
        # A slot is asked for by its key, and a summary is short already.
        if memory.memory_type == memory_type and old and memory.key is None and memory.kind != "summary":
            groups.setdefault((*whose(memory), memory.language), []).append(one)
    for group in groups.values():
        yield sorted(group, key=lambda one: (one.memory.valid_from, one.memory.id))


def _compressed(members: Sequence[Surveyed], basis: Basis) -> Act:
    summary = _summary([one.memory for one in members], basis)

    def do(tx: Transaction) -> None:
        tx.insert(summary, basis.embed(summary.content))
        tx.link(summary, [one.memory.id for one in members], "compressed")
        for one in members:
            tx.update(replace(one.memory, state="archived", updated_at=basis.now), None, change="compressed")

    return Act(tuple(one.memory for one in members), do, (summary.id,))


def _summary(members: Sequence[Memory], basis: Basis) -> Memory:
    first = members[0]
    owner = Scope(first.tenant, first.user_id, first.agent_id)
    lines = [memory.content for memory in members]
    told = basis.summarise(lines, first.language, owner) if basis.summarise is not None else None
    content = told or extract(members, basis.zone)
    # The least trusted of them is as far as the whole can be trusted.
    role = min((memory.source.role or "user" for memory in members), key=lambda name: _SOURCE_RANK.get(name, 0))
    return Memory(
        id=str(uuid_utils.uuid7()),
        tenant=first.tenant,
        user_id=first.user_id,
        agent_id=first.agent_id,
        scope=first.scope,
        memory_type=first.memory_type,
        kind="summary",
        content=content,
        created_at=basis.now,
        updated_at=basis.now,
        valid_from=max(memory.valid_from for memory in members),
        tags=(TAG,),
        language=first.language,
        confidence=sorted(memory.confidence for memory in members)[len(members) // 2],
        source=Source(role=role, rule="sweep:compress", policy_hash=basis.policy_hash),
        token_estimate=basis.count_tokens(content),
    )


def extract(members: Sequence[Memory], zone: tzinfo) -> str:
    """A summary out of the members' own words: how many and from when, then lines spread over the time.

    Args:
        members: Oldest first, at least one.
        zone: For dates.
    """
    unique = list({normal(memory.content): memory for memory in members}.values())
    chosen = unique
    if len(unique) > _MOST_LINES:
        # First and last are among them, and the rest at even steps between.
        step = (len(unique) - 1) / (_MOST_LINES - 1)
        chosen = [unique[round(place * step)] for place in range(_MOST_LINES)]
    head = _HEAD.get(members[0].language, _HEAD_ELSE).format(
        since=_day(members[0].valid_from, zone), until=_day(members[-1].valid_from, zone), count=len(members)
    )
    return "\n".join(
        [head, *(f"- {_day(one.valid_from, zone)} {one_line(one.content, _MOST_LINE_CHARS)}" for one in chosen)]
    )


def _day(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).date().isoformat()
