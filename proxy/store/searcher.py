"""Search in a scope: its vectors and postings are gathered, filters narrow them, and `search.find` compares.

In: a scope, a question's vectors and terms. Out: rows with what each leg found in them; records are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

import numpy as np

from proxy.plugs import Filters, Found, Part, SearchSource
from proxy.scope import Scope
from proxy.store import listing, queries
from proxy.store.contents import Contents
from proxy.store.health import Health
from proxy.store.partition import pack
from proxy.store.postings import Postings, Rows
from proxy.store.readers import Readers
from proxy.store.search import Leg, find
from proxy.store.transaction import partitions
from proxy.store.vectors import VectorIndex
from proxy.types import Vector

_SQL = queries.load("memories")
_SOURCES: tuple[SearchSource, ...] = ("exact", "index")


class Searcher:
    """Searches. Safe to use from any thread.

    Args:
        readers: The database.
        health: Refuses while the database is unusable.
        contents: Vectors on disk.
        index: Vectors by partition.
        postings: Terms by partition.
        dimension: Of the vectors that are searched.
        clock: The present time, aware UTC.
    """

    def __init__(
        self,
        readers: Readers,
        health: Health,
        contents: Contents,
        index: VectorIndex,
        postings: Postings,
        dimension: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._readers = readers
        self._health = health
        self._contents = contents
        self._index = index
        self._postings = postings
        self._dimension = dimension
        self._clock = clock
        self._searches: Counter[tuple[str, SearchSource]] = Counter()

    def search(
        self,
        scope: Scope,
        vector: Vector | None,
        terms: Sequence[str],
        *,
        limit: int,
        filters: Filters | None = None,
        parts: Sequence[Part] | None = None,
    ) -> Found:
        """As `plugs.Store.search`."""
        if vector is not None and pack(vector, self._dimension) is None:
            vector = None
        self._health.refuse()
        snapshots = {name: self._index.snapshots(name) for name in scope.readable}
        held = [part for of_partition in snapshots.values() for part in of_partition]
        counts = {name: sum(part.count for part in snapshots[name]) for name in snapshots}
        allowed = None
        if filters is not None and listing.narrows(filters):
            sql, keys = listing.narrowed(_SQL["rows_matching"], replace(filters, state=None))
            allowed = np.sort(_rows(self._readers.one(sql, {**keys, **partitions(scope)})))
        by_index = vector is not None and any(part.filed is not None for part in held)
        source: SearchSource = "index" if by_index else "exact"
        self._searches[scope.owner, source] += 1
        rows, dense, lexical, context = find(
            held,
            self._legs(counts, [Part(vector, terms), *(parts or ())]),
            now=self._clock().timestamp(),
            limit=limit,
            fetch=partial(self._contents.vectors, scope),
            allowed=allowed,
            around=parts is not None,
        )
        return Found(rows, dense, lexical, source, context)

    def holding(self, scope: Scope, terms: Sequence[str], limit: int) -> Sequence[int]:
        """Rows of records that hold all of the terms, newest first; at most `limit`."""
        self._health.refuse()
        counts = {name: sum(part.count for part in self._index.snapshots(name)) for name in scope.readable}
        return self._postings.holding(counts, terms, limit)

    def searched(self, scope: Scope) -> dict[str, int]:
        """How often an owner's memories were searched since the start, by what answered: ``exact_searches``,
        ``index_searches``."""
        return {f"{source}_searches": self._searches[scope.owner, source] for source in _SOURCES}

    def _legs(self, counts: Mapping[str, int], parts: Sequence[Part]) -> Sequence[Leg]:
        held = self._postings.of(counts, [term for part in parts for term in part.terms])
        return [Leg(part.vector, [held[term] for term in dict.fromkeys(part.terms) if term in held]) for part in parts]


def _rows(found: Sequence[str | None] | None) -> Rows:
    text = found[0] if found else None
    return np.fromstring(text, dtype=np.int64, sep=",") if text else np.zeros(0, np.int64)
