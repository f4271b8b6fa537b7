"""The end of a memory's time: expiry, archiving when long unused, limits on how many, and erasure.

In: one user's records and the retention rules. Out: `Act`s. What is archived can be restored; what is erased cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from proxy.plugs import Surveyed, Transaction
from proxy.policy.retention import retained
from proxy.scope import Scope
from proxy.sweeps.act import Act, Basis, Holding, archive, last_use

FORGOTTEN_IN_CHAT = "forgotten in chat"
"""The change that archives what a user said to forget."""
UNDO = timedelta(days=7)
"""How long that can be taken back."""

Forget = Callable[[Transaction, Scope, str], object]


def expire(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Archive what is past its time."""
    for one in holding.records:
        memory = one.memory
        due = memory.expires_at is not None and memory.expires_at <= basis.now
        if due and memory.state in ("active", "pending"):
            yield archive(one, basis.now, "expired")


def fade(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Archive what has faded from disuse, pending records included: nobody has looked at them for as long."""
    for one in holding.records:
        memory = one.memory
        if memory.state in ("active", "pending") and _state_after(one, basis) == "archived":
            yield archive(one, basis.now, "archived")


def limit(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Archive the weakest of a type or kind of which there are too many; a user's agents count together."""
    gone: set[str] = set()
    for surplus in _surpluses(holding, basis):
        for one in surplus:
            if one.memory.id not in gone:
                gone.add(one.memory.id)
                yield archive(one, basis.now, "over the limit")


def erase(holding: Holding, basis: Basis) -> Iterator[Act]:
    """Erase what was archived long enough; what a user said to forget goes with all that hangs on it."""
    after_s = basis.retention.delete_archived_after_s
    for one in holding.records:
        if one.memory.state != "archived":
            continue
        archived_for = basis.now - one.memory.updated_at
        owner = Scope(one.memory.tenant, one.memory.user_id, one.memory.agent_id)
        if one.change == FORGOTTEN_IN_CHAT:
            if archived_for > UNDO:
                yield Act((one.memory,), partial(_forget, owner, one.memory.id), (one.memory.id,))
        elif after_s is not None and archived_for.total_seconds() > after_s:
            yield Act((one.memory,), partial(_discard, owner, one.memory.id), (one.memory.id,))


def _forget(owner: Scope, memory_id: str, tx: Transaction) -> None:
    tx.forget(owner, [memory_id])


def _discard(owner: Scope, memory_id: str, tx: Transaction) -> None:
    tx.discard(owner, [memory_id])


def _state_after(one: Surveyed, basis: Basis) -> str:
    memory = one.memory
    return basis.retention.state_after(
        memory.memory_type,
        memory.kind,
        confidence=memory.confidence,
        strength=memory.strength,
        unused_s=(basis.now - last_use(memory)).total_seconds(),
        age_s=(basis.now - memory.created_at).total_seconds(),
    )


def _surpluses(holding: Holding, basis: Basis) -> Iterator[list[Surveyed]]:
    active = list(holding.active())
    for kind, rule in basis.retention.kinds.items():
        if rule.max_items is not None:
            yield _weakest([one for one in active if one.memory.kind == kind], rule.max_items, basis)
    for memory_type, rule in basis.retention.types.items():
        if rule.max_items is not None and memory_type != "working":
            yield _weakest([one for one in active if one.memory.memory_type == memory_type], rule.max_items, basis)


def _weakest(records: list[Surveyed], most: int, basis: Basis) -> list[Surveyed]:
    def left(one: Surveyed) -> tuple[float, float, str]:
        memory = one.memory
        used = last_use(memory)
        half_life_s = basis.retention.rule(memory.memory_type, memory.kind).half_life
        share = retained(memory.confidence, memory.strength, (basis.now - used).total_seconds(), half_life_s)
        return share, used.timestamp(), memory.id

    return sorted(records, key=left)[: max(len(records) - most, 0)]
