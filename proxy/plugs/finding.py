"""What is looked for in a store, and what is found.

Plain values: in from `recall` and the API, out from a store's searches and listings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from proxy.types import Memory, MemoryType, Vector


class Candidate(NamedTuple):
    """One record that a search leg found.

    Args:
        row: The store's own integer for the record; valid within this process only.
        dense: Cosine to the query, −1…1; None when the dense leg was skipped or the record has no vector yet.
        lexical: BM25 over the scope, ≥ 0; 0 when no term matched.
    """

    row: int
    dense: float | None
    lexical: float


GLANCED = ("confidence", "strength", "at", "assistant", "asks", "times", "standing", "preference", "changed")
"""What `Glances` has a column for: confidence and strength; `at`, Unix seconds, since when it holds; the rest 0 or 1:
whether an assistant said it, and its traits."""


@dataclass(frozen=True, slots=True)
class Glances:
    """What ranking must know of some records, a line for each.

    Args:
        table: float64 (n, len(GLANCED)); NaN where a record has gone.
        speakers: Who says it, in lower case; empty where it names nobody.
        sorts: Type and kind.
    """

    table: npt.NDArray[np.float64]
    speakers: Sequence[str]
    sorts: Sequence[tuple[MemoryType, str]]

    def __len__(self) -> int:
        return len(self.table)

    def of(self, name: str) -> npt.NDArray[np.float64]:
        """One column, float64 (n,)."""
        column: npt.NDArray[np.float64] = self.table[:, GLANCED.index(name)]
        return column

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """Which records are still there, (n,)."""
        return ~np.isnan(self.table[:, 0])

    def at(self, places: npt.NDArray[np.int64]) -> Glances:
        """Some of the lines."""
        wanted = places.tolist()
        return Glances(self.table[places], [self.speakers[one] for one in wanted], [self.sorts[one] for one in wanted])


SearchSource = Literal["exact", "index"]
"""Whether every vector was compared, or an index said which to compare."""


AROUND = (-2, -1, 0, 1, 2)
"""The places whose scores a `Context` has: the candidate's own, and those told just before and after it."""


@dataclass(frozen=True, slots=True)
class Context:
    """What stands around the candidates of a search, for ranking: arrays with one line per candidate.

    Args:
        cosines: float64 (n, 5), by `AROUND`; NaN where there is no vector, or no such neighbour in the conversation.
        words: float64 (n, 5), BM25 likewise; 0 where no term matched.
        part_cosines: float64 (n, parts), of each part of the question; NaN where there is no vector.
        part_words: float64 (n, parts).
        threads: int64 (n,), above zero where it was told in a conversation, the same for all of one.
        before: int64 (n,), which candidate was told just before it; −1 where that one is none.
    """

    cosines: npt.NDArray[np.float64]
    words: npt.NDArray[np.float64]
    part_cosines: npt.NDArray[np.float64]
    part_words: npt.NDArray[np.float64]
    threads: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]


class Part(NamedTuple):
    """One part of a question that asks for several things.

    Args:
        vector: Of the part; None skips its dense leg.
        terms: Its lexical terms.
    """

    vector: Vector | None
    terms: Sequence[str]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Args:
        rows: int64 (n,), the store's own integers for the records; valid within this process only.
        dense: float64 (n,), cosines to the query, −1…1; NaN where the dense leg was skipped or there is no vector yet.
        lexical: float64 (n,), BM25 over the scope, ≥ 0; 0 where no term matched.
        source: Which path answered.
        context: What stands around them; None where it was not asked for, or nothing was found.
    """

    rows: npt.NDArray[np.int64]
    dense: npt.NDArray[np.float64]
    lexical: npt.NDArray[np.float64]
    source: SearchSource
    context: Context | None = None

    @property
    def candidates(self) -> list[Candidate]:
        """What was found, one by one."""
        columns = self.rows.tolist(), self.dense.tolist(), self.lexical.tolist()
        return [
            Candidate(row, None if dense != dense else dense, lexical)
            for row, dense, lexical in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a listing or search is narrowed to; None leaves a field open.

    Args:
        state: One state, or None for all.
        memory_type, kind, key, session_id, scope, language: Equality.
        tags: Every one must be present.
        created_after, created_before: Half-open interval [after, before) on `created_at`.
        text: Case-insensitive substring of the content.
    """

    state: str | None = "active"
    memory_type: str | None = None
    kind: str | None = None
    key: str | None = None
    session_id: str | None = None
    scope: str | None = None
    language: str | None = None
    tags: tuple[str, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing, newest first.

    Args:
        items: Records.
        next_cursor: Opaque; None at the end.
    """

    items: tuple[Memory, ...]
    next_cursor: str | None
