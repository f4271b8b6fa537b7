"""The newest records kept in memory: never older than the last commit, whatever was read meanwhile."""

from __future__ import annotations

from datetime import timedelta

from proxy.store.recents import MOST, Recent, Recents, newest_first
from tests.store_samples import START, memory


def recent(row: int, minutes: int = 0) -> Recent:
    return Recent(row, memory(f"m{row}", memory_type="episodic", valid_from=START + timedelta(minutes=minutes)))


def kept(*entries: Recent) -> Recents:
    recents = Recents()
    recents.keep("p", "episodic", entries, recents.mark("p"))
    return recents


def rows(recents: Recents) -> list[int] | None:
    found = recents.of("p", "episodic")
    return None if found is None else [one.row for one in found]


def test_what_was_never_read_must_be_read() -> None:
    recents = Recents()
    recents.inserted("p", 1, recent(1).memory)
    assert rows(recents) is None


def test_a_new_record_takes_its_place_by_the_time_it_holds_from() -> None:
    recents = kept(recent(3, 30), recent(1, 10))
    recents.inserted("p", 5, recent(5, 20).memory)
    assert rows(recents) == [3, 5, 1]


def test_the_later_row_comes_first_at_one_moment() -> None:
    assert [one.row for one in newest_first([recent(1), recent(2)])] == [2, 1]


def test_only_the_newest_are_kept() -> None:
    recents = kept(*(recent(row, row) for row in range(MOST, 0, -1)))
    recents.inserted("p", 99, recent(99, 99).memory)
    assert rows(recents) == [99, *range(MOST, 1, -1)]


def test_a_change_voids_its_partition_only() -> None:
    recents = kept(recent(1))
    recents.keep("q", "episodic", [recent(2)], recents.mark("q"))
    recents.changed("p")
    assert rows(recents) is None
    assert recents.of("q", "episodic") is not None


def test_what_was_read_before_a_commit_is_not_kept() -> None:
    recents = Recents()
    mark = recents.mark("p")
    recents.inserted("p", 2, recent(2).memory)
    recents.keep("p", "episodic", [recent(1)], mark)
    assert rows(recents) is None


def test_records_of_another_type_do_not_mix() -> None:
    recents = kept(recent(1))
    recents.inserted("p", 2, memory("fact", memory_type="semantic"))
    assert rows(recents) == [1]
