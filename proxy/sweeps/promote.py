"""What a user said in several sessions becomes a lasting fact.

In: one user's records. Out: `Act`s. Sessions count, not repetitions; only the user's own words, never a tool's or the
assistant's. A fact that was replaced, archived or forgotten since is not brought back by old episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b

import numpy as np
import uuid_utils

from proxy.conflict import agree, normal
from proxy.plugs import Surveyed, Transaction
from proxy.sweeps.act import Act, Basis, Holding, whose
from proxy.types import Language, Memory, Source, Vector

_OWN_WORDS = ("user", "api")
_NO_FACT = frozenset({"summary", "tool_result", "tool_failure", "task"})
_QUOTED: dict[Language, str] = {"zh": "用户多次说过：{text}"}
_QUOTED_ELSE = "The user has said several times: {text}"
_WORTH = 0.5
_MOST_CONFIDENCE = 0.95
_LEFT_PER_SESSION = 0.5
"""What each further session leaves of the doubt."""

Group = tuple[str, str, str]
"""Agent, readers and words."""


def promote(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Make lasting facts of what enough sessions said, and raise the confidence of those that more sessions said."""
    rule = basis.retention.promote
    if rule is None:
        return
    lasting = _Lasting(holding)
    for group, records in _groups(holding).items():
        sessions = holding.sessions(records)
        if len(sessions) < rule.same_fact_in_sessions or not _is_worth_it(records, basis):
            continue
        fact = _fact(records, len(sessions), group[2], basis)
        # Whatever became of it, and whatever stands in its slot since.
        known = lasting.by_key.get((*whose(fact), fact.key), ())
        raised = next((one for one in known if one.state == "active" and one.content == fact.content), None)
        if raised is not None and _has_more(raised, fact, records, holding):
            yield _raised(raised, fact, records, basis)
        elif not known and group not in lasting.words:
            vector = basis.embed(fact.content)
            if not lasting.says(fact, vector, basis.retention.dedupe_at("semantic", fact.kind)):
                yield _made(fact, vector, records)


class _Lasting:
    """The lasting memories of a user, to be asked whether a fact is among them.

    Args:
        holding: The user's records.
    """

    def __init__(self, holding: Holding) -> None:
        self._held = [one for one in holding.records if _is_lasting(one)]
        self.words = {_group(one) for one in self._held}
        self.by_key: dict[tuple[str, str, str | None], list[Memory]] = {}
        for one in self._held:
            self.by_key.setdefault((*whose(one.memory), one.memory.key), []).append(one.memory)
        self._embedded = [one.memory for one in self._held if one.vector is not None]
        vectors = [one.vector for one in self._held if one.vector is not None]
        self._matrix = np.stack(vectors) if vectors else None

    def says(self, fact: Memory, vector: Vector | None, least: float) -> bool:
        """Whether one of them says the same in other words."""
        if vector is None or self._matrix is None:
            return False
        near = (self._embedded[at] for at in np.flatnonzero(self._matrix @ vector >= least))
        return any(whose(one) == whose(fact) and agree(one.content, fact.content) for one in near)


def _is_lasting(one: Surveyed) -> bool:
    # What was lasting once and is no more in use was replaced or put away for a reason.
    merged_away = one.memory.state == "archived" and one.change == "merged"
    return one.memory.memory_type == "semantic" and not merged_away


def _is_worth_it(records: Sequence[Surveyed], basis: Basis) -> bool:
    """Raw talk counts only when it says something; what a rule extracted was looked at before."""
    if any(one.memory.kind != "turn" for one in records):
        return True
    return any(basis.worth(one.memory.content, one.vector) >= _WORTH for one in records)


def _groups(holding: Holding) -> dict[Group, list[Surveyed]]:
    groups: dict[Group, list[Surveyed]] = {}
    for one in holding.records:
        memory = one.memory
        used = memory.state == "active" or one.change in ("merged", "archived", "compressed")
        own = (memory.source.role or "user") in _OWN_WORDS and memory.kind not in _NO_FACT
        if memory.memory_type == "episodic" and used and own:
            groups.setdefault(_group(one), []).append(one)
    return groups


def _group(one: Surveyed) -> Group:
    agent, readers = whose(one.memory)
    return agent, readers, normal(one.memory.content)


def _fact(records: Sequence[Surveyed], sessions: int, said: str, basis: Basis) -> Memory:
    newest = max(records, key=lambda one: (one.memory.valid_from, one.memory.id)).memory
    surest = max(one.memory.confidence for one in records)
    verbatim = newest.kind == "turn"
    content = _QUOTED.get(newest.language, _QUOTED_ELSE).format(text=newest.content) if verbatim else newest.content
    return Memory(
        id=str(uuid_utils.uuid7()),
        tenant=newest.tenant,
        user_id=newest.user_id,
        agent_id=newest.agent_id,
        scope=newest.scope,
        memory_type="semantic",
        kind="fact" if verbatim else newest.kind,
        content=content,
        created_at=basis.now,
        updated_at=basis.now,
        valid_from=_last_said(records),
        key="said:" + blake2b(said.encode(), digest_size=8).hexdigest(),
        tags=("promoted",),
        language=newest.language,
        confidence=round(min(_MOST_CONFIDENCE, 1 - (1 - surest) * _LEFT_PER_SESSION ** (sessions - 1)), 4),
        source=Source(role="user", rule="sweep:promote", policy_hash=basis.policy_hash),
        token_estimate=basis.count_tokens(content),
    )


def _last_said(records: Sequence[Surveyed]) -> datetime:
    return max(at for one in records for at in (one.memory.valid_from, *(again for _, again in one.again)))


def _made(fact: Memory, vector: Vector | None, records: Sequence[Surveyed]) -> Act:
    def do(tx: Transaction) -> None:
        tx.insert(fact, vector)
        tx.link(fact, [one.memory.id for one in records], "promoted")

    return Act(tuple(one.memory for one in records), do, (fact.id,))


def _has_more(known: Memory, fact: Memory, records: Sequence[Surveyed], holding: Holding) -> bool:
    linked = {link.evidence for link in holding.made_from.get(known.id, ())}
    return fact.confidence > known.confidence or bool({one.memory.id for one in records} - linked)


def _raised(known: Memory, fact: Memory, records: Sequence[Surveyed], basis: Basis) -> Act:
    surer = replace(
        known,
        confidence=max(known.confidence, fact.confidence),
        valid_from=max(known.valid_from, fact.valid_from),
        updated_at=basis.now,
    )

    def do(tx: Transaction) -> None:
        tx.update(surer, None, change="promoted")
        tx.link(known, [one.memory.id for one in records], "promoted")

    return Act((known, *(one.memory for one in records)), do, (known.id,))
