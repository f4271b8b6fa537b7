"""The contract of what sweeps ask of a store: owners, surveys, links, sightings, notes, and erasing without a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.errors import StoreError
from proxy.plugs import Evidence, Store, Transaction
from proxy.scope import Scope
from proxy.types import Memory, Source
from tests.store_samples import ALICE, ALICE_ELSEWHERE, ALICES_CODER, BOB, START, Clock, memory, put, unit
from tests.test_store import STORES


@pytest.fixture(params=list(STORES))
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    opened: list[Store] = []

    def make(**more: Any) -> Store:
        while opened:
            opened.pop().close()
        opened.append(STORES[request.param](tmp_path, Clock(), **more))
        return opened[0]

    yield make
    while opened:
        opened.pop().close()


@pytest.fixture
def store(reopen: Callable[..., Store]) -> Store:
    return reopen()


def do(store: Store, work: Callable[[Transaction], Any]) -> Any:
    return store.transact(work).result(10)


def gone(store: Store, one: Memory, scope: Scope = ALICE) -> bool:
    return store.get(scope, one.id) is None


# ── looking ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_each_user_is_named_once_whatever_agents_and_partitions_there_are(store: Store) -> None:
    put(store, memory("a"), memory("b", ALICES_CODER), memory("c", scope="user"), memory("d", scope="shared"))
    put(store, memory("e", BOB, state="archived"), memory("f", ALICE_ELSEWHERE))
    owners = [(scope.tenant, scope.user_id) for scope in store.owners()]
    assert sorted(owners) == [("acme", "alice"), ("acme", "bob"), ("globex", "alice")]


def test_an_empty_store_has_no_owners_and_many_are_paged(store: Store) -> None:
    assert list(store.owners()) == []
    many = [Scope("acme", f"user{number}") for number in range(1_100)]
    put(store, *(memory("x", scope) for scope in many))
    assert {scope.user_id for scope in store.owners()} == {scope.user_id for scope in many}


def test_a_survey_holds_all_of_one_users_records_and_nobody_elses(store: Store) -> None:
    mine = [
        memory("first"),
        memory("the coder's", ALICES_CODER),
        memory("mine for all", scope="shared"),
        memory("away", state="archived"),
        memory("waiting", state="pending", scope="user"),
    ]
    put(store, *mine, vectors=[unit(1), None, unit(2), unit(3), None])
    put(store, memory("bob's", BOB), memory("bob's for all", BOB, scope="shared"), memory("x", ALICE_ELSEWHERE))
    survey = store.survey(ALICES_CODER)
    assert [one.memory for one in survey.records] == mine
    assert [one.change for one in survey.records] == ["created"] * 5
    assert [one.vector is None for one in survey.records] == [False, True, False, False, True]
    vector = survey.records[0].vector
    assert vector is not None
    np.testing.assert_allclose(vector, unit(1), atol=1e-3)


def test_a_survey_goes_past_its_pages_and_leaves_out_vectors_of_another_model(
    reopen: Callable[..., Store],
) -> None:
    many = [memory(f"no {number}") for number in range(1_003)]
    put(reopen(), *many, vectors=[unit(1)] * len(many))
    survey = reopen(fingerprint="model-2").survey(ALICE)
    assert [one.memory.id for one in survey.records] == [one.id for one in many]
    assert all(one.vector is None for one in survey.records)


def test_notes_are_kept_and_replaced(reopen: Callable[..., Store]) -> None:
    store = reopen()
    assert store.note("x") is None
    do(store, lambda tx: tx.keep_note("x", "one"))
    do(store, lambda tx: tx.keep_note("x", "two"))
    assert reopen().note("x") == "two"


# ── links and sightings ────────────────────────────────────────────────────────────────────────────────────────────
def test_links_are_the_users_and_can_be_dropped(store: Store) -> None:
    lesson, one, other = memory("lesson"), memory("one"), memory("other")
    put(store, lesson, one, other, memory("bob's", BOB))
    do(store, lambda tx: tx.link(lesson, [one.id, other.id], "reflected"))
    expected = {Evidence(lesson.id, one.id, "reflected"), Evidence(lesson.id, other.id, "reflected")}
    assert set(store.survey(ALICE).links) == expected
    assert store.survey(BOB).links == ()
    do(store, lambda tx: tx.unlink(lesson))
    assert store.survey(ALICE).links == ()


def test_only_another_session_strengthens_and_each_once_up_to_two(store: Store) -> None:
    one = replace(memory("tea"), source=Source(role="user", session="s1"))
    put(store, one)

    def again(session: str | None) -> bool:
        return bool(do(store, lambda tx: tx.witness(one, Source(session=session), START + timedelta(days=1))))

    assert [again(session) for session in ("s1", None, "s2", "s2", "s3")] == [False, False, True, False, True]
    (seen,) = store.survey(ALICE).records
    assert seen.memory.strength == pytest.approx(1.2)
    assert seen.memory.confidence == one.confidence
    assert {session for session, _ in seen.again} == {"s1", "s2", "s3"}
    for number in range(20):
        again(f"t{number}")
    assert store.survey(ALICE).records[0].memory.strength == 2.0
    assert store.get(ALICE, one.id) == store.survey(ALICE).records[0].memory


def test_nobody_witnesses_anothers_record(store: Store) -> None:
    one = memory("tea")
    put(store, one)
    with pytest.raises(StoreError):
        do(store, lambda tx: tx.witness(replace(one, user_id="bob"), Source(session="s2"), START))


# ── what goes with what ────────────────────────────────────────────────────────────────────────────────────────────
def test_what_said_the_same_later_is_forgotten_with_its_messages(store: Store) -> None:
    one = memory("tea", message="m1")
    raw = memory("as I said, tea", kind="turn", message="m2")
    put(store, one, raw)
    do(store, lambda tx: tx.witness(one, Source(session="s2", message_hash="m2"), START))
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    assert gone(store, raw)
    assert store.is_forgotten(ALICE, "m2")


@pytest.mark.parametrize("how", ["compressed", "promoted", "reflected"])
def test_what_was_made_from_a_record_goes_with_it_and_may_be_made_again(store: Store, how: Any) -> None:
    made, one, other = memory("made", message="made of"), memory("one", message="m1"), memory("other", message="m2")
    beside = memory("from the same message as the made", message="made of")
    put(store, made, one, other, beside)
    do(store, lambda tx: tx.link(made, [one.id, other.id], how))
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    assert (gone(store, made), gone(store, one)) == (True, True)
    assert store.get(ALICE, other.id) == other
    assert store.get(ALICE, beside.id) == beside
    assert store.survey(ALICE).links == ()
    put(store, memory("made"))


def test_a_duplicate_that_is_forgotten_leaves_the_one_that_stayed(store: Store) -> None:
    kept, duplicate = memory("tea"), memory("Tea, please", state="archived")
    put(store, kept, duplicate)
    do(store, lambda tx: tx.link(kept, [duplicate.id], "merged"))
    do(store, lambda tx: tx.forget(ALICE, [duplicate.id]))
    assert store.get(ALICE, kept.id) == kept


def test_members_of_a_summary_that_goes_are_active_again_but_not_those_put_away_otherwise(store: Store) -> None:
    summary = memory("summary", kind="summary")
    members = [memory(f"member {number}", memory_type="episodic") for number in range(4)]
    put(store, summary, *members)

    def fold(tx: Transaction) -> None:
        tx.link(summary, [one.id for one in members], "compressed")
        for one in members[:3]:
            tx.update(replace(one, state="archived"), None, change="compressed")
        tx.update(replace(members[3], state="archived"), None, change="expired")

    do(store, fold)
    assert do(store, lambda tx: tx.forget(ALICE, [members[0].id])) == 1  # the summary; its members were put away
    states = [store.get(ALICE, one.id) for one in members]
    assert [one and one.state for one in states] == [None, "active", "active", "archived"]
    assert store.history(ALICE, members[1].id)[-1].change == "restored"


def test_links_of_another_user_reach_nothing(store: Store) -> None:
    mine, theirs = memory("mine"), memory("theirs", BOB)
    put(store, mine, theirs)
    do(store, lambda tx: tx.link(theirs, [mine.id], "reflected"))
    do(store, lambda tx: tx.forget(ALICE, [mine.id]))
    assert store.get(BOB, theirs.id) == theirs


# ── discarding ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_discarding_takes_archived_records_and_what_they_superseded_and_leaves_no_tombstone(store: Store) -> None:
    old, new, raw = memory("Wuhan", message="m1"), memory("Beijing", message="m2"), memory("raw", message="m2")
    put(store, old, raw)
    do(store, lambda tx: tx.supersede(old, new, unit(1)))
    stored = store.get(ALICE, new.id)
    assert stored is not None
    assert do(store, lambda tx: tx.discard(ALICE, [new.id, "unknown"])) == 0
    do(store, lambda tx: tx.update(replace(stored, state="archived"), None, change="expired"))
    assert do(store, lambda tx: tx.discard(BOB, [new.id])) == 0
    assert do(store, lambda tx: tx.discard(ALICE, [new.id])) == 1
    assert (gone(store, old), gone(store, new), gone(store, raw)) == (True, True, False)
    assert store.history(ALICE, new.id) == []
    assert not store.is_forgotten(ALICE, "m2")
    put(store, memory("Beijing", message="m2"))
