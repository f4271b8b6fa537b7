"""Rows by term: read once, and then brought up to date by what commits tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.observe import answer_hash
from proxy.plugs import Transaction
from proxy.scope import Scope
from proxy.store.lexical import query_terms
from proxy.store.postings import Postings
from proxy.store.sqlite import SqliteStore
from tests.store_samples import ALICE, BOB, DIMENSION, Clock, memory, put


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked in SQLite from now on, for scopes of any size."""
    monkeypatch.setattr("proxy.store.term_maps.MOST_RECORDS", 0)
    asked: list[str] = []
    read = Postings._read

    def counted(self: Postings, match: str, common: int, marks: object) -> object:
        asked.append(match)
        return read(self, match, common, marks)  # type: ignore[arg-type]

    monkeypatch.setattr(Postings, "_read", counted)
    return asked


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    sizes: dict[str, Any] = {"fingerprint": "model", "dimension": DIMENSION}
    with closing(SqliteStore(tmp_path / "store.db", **sizes, answer_hash=answer_hash, clock=Clock())) as opened:
        yield opened


def found(store: SqliteStore, scope: Scope, question: str) -> set[str]:
    rows = store.search(scope, None, query_terms(question), limit=20).rows.tolist()
    return {one.content for one in store.load(scope, rows).values()}


def do(store: SqliteStore, work: Callable[[Transaction], Any]) -> None:
    store.transact(work).result(10)


def test_a_list_is_read_once_and_follows_what_is_written(store: SqliteStore, reads: list[str]) -> None:
    one = memory("green tea")
    put(store, one, memory("milk"))
    assert found(store, ALICE, "tea") == {"green tea"}
    assert found(store, ALICE, "rum") == set()
    once = len(reads)
    put(store, memory("black tea"), memory("rum"), memory("tea of another", BOB))
    assert found(store, ALICE, "tea") == {"green tea", "black tea"}
    assert found(store, ALICE, "rum") == {"rum"}
    do(store, lambda tx: tx.update(replace(one, content="green milk", version=2), None, change="updated"))
    assert found(store, ALICE, "tea") == {"black tea"}
    do(store, lambda tx: tx.update(replace(one, content="white tea", version=3), None, change="updated"))
    assert found(store, ALICE, "tea") == {"black tea", "white tea"}
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    assert found(store, ALICE, "tea") == {"black tea"}
    assert len(reads) == once


def test_a_term_that_is_part_of_another_is_not_taken_for_it(store: SqliteStore, reads: list[str]) -> None:
    put(store, memory("milk"))
    assert found(store, ALICE, "tea") == set()
    put(store, memory("teapot"), memory("steam"))
    assert found(store, ALICE, "tea") == set()


def test_after_many_changes_a_list_is_read_anew(
    store: SqliteStore, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.store.postings._MOST_CHANGES", 3)
    put(store, memory("green tea"))
    assert found(store, ALICE, "tea") == {"green tea"}
    put(store, *(memory(f"tea {number}") for number in range(7)))
    assert found(store, ALICE, "tea") == {"green tea", *(f"tea {number}" for number in range(7))}
    assert len(reads) == 2


def test_scopes_beyond_those_that_are_followed_are_read_anew(
    store: SqliteStore, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.store.postings._MOST_LOGS", 1)
    put(store, memory("green tea"), memory("black tea", BOB))
    assert found(store, ALICE, "tea") == {"green tea"}
    assert found(store, BOB, "tea") == {"black tea"}
    put(store, memory("white tea"))
    assert found(store, ALICE, "tea") == {"green tea", "white tea"}
    assert len(reads) == 3


def test_a_move_to_another_partition_is_seen(store: SqliteStore, reads: list[str]) -> None:
    one = memory("green tea", scope="agent")
    put(store, one, memory("milk"), memory("milk for all", scope="agent"))
    assert found(store, ALICE, "tea") == {"green tea"}
    do(store, lambda tx: tx.update(replace(one, scope="user"), None, change="updated"))
    assert found(store, ALICE, "tea") == {"green tea"}
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    assert found(store, ALICE, "tea") == set()


def test_what_is_kept_is_bounded(store: SqliteStore, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.store.postings._KEPT_BYTES", 2_000)
    put(store, memory("tea"))
    for number in range(50):
        found(store, ALICE, f"word{number}")
    assert store._postings._nbytes <= 2_000
    assert len(store._postings._lists) <= 4
