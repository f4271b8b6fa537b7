"""Which active records hold a term: read from the FTS table, and kept in memory for large scopes.

In: partitions and terms; after each commit, what became of a record's words. Out: rows by term. A question has up to
two dozen terms, and reading a list takes a twentieth of a millisecond, of twenty thousand rows some milliseconds. What
is kept is brought up to date by the words of the records that changed since.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
_KEPT_EACH_BYTES = 500
"""What a list takes beside its rows."""
_KEPT_BYTES = 32 * 1024 * 1024
_MOST_CHANGES, _MOST_LOGS = 256, 256
_BETWEEN = "\0"


@dataclass(slots=True, eq=False)
class _Log:
    """What became of a partition's words since somebody keeps lists of it; past the newest 256 changes it starts anew.

    Args:
        changes: Row and words of each change, in order; no words where the record is not active any more.
        start: How many changes came before these.
    """

    changes: list[tuple[int, str]] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        """How many changes there were."""
        return self.start + len(self.changes)

    def add(self, row: int, words: Collection[str]) -> None:
        """Put a change down."""
        if len(self.changes) >= _MOST_CHANGES:
            self.start, self.changes = self.end, []
        self.changes.append((row, _BETWEEN.join(["", *words, ""])))

    def since(self, mark: int) -> Sequence[tuple[int, str]] | None:
        """The changes after the first `mark`; None where they are not known any more."""
        return self.changes[mark - self.start :] if mark >= self.start else None


_Marks = tuple[tuple[_Log, int], ...]


@dataclass(frozen=True, slots=True)
class _List:
    """The rows that hold a term.

    Args:
        rows: Ascending.
        cut: There are more, and the term is too common to rank anything.
        marks: Of each of its partitions the log, and how much of it was known when the rows were read.
    """

    rows: Rows
    cut: bool
    marks: _Marks

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
        self._logs: OrderedDict[str, _Log] = OrderedDict()

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
        marks = self._marks(names)
        found = {term: self._rows(names, term, common, marks) for term in dict.fromkeys(terms)}
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
                row = self._readers.one(_SQL["postings"], {"match": match, "cap": limit})
                found += [int(number) for number in row[1].split(",")] if row and row[1] else []
            else:
                found += _intersection([held.get(token(name, term)) for term in terms])
        return found[:limit]

    def changed(self, partition: str, row: int, words: Collection[str]) -> None:
        """A commit brought a record, or changed its words, to none where it is not active any more."""
        with self._lock:
            log = self._logs.get(partition)
            if log is not None:
                log.add(row, words)

    def moved(self, *partitions: str) -> None:
        """A commit moved a record from one partition to another: a list that spans both could not tell."""
        with self._lock:
            for partition in partitions:
                self._logs.pop(partition, None)

    def clear(self) -> None:
        """Void everything kept."""
        self.maps.clear()
        with self._lock:
            self._logs.clear()
            self._lists.clear()
            self._nbytes = 0

    def _rows(self, names: Sequence[str], term: str, common: int, marks: _Marks) -> Rows | None:
        match = " OR ".join(token(name, term) for name in names)
        with self._lock:
            kept = self._lists.get(match)
            changes = None if kept is None else _between(kept.marks, marks)
            if kept is not None:
                self._lists.move_to_end(match)
        if kept is None or changes is None or (kept.cut and len(kept.rows) <= common):
            kept = self._read(match, common, marks)
            self._keep(match, kept)
        elif kept.cut:
            return None
        elif changes:
            kept = _List(_amended(kept.rows, changes, term), cut=False, marks=marks)
            self._keep(match, kept)
        return None if kept.cut or len(kept.rows) > common else kept.rows

    def _marks(self, names: Sequence[str]) -> _Marks:
        marks = []
        with self._lock:
            for name in names:
                log = self._logs.get(name)
                if log is None:
                    log = self._logs[name] = _Log()
                self._logs.move_to_end(name)
                marks.append((log, log.end))
            while len(self._logs) > _MOST_LOGS:
                self._logs.popitem(last=False)  # the lists that go by it are void
        return tuple(marks)

    def _read(self, match: str, common: int, marks: _Marks) -> _List:
        found = self._readers.one(_SQL["postings"], {"match": match, "cap": common + 1})
        number, text = found or (0, None)
        rows = np.fromstring(text, dtype=np.int64, sep=",") if text else np.zeros(0, np.int64)
        return _List(rows, number > common, marks)

    def _keep(self, match: str, one: _List) -> None:
        with self._lock:
            former = self._lists.pop(match, None)
            self._lists[match] = one
            self._nbytes += one.nbytes - (former.nbytes if former is not None else 0)
            while self._nbytes > _KEPT_BYTES:
                self._nbytes -= self._lists.popitem(last=False)[1].nbytes


def _between(marks: _Marks, later: _Marks) -> Sequence[tuple[int, str]] | None:
    """What changed from some marks to later ones; None where that is not known any more."""
    found: list[tuple[int, str]] = []
    for (log, mark), (present, _) in zip(marks, later, strict=True):
        changes = log.since(mark) if log is present else None
        if changes is None:
            return None
        found += changes
    return found


def _amended(rows: Rows, changes: Sequence[tuple[int, str]], term: str) -> Rows:
    """The rows that hold a term after some changes; what is known of them already may be among the changes."""
    wanted = f"{_BETWEEN}{term}{_BETWEEN}"
    last = dict(changes)
    holding = np.array(sorted(row for row, words in last.items() if wanted in words), np.int64)
    if not len(rows) or min(last) > rows[-1]:
        return np.concatenate([rows, holding])
    rest = rows[~np.isin(rows, np.array([*last], np.int64))]
    return np.sort(np.concatenate([rest, holding]))


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
