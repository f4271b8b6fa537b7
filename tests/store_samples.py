"""Records, messages and turns for the store's tests, and a clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from uuid_utils import uuid7

from proxy.observe import content_hash
from proxy.plugs import Found, JournalTurn, Ledger, Store, Transaction
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.types import Memory, Message, Source, Vector

START = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)
DIMENSION = 16
ALICE = Scope("acme", "alice", session_id="s1")
ALICES_CODER = Scope("acme", "alice", "coder")
BOB = Scope("acme", "bob")
ALICE_ELSEWHERE = Scope("globex", "alice")


class Clock:
    """Time as the tests say it is."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> datetime:
        """Move on by days=, seconds= …"""
        self.now += timedelta(**by)
        return self.now


class IndexedStore(SqliteStore):
    """Answers each search from index files that are up to date; to be opened with `exact_below` at 0."""

    def search(self, scope: Scope, *args: Any, **more: Any) -> Found:
        for partition in scope.readable:
            self._index.snapshots(partition)
        assert self.settle(20)
        return super().search(scope, *args, **more)


class OldIndexStore(IndexedStore):
    """As its parent, but a file once made stays: what changes later is masked, or found beside it."""

    def __init__(self, path: Path, **more: Any) -> None:
        super().__init__(path, **more)
        self._index.churn = float("inf")


def unit(seed: int) -> Vector:
    """A random direction that float16 holds exactly enough."""
    vector = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def memory(content: str = "The user prefers tea", owner: Scope = ALICE, at: datetime = START, **fields: Any) -> Memory:
    """A record of `owner`'s, `agent`-scoped and semantic by default; `message` and `role` go to its source."""
    source = Source(role=fields.pop("role", "user"), message_hash=fields.pop("message", None))
    defaults: dict[str, Any] = {
        "id": str(uuid7()),
        "tenant": owner.tenant,
        "user_id": owner.user_id,
        "agent_id": owner.agent_id,
        "scope": "agent",
        "memory_type": "semantic",
        "kind": "fact",
        "created_at": at,
        "updated_at": at,
        "valid_from": at,
        "source": source,
    }
    return Memory(content=content, **{**defaults, **fields})


def put(store: Store, *memories: Memory, vectors: Sequence[Vector | None] | None = None) -> None:
    """Insert records in one transaction, and wait for the disk."""
    its_vectors = vectors if vectors is not None else [None] * len(memories)

    def work(tx: Transaction) -> None:
        for one, vector in zip(memories, its_vectors, strict=True):
            tx.insert(one, vector)

    store.transact(work).result()


def said(text: str, chain: str | None = None, role: str = "user") -> Message:
    """A message."""
    hashed = content_hash(role, text)
    return Message(role, text, hashed, chain or f"chain of {hashed}")


def turn(*new: Message, scope: Scope = ALICE, **fields: Any) -> JournalTurn:
    """A turn as the pipeline opens it."""
    defaults: dict[str, Any] = {
        "id": str(uuid7()),
        "seen_scope": scope.owner,
        "chain": new[-1].chain if new else "empty",
        "at": START,
    }
    return JournalTurn(scope=scope, new=new, **{**defaults, **fields})


def account(opened: JournalTurn, **fields: Any) -> Ledger:
    """The ledger entry of a turn."""
    return Ledger(opened.id, opened.scope, opened.at, fields.pop("status", "ok"), **fields)
