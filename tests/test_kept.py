"""What was read of records and is kept in memory: by row, for its own partitions, never older than the last commit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.glance import glance
from proxy.store.kept import ByRow, KeptRecords
from tests.store_samples import memory


def test_what_is_kept_is_given_to_its_own_partition_only() -> None:
    kept: ByRow[str] = ByRow(10)
    kept.keep({1: ("p", "one"), 2: ("q", "two")}, kept.mark())
    assert kept.find([1, 2, 3], ["p"]) == {1: "one"}
    assert kept.find([1, 2], ["p", "q"]) == {1: "one", 2: "two"}


@pytest.mark.parametrize("change", [lambda kept: kept.drop([7]), lambda kept: kept.clear()])
def test_what_was_read_before_a_change_is_not_kept(change: Callable[[ByRow[str]], None]) -> None:
    kept: ByRow[str] = ByRow(10)
    mark = kept.mark()
    change(kept)
    kept.keep({1: ("p", "old")}, mark)
    assert kept.find([1], ["p"]) == {}


def test_nothing_is_left_after_clearing() -> None:
    kept: ByRow[str] = ByRow(10)
    kept.keep({1: ("p", "new")}, kept.mark())
    kept.clear()
    assert kept.find([1], ["p"]) == {}


def test_what_is_not_kept_is_read_once() -> None:
    kept: ByRow[str] = ByRow(10)
    asked: list[list[int]] = []

    def read(missing: list[int]) -> dict[int, tuple[str, str]]:
        asked.append(missing)
        return {row: ("p", f"row {row}") for row in missing if row != 3}

    kept.keep({1: ("p", "one")}, kept.mark())
    assert kept.through([1, 2, 3], ["p"], read) == {1: "one", 2: "row 2"}
    assert kept.through([1, 2], ["p"], read) == {1: "one", 2: "row 2"}
    assert asked == [[2, 3]]


def test_the_ones_read_longest_ago_go_first() -> None:
    kept: ByRow[int] = ByRow(3)
    for row in range(5):
        kept.keep({row: ("p", row)}, kept.mark())
    assert kept.find(range(5), ["p"]) == {2: 2, 3: 3, 4: 4}


def test_what_ranking_sees_of_a_record_goes_with_it() -> None:
    kept, record = KeptRecords(2), memory("Ann: I moved last year")
    kept.put(1, "p", record)
    assert kept.glances.find([1], ["p"]) == {1: glance(record)}
    kept.drop([1])
    assert kept.glances.find([1], ["p"]) == {}
    kept.put(1, "p", record)
    kept.clear()
    assert (kept.find([1], ["p"]), kept.glances.find([1], ["p"])) == ({}, {})


def test_records_are_found_by_id_as_long_as_they_are_kept() -> None:
    kept, records = KeptRecords(2), [memory(f"note {number}") for number in range(3)]
    for row, one in enumerate(records):
        kept.put(row, "p", one)
    ids = [one.id for one in records]
    assert kept.named([*ids, "unknown"], ["p"]) == {one.id: one for one in records[1:]}
    assert kept.named(ids, ["q"]) == {}
    assert [*kept.find([0, 1, 2], ["p"])] == [1, 2]
    kept.drop([1])
    assert kept.named(ids, ["p"]) == {ids[2]: records[2]}
    assert kept.find([1, 2], ["p"]) == {2: records[2]}
    assert list(kept._rows) == [ids[2]]
