"""Which active records hold a term: read from the FTS table, and the long lists of large scopes kept in memory.

In: partitions and terms; after each commit, what became of a record's words. Out: rows by term. Reading a list of
twenty thousand rows takes milliseconds, and a question has up to two dozen terms; what is kept is brought up to date
by reading what came after it, and by the words of the records that changed since.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from proxy.store import queries
from proxy.store.lexical import token, token_suffix
from proxy.store.readers import Readers
from proxy.store.term_maps import Rows as RowsByToken
from proxy.store.term_maps import TermMaps, TermRows

Rows = npt.NDArray[np.int64]

_SQL = queries.load("memories")
_COMMON_FROM = 256
"""In scopes larger than this a term that over half of the records hold is passed over: it ranks nothing."""
_KEPT_FROM = 16
_KEPT_EACH_BYTES = 400
"""What a list takes beside its rows."""
_KEPT_BYTES = 32 * 1024 * 1024
_MOST_CHANGED = 512


@dataclass(frozen=True, slots=True)
class _List:
    """The rows that hold a term.

    Args:
        rows: Ascending.
        cut: There are more, and the term is too common to rank anything.
        epoch: Of its partitions; a list of another one is void.
        inserts: Of its partitions when it was read.
    """

    rows: Rows
    cut: bool
    epoch: int
    inserts: int

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.rows.nbytes + _KEPT_EACH_BYTES


class Postings:
    """Rows by term. Safe to use from any thread.

    Args:
        readers: Of the database.
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self.maps = TermMaps(readers)
        """Told of every change by itself: what was added to a partition, and what was removed."""
        self._lists: OrderedDict[str, _List] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()
        self._cleared = 0
        self._epochs = Counter[str]()
        self._inserts = Counter[str]()
        self._changed: dict[str, dict[int, frozenset[str]]] = {}

    def of(self, counts: Mapping[str, int], terms: Iterable[str]) -> dict[str, Rows]:
        """The rows of each term that tells anything, by term.

        Args:
            counts: Active records by partition.
            terms: Of the question and of its parts.

        Raises:
            StoreUnavailable: They cannot be read now.
        """
        names, count = [name for name in counts if counts[name]], sum(counts.values())
        if not names:
            return {}
        common = count // 2 if count > _COMMON_FROM else count
        maps = {name: self.maps.of(name, counts[name]) for name in names}
        if all(one is not None for one in maps.values()):
            return dict(_mapped({name: one for name, one in maps.items() if one is not None}, terms, common))
        found = {term: self._rows(names, term, common) for term in dict.fromkeys(terms)}
        return {term: rows for term, rows in found.items() if rows is not None and len(rows)}

    def holding(self, counts: Mapping[str, int], terms: Sequence[str], limit: int) -> list[int]:
        """Rows that hold every one of the terms, at most `limit`; none where there are no terms.

        Args:
            counts: Active records by partition.
            terms: Of a stored text (`lexical.terms`).
            limit: ≥ 1.

        Raises:
            StoreUnavailable: They cannot be read now.
        """
        found: list[int] = []
        for name in (name for name in counts if counts[name] and terms):
            held = self.maps.of(name, counts[name])
            if held is None:
                match = " AND ".join(token(name, term) for term in terms)
                row = self._readers.one(_SQL["postings"], {"match": match, "after": -1, "cap": limit})
                found += [int(number) for number in row[1].split(",")] if row and row[1] else []
            else:
                found += _intersection([held.get(token(name, term)) for term in terms])
        return found[:limit]

    def inserted(self, partition: str) -> None:
        """A commit brought a new active record."""
        with self._lock:
            self._inserts[partition] += 1

    def changed(self, partition: str, row: int, words: Collection[str]) -> None:
        """A commit changed the words of an older record, to none where it is not active any more."""
        with self._lock:
            changed = self._changed.get(partition)
            if changed is None or len(changed) >= _MOST_CHANGED:
                self._void(partition)
            else:
                changed[row] = frozenset(words)

    def moved(self, *partitions: str) -> None:
        """A commit moved a record from one partition to another: a list that spans both could not tell."""
        with self._lock:
            for partition in partitions:
                self._void(partition)

    def clear(self) -> None:
        """Void everything kept."""
        self.maps.clear()
        with self._lock:
            self._cleared += 1
            self._changed.clear()

    def _rows(self, names: Sequence[str], term: str, common: int) -> Rows | None:
        match = " OR ".join(token(name, term) for name in names)
        with self._lock:
            epoch, inserts = self._epoch(names), sum(self._inserts[name] for name in names)
            kept = self._lists.get(match)
            if kept is not None:
                self._lists.move_to_end(match)
        if kept is None or kept.epoch != epoch or (kept.cut and len(kept.rows) <= common):
            kept = self._read(match, -1, common, epoch, inserts)
            if len(kept.rows) >= _KEPT_FROM:
                self._keep(names, match, kept)
            return None if kept.cut else kept.rows
        if kept.cut:
            return None
        if kept.inserts != inserts:
            fresh = self._read(match, int(kept.rows[-1]), common, epoch, inserts)
            kept = _List(np.concatenate([kept.rows, fresh.rows]), fresh.cut, epoch, inserts)
            self._keep(names, match, kept)
        rows = self._amended(names, term, kept.rows)
        return None if kept.cut or len(rows) > common else rows

    def _read(self, match: str, after: int, common: int, epoch: int, inserts: int) -> _List:
        found = self._readers.one(_SQL["postings"], {"match": match, "after": after, "cap": common + 1})
        number, text = found or (0, None)
        rows = np.fromstring(text, dtype=np.int64, sep=",") if text else np.zeros(0, np.int64)
        return _List(rows, number > common, epoch, inserts)

    def _amended(self, names: Sequence[str], term: str, rows: Rows) -> Rows:
        with self._lock:
            changed = {row: words for name in names for row, words in self._changed.get(name, {}).items()}
        if not changed:
            return rows
        holding = [row for row, words in changed.items() if term in words]
        rest = rows[~np.isin(rows, np.array([*changed], np.int64))]
        return np.sort(np.concatenate([rest, np.array(holding, np.int64)]))

    def _keep(self, names: Sequence[str], match: str, one: _List) -> None:
        with self._lock:
            if self._epoch(names) != one.epoch:
                return
            for name in names:
                self._changed.setdefault(name, {})
            former = self._lists.pop(match, None)
            self._lists[match] = one
            self._nbytes += one.nbytes - (former.nbytes if former is not None else 0)
            while self._nbytes > _KEPT_BYTES:
                self._nbytes -= self._lists.popitem(last=False)[1].nbytes

    def _epoch(self, names: Sequence[str]) -> int:
        return self._cleared + sum(self._epochs[name] for name in names)

    def _void(self, partition: str) -> None:
        self._epochs[partition] += 1
        self._changed.pop(partition, None)


def _mapped(maps: Mapping[str, RowsByToken], terms: Iterable[str], common: int) -> Iterator[tuple[str, Rows]]:
    """The rows of each term that tells anything, from partitions whose postings are in memory."""
    for term in dict.fromkeys(terms):
        suffix = token_suffix(term)
        lists = [found for name, held in maps.items() if (found := held.get(name + suffix))]
        if not lists or sum(map(len, lists)) > common:
            continue
        arrays = [rows.array() for rows in lists]
        yield term, arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _intersection(lists: Sequence[TermRows | None]) -> list[int]:
    if not all(lists):  # a word that nobody has used yet: a new text has one nearly always
        return []
    first, *others = sorted((one.array() for one in lists if one is not None), key=len)
    for other in others:
        if not len(first):
            break
        first = np.intersect1d(first, other, assume_unique=True)
    rows: list[int] = first.tolist()
    return rows
