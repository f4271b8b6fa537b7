"""The exact index against a plain list of records."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import StoreError
from proxy.plugs import Found
from proxy.store.contents import Contents
from proxy.store.index_file import IndexFiles
from proxy.store.partition import NEVER, Entry, Partition, Snapshot, Stored, pack
from proxy.store.readers import Readers
from proxy.store.search import Leg, find
from proxy.store.vectors import Limits, VectorIndex
from tests.store_samples import DIMENSION, unit


def entry(row: int, seed: int | None = None, term_count: int = 3) -> Entry:
    return Entry(row, term_count, NEVER, None if seed is None else pack(unit(seed), DIMENSION))


def stored(*entries: Entry) -> list[Stored]:
    return [(one.row, one.term_count, None, one.vector, one.thread) for one in entries]


def alive(snapshot: Snapshot) -> dict[int, bytes | None]:
    """Row → vector of what a snapshot shows as alive."""
    assert snapshot.matrix is not None
    return {
        int(snapshot.rows[i]): snapshot.matrix[i].astype("<f2").tobytes() if snapshot.embedded[i] else None
        for i in np.flatnonzero(snapshot.alive)
    }


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_vectors_that_are_not_finite_are_refused(bad: float) -> None:
    vector = unit(1)
    vector[3] = bad
    with pytest.raises(StoreError, match="NaN"):
        pack(vector, DIMENSION)


def test_vectors_of_another_dimension_are_refused() -> None:
    with pytest.raises(StoreError, match="dimension"):
        pack(unit(1)[:-1], DIMENSION)


def test_a_vector_without_direction_counts_as_none() -> None:
    assert pack(np.zeros(DIMENSION, np.float32), DIMENSION) is None


steps = st.lists(
    st.tuples(st.sampled_from(["put", "remove"]), st.integers(1, 40), st.one_of(st.none(), st.integers(0, 99))),
    max_size=120,
)


@given(start=st.dictionaries(st.integers(1, 40), st.one_of(st.none(), st.integers(0, 99))), steps=steps)
def test_any_order_of_changes_gives_what_a_dictionary_gives(
    start: dict[int, int | None], steps: list[tuple[str, int, int | None]]
) -> None:
    expected = {row: entry(row, seed, 1 + row % 5) for row, seed in start.items()}
    partition = Partition([stored(*expected.values())], DIMENSION)
    for what, row, seed in steps:
        if what == "put":
            expected[row] = entry(row, seed, 1 + (seed or 0) % 5)
            partition.put(expected[row])
        else:
            expected.pop(row, None)
            partition.remove(row)
        now = partition.snapshot
        assert alive(now) == {row: one.vector for row, one in expected.items()}
        assert (np.diff(now.rows) > 0).all()
        assert now.count == len(expected)
        assert now.terms == sum(one.term_count for one in expected.values())


@given(steps=steps)
def test_a_snapshot_in_use_never_changes(steps: list[tuple[str, int, int | None]]) -> None:
    partition = Partition([stored(*(entry(row, row) for row in range(1, 20)))], DIMENSION)
    held = partition.snapshot
    before = alive(held)
    for what, row, seed in steps:
        partition.put(entry(row, seed)) if what == "put" else partition.remove(row)
    assert alive(held) == before


def test_dead_records_leave_the_arrays() -> None:
    partition = Partition([stored(*(entry(row, row) for row in range(1, 101)))], DIMENSION)
    for row in range(1, 60):
        partition.remove(row)
    assert len(partition.snapshot.rows) < 75
    assert partition.snapshot.count == 41


class Reading(Contents):
    """Contents from a function instead of a database."""

    def __init__(self, load: Callable[[str], Sequence[Stored]]) -> None:
        super().__init__(cast(Readers, None), "model", DIMENSION)
        self.load = load

    def chunks(self, partition: str) -> Iterator[Sequence[Stored]]:
        yield self.load(partition)

    def rows(self, partition: str) -> npt.NDArray[np.int64]:
        return np.array(sorted(row for row, *_ in self.load(partition)), np.int64)

    def of_rows(self, partition: str, rows: npt.NDArray[np.int64]) -> Iterator[Sequence[Stored]]:
        yield sorted(self.load(partition))


def opened(
    folder: Path, load: Callable[[str], Sequence[Stored]], exact_below: int = 2000, **limits: int
) -> VectorIndex:
    files = IndexFiles(folder / "index", "model", DIMENSION)
    return VectorIndex(Reading(load), files, DIMENSION, exact_below, Limits(**limits))


def test_partitions_used_longest_ago_leave_when_the_limit_is_reached(tmp_path: Path) -> None:
    loads: list[str] = []

    def load(name: str) -> list[Stored]:
        loads.append(name)
        return stored(*(entry(row, row) for row in range(1, 101)))

    one = Partition([load("size")], DIMENSION).nbytes
    index = opened(tmp_path, load, nbytes=int(2.5 * one))
    for name in ("a", "b", "a", "c", "a", "b"):
        index.snapshots(name)
    assert loads == ["size", "a", "b", "c", "b"]


@pytest.mark.parametrize("limits", [{"files": 2}, {"file_bytes": 20_000}])
def test_files_used_longest_ago_are_closed_when_there_are_too_many(tmp_path: Path, limits: dict[str, int]) -> None:
    loads: list[str] = []

    def load(name: str) -> list[Stored]:
        loads.append(name)
        return stored(*(entry(row, row) for row in range(1, 6 if name == "small" else 101)))

    index = opened(tmp_path, load, exact_below=10, **limits)
    for name in ("a", "b", "c"):
        index.snapshots(name)
        assert index.settle(20)
    index.snapshots("small")
    loads.clear()
    for name in ("b", "c", "a"):
        index.snapshots(name)
    assert loads == ["a"]
    index.close()


def test_a_change_during_loading_is_not_lost_and_does_not_wait(tmp_path: Path) -> None:
    loading, may_end = threading.Event(), threading.Event()

    def load(_: str) -> list[Stored]:
        read = stored(entry(1, 1), entry(3, 3))
        loading.set()
        assert may_end.wait(10)
        return read

    index = opened(tmp_path, load)
    reader = threading.Thread(target=lambda: index.snapshots("p"))
    reader.start()
    assert loading.wait(10)
    index.put("p", entry(2, 2))
    index.remove("p", 3)
    may_end.set()
    reader.join(10)
    assert set(alive(index.snapshots("p")[0])) == {1, 2}


def test_a_failed_read_is_tried_again(tmp_path: Path) -> None:
    answers: list[list[Stored] | None] = [None, stored(entry(1, 1))]

    def load(_: str) -> list[Stored]:
        answer = answers.pop(0)
        if answer is None:
            raise StoreError("not now")
        return answer

    index = opened(tmp_path, load)
    with pytest.raises(StoreError):
        index.snapshots("p")
    index.put("p", entry(2, 2))
    assert set(alive(index.snapshots("p")[0])) == {1}


@given(
    parts=st.lists(
        st.dictionaries(st.integers(1, 300), st.tuples(st.one_of(st.none(), st.integers(0, 99)), st.integers(1, 9))),
        min_size=1,
        max_size=3,
    ),
    words=st.lists(st.sets(st.integers(1, 300)), max_size=4),
    limit=st.integers(1, 8),
)
def test_both_legs_equal_a_plain_computation(
    parts: list[dict[int, tuple[int | None, int]]], words: list[set[int]], limit: int
) -> None:
    numbered = [{3 * row + i: what for row, what in part.items()} for i, part in enumerate(parts)]
    snapshots = [
        Partition([stored(*(entry(row, seed, n) for row, (seed, n) in part.items()))], DIMENSION).snapshot
        for part in numbered
    ]
    records = {row: what for part in numbered for row, what in part.items()}
    holding = [{row for row in records if row // 3 in word} for word in words]
    postings = [np.array(sorted(rows), np.int64) for rows in holding]
    searched = find(snapshots, [Leg(unit(7), postings)], now=0.0, limit=limit, fetch=lambda rows: {})
    found = Found(*searched[:3], "exact").candidates

    lexical = {row: plain_bm25(row, records, holding) for row in records}
    dense = {
        row: float(np.frombuffer(pack(unit(seed), DIMENSION) or b"", "<f2").astype(np.float32) @ unit(7))
        for row, (seed, _) in records.items()
        if seed is not None
    }
    # Equal vectors tie up to rounding: compare the scores of the best, and every candidate's own scores.
    by_dense = sorted((round(score, 5) for score in dense.values()), reverse=True)[:limit]
    leading = [c for c in found if c.dense is not None][: len(by_dense)]
    assert [round(c.dense, 5) for c in leading if c.dense is not None] == pytest.approx(by_dense, abs=2e-5)
    best_words = sorted((row for row in lexical if lexical[row] > 0), key=lambda row: (-round(lexical[row], 9), -row))
    got = {c.row for c in found}
    least = lexical[best_words[:limit][-1]] if best_words else 0.0
    assert {row for row in best_words if lexical[row] > least + 1e-9} <= got
    for candidate in found:
        assert candidate.lexical == pytest.approx(lexical[candidate.row])
        expected = dense.get(candidate.row)
        assert candidate.dense == (None if expected is None else pytest.approx(expected, abs=1e-4))


def plain_bm25(row: int, records: dict[int, tuple[int | None, int]], holding: list[set[int]]) -> float:
    mean = max(sum(n for _, n in records.values()) / len(records), 1.0)
    length = records[row][1]
    weight = 2.2 / (1 + 1.2 * (0.25 + 0.75 * length / mean))
    return sum(
        math.log(1 + (len(records) - len(rows) + 0.5) / (len(rows) + 0.5)) * weight for rows in holding if row in rows
    )


def test_what_expired_is_not_found() -> None:
    expired, valid = entry(1, 1), entry(2, 2)
    rows: list[Stored] = [(1, 1, 99.0, expired.vector, 0), (2, 1, 101.0, valid.vector, 0)]
    snapshot = Partition([rows], DIMENSION).snapshot
    rows_found, *_ = find([snapshot], [Leg(unit(1), [np.array([1, 2])])], now=100.0, limit=5, fetch=lambda rows: {})
    assert rows_found.tolist() == [2]
