"""Records without a vector of the present model: which they are, and how they come to one.

In: the present model's fingerprint, then vectors of texts that were read here. Out: `Unembedded` records; rows and
entries of the vector index. A record that the model gives no vector carries the fingerprint alone, and waits no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from proxy.plugs import Unembedded
from proxy.store import queries
from proxy.store.partition import NEVER, Entry, pack, thread_of
from proxy.store.readers import Readers
from proxy.store.transaction import Surroundings
from proxy.store.writer import Unit
from proxy.types import Vector

_SQL = queries.load("unembedded")


def waiting(readers: Readers, fingerprint: str, limit: int) -> Sequence[Unembedded]:
    """See `Store.unembedded`."""
    keys = {"fingerprint": fingerprint, "limit": limit}
    return tuple(Unembedded(row, content) for row, content in readers.all(_SQL["waiting"], keys))


def count(readers: Readers, fingerprint: str) -> int:
    """See `Store.unembedded_count`."""
    return _number(readers.one(_SQL["count_waiting"], {"fingerprint": fingerprint}))


def count_readable(readers: Readers, fingerprint: str, partitions: dict[str, Any]) -> int:
    """How many active records of some partitions have no vector of the present model."""
    return _number(readers.one(_SQL["count_readable"], {"fingerprint": fingerprint, **partitions}))


def embed(unit: Unit, around: Surroundings, embedded: Sequence[tuple[Unembedded, Vector | None]]) -> int:
    """See `Store.embed`; inside a transaction.

    Returns:
        How many records were given what was made of their text.
    """
    done, changed = 0, set()
    for one, vector in embedded:
        packed = pack(vector, around.dimension)
        keys = {"row": one.row, "content": one.content, "fingerprint": around.fingerprint, "vector": packed}
        found = unit.connection.execute(_SQL["embed"], keys).fetchall()
        for partition, state, term_count, expires_at, session, created_at in found:
            done += 1
            if state == "active" and packed is not None:
                expiry = NEVER if expires_at is None else expires_at
                entry = Entry(one.row, term_count, expiry, packed, thread_of(session, created_at))
                unit.after_commit.append(partial(around.index.put, partition, entry))
                changed.add(partition)
    unit.after_commit += [partial(around.generations.bump, partition) for partition in changed]
    return done


def _number(row: tuple[Any, ...] | None) -> int:
    return int(row[0]) if row else 0
