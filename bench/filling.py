"""Fills scopes with memories, straight through the store: as the memory API would, only faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from uuid_utils import uuid7

from bench.texts import Kept
from proxy.embed import BUILTIN_MODEL, StaticEmbedder
from proxy.observe import answer_hash
from proxy.plugs import Embedder, Store, Transaction
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.types import Memory, Source, Vector

TENANT = "default"
"""The tenant that the product gives every caller as shipped; another one would find no memories."""
_BATCH = 500


@contextmanager
def open_store(data: Path, embedder: Embedder) -> Iterator[SqliteStore]:
    """The long-term store of a data folder, with the product's defaults."""
    data.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(
        data / "sidemirror.db",
        fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        answer_hash=answer_hash,
        clock=lambda: datetime.now(UTC),
    )
    try:
        yield store
    finally:
        store.close()


def open_embedder() -> StaticEmbedder:
    """The embedder in the package."""
    return StaticEmbedder(BUILTIN_MODEL)


def fill(
    store: Store, embedder: Embedder, scope: Scope, kept: Sequence[Kept], done: Callable[[int], object]
) -> list[tuple[Memory, Vector | None]]:
    """Store memories, spread over the last 200 days.

    Args:
        store: Where.
        embedder: For their vectors.
        scope: Whose.
        kept: What.
        done: Told how many were stored since the last time.

    Returns:
        The records with their vectors.
    """
    now = datetime.now(UTC)
    filled: list[tuple[Memory, Vector | None]] = []
    for start in range(0, len(kept), _BATCH):
        batch = kept[start : start + _BATCH]
        records = [_memory(scope, one, now - timedelta(hours=7 * (start + i) % 4800)) for i, one in enumerate(batch)]
        pairs = list(zip(records, embedder.documents([one.content for one in batch]), strict=True))
        store.transact(lambda tx, pairs=pairs: _insert(tx, pairs)).result()  # type: ignore[misc]
        filled += pairs
        done(len(batch))
    return filled


def fill_many(store: Store, scope: Scope, told: Sequence[tuple[Kept, Vector | None]]) -> None:
    """Store a scope's memories in one transaction, spread over the last 200 days.

    Args:
        store: Where.
        scope: Whose.
        told: What, each with its vector.
    """
    now = datetime.now(UTC)
    records = [_memory(scope, one, now - timedelta(hours=7 * i % 4800)) for i, (one, _) in enumerate(told)]
    pairs = list(zip(records, (vector for _, vector in told), strict=True))
    store.transact(lambda tx: _insert(tx, pairs)).result()


def _insert(tx: Transaction, pairs: Iterable[tuple[Memory, Vector | None]]) -> None:
    for memory, vector in pairs:
        tx.insert(memory, vector)


def _memory(scope: Scope, one: Kept, at: datetime) -> Memory:
    return Memory(
        id=str(uuid7()),
        tenant=scope.tenant,
        user_id=scope.user_id,
        agent_id=scope.agent_id,
        scope=one.scope,
        memory_type=one.memory_type,
        kind=one.kind,
        content=one.content,
        created_at=at,
        updated_at=at,
        valid_from=at,
        language=one.language,
        confidence=0.3 if one.kind == "turn" else 0.8,
        source=Source(role="user"),
        token_estimate=len(one.content) // 3 + 1,
    )
