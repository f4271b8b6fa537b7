"""Bringing an archived record back into use.

In: a store, a scope, an id. Out: the record as it is now. It returns to the state it had before, as used just now, so
that the next sweep does not put it away again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from proxy.errors import StoreError
from proxy.plugs import Store, Transaction
from proxy.scope import Scope
from proxy.types import Memory, State


def restore(store: Store, scope: Scope, memory_id: str, *, now: datetime) -> Memory | None:
    """Bring an archived record back. To be called under its user's lock: the slot is looked at first.

    Args:
        store: Where it lies.
        scope: Who asks; it must be able to read the record.
        memory_id: Which.
        now: The present time, aware.

    Returns:
        The record as it is now, active, or pending when it was so before; None when there is none to read.

    Raises:
        StoreError: It is not archived, its slot holds a newer answer, or nothing was written.
    """
    memory = store.get(scope, memory_id)
    if memory is None:
        return None
    _check(store, scope, memory)
    following = replace(
        memory,
        state=_former_state(store, scope, memory),
        superseded_by=None,
        # Past its time it would never be found.
        expires_at=None if memory.expires_at is not None and memory.expires_at <= now else memory.expires_at,
        last_accessed_at=now,
        updated_at=now,
    )

    def work(tx: Transaction) -> None:
        present = tx.get(scope, memory_id)
        if present is None or present.state != "archived":
            raise StoreError(f"memory {memory_id} changed meanwhile: look at it again")
        tx.update(following, None, change="restored")

    store.transact(work).result()
    return following


def _check(store: Store, scope: Scope, memory: Memory) -> None:
    if memory.state != "archived":
        raise StoreError(f"memory {memory.id} is {memory.state}, not archived: there is nothing to restore")
    if memory.key is None:
        return
    for other in store.by_key(scope, memory.key):
        if other.scope == memory.scope and other.id != memory.id:
            raise StoreError(
                f"the slot '{memory.key}' holds a newer answer ({other.id}): archive or forget that one, then restore"
            )


def _former_state(store: Store, scope: Scope, memory: Memory) -> State:
    # What waited for review must not come back approved.
    states = [one.memory.state for one in store.history(scope, memory.id) if one.memory.id == memory.id]
    before = next((state for state in reversed(states) if state != "archived"), "active")
    return "pending" if before == "pending" else "active"
