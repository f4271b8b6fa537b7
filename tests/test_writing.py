"""Plans carried out in one transaction: what stands on a refused or vanished memory, and what cannot be read back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proxy import writing
from proxy.conflict import Action, Decision
from proxy.plan import Plan
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.types import Memory, Source
from tests.store_samples import ALICE, START, memory, put
from tests.sweep_samples import opened

READER = ALICE


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store of this test's own."""
    with opened(tmp_path) as one:
        yield one


def plan(new: Memory, action: Action = "create", target: Memory | None = None) -> Plan:
    """What is to be done with a new memory."""
    return Plan(Decision(action, target, "because"), new, None)


def applied(store: SqliteStore, *plans: Plan) -> list[Plan]:
    """The plans that were carried out."""
    return store.transact(lambda tx: writing.apply(tx, plans, START)).result()


def said_in(session: str, content: str, message: str | None = None) -> Memory:
    """A memory from a session."""
    return memory(content, session_id=session, source=Source(role="user", session=session, message_hash=message))


def forgotten(store: SqliteStore, content: str, message: str | None = None) -> None:
    """Have a text forgotten for good."""
    one = memory(content, source=Source(role="user", message_hash=message))
    put(store, one)
    store.transact(lambda tx: tx.forget(READER, [one.id])).result()


def stored(store: SqliteStore, one: Memory) -> Memory:
    """A record as it is now."""
    found = store.get(READER, one.id)
    assert found is not None
    return found


def test_plans_are_carried_out_in_their_order(store: SqliteStore) -> None:
    old = memory("The port is 5432")
    put(store, old)
    newer, newest = memory("The port is 5433"), memory("The port is 5434")
    kept = applied(store, plan(newer, "supersede", old), plan(newest, "supersede", newer))
    assert [one.memory.id for one in kept] == [newer.id, newest.id]
    assert [stored(store, one).state for one in (old, newer, newest)] == ["superseded", "superseded", "active"]
    assert stored(store, newest).supersedes == newer.id


def test_what_says_the_same_in_another_session_strengthens_the_first_and_adds_none(store: SqliteStore) -> None:
    first = said_in("s1", "The user likes tea")
    put(store, first)
    for session, strength in (("s1", 1.0), ("s2", 1.1), ("s2", 1.1), ("s3", 1.2)):
        again = said_in(session, "The user likes tea")
        [kept] = applied(store, plan(again, "merge", first))
        assert kept.decision.action == "merge"
        assert stored(store, first).strength == pytest.approx(strength)
        assert store.get(READER, again.id) is None


def test_what_would_join_a_memory_that_was_put_away_meanwhile_stands_alone(store: SqliteStore) -> None:
    first = said_in("s1", "The user likes tea")
    put(store, first)
    store.transact(lambda tx: tx.update(replace(first, state="archived"), None, change="archived")).result()
    again = said_in("s2", "The user likes tea")
    [kept] = applied(store, plan(again, "merge", first))
    assert (kept.decision.action, kept.decision.reason) == ("create", "new")
    assert stored(store, again).state == "active"


def test_a_forgotten_text_is_left_out_and_the_others_go_on(store: SqliteStore) -> None:
    forgotten(store, "The user likes tea", message="m1")
    tea, jazz = said_in("s1", "The user likes tea", "m1"), said_in("s1", "The user likes jazz", "m2")
    assert [one.memory.id for one in applied(store, plan(tea), plan(jazz))] == [jazz.id]
    assert store.get(READER, tea.id) is None


@pytest.mark.parametrize("action", ["merge", "supersede"])
def test_what_rests_on_a_refused_memory_of_the_same_turn_stands_alone(store: SqliteStore, action: Action) -> None:
    forgotten(store, "The user likes tea", message="m1")
    tea, green = said_in("s1", "The user likes tea", "m1"), said_in("s1", "The user likes green tea", "m2")
    [kept] = applied(store, plan(tea), plan(green, action, tea))
    assert kept.memory.id == green.id
    assert kept.decision.action == "create"
    assert stored(store, green).supersedes is None


# ── reading back ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_write_is_told_with_the_record_as_stored(store: SqliteStore) -> None:
    new = memory("The user likes tea")
    [kept] = applied(store, plan(new))
    written = writing.read_back(store, READER, "likes", kept)
    assert written.memory == new
    assert (written.outcome.rule_id, written.outcome.action, written.outcome.memory_id) == ("likes", "created", new.id)


def test_a_merge_is_told_with_the_record_that_was_there(store: SqliteStore) -> None:
    first, again = said_in("s1", "The user likes tea"), said_in("s2", "The user likes  tea")
    put(store, first)
    [kept] = applied(store, plan(again, "merge", first))
    written = writing.read_back(store, READER, "likes", kept)
    assert written.memory is not None
    assert (written.memory.id, written.outcome.action, written.outcome.memory_id) == (first.id, "merged", first.id)


@pytest.mark.parametrize("scope", [READER, Scope("acme", "bob")])
def test_a_write_that_cannot_be_read_is_told_as_failed(store: SqliteStore, scope: Scope) -> None:
    new = memory("The user likes tea")
    put(store, replace(new, content="something else"))
    written = writing.read_back(store, scope, "likes", plan(new))
    assert (written.memory, written.outcome.action, written.outcome.rule_id) == (None, "failed", "likes")


def test_what_a_tombstone_covers_is_told_as_dropped() -> None:
    outcome = writing.forgotten(Source(rule="likes"))
    assert (outcome.rule_id, outcome.action, outcome.memory_id) == ("likes", "dropped", None)
    assert writing.forgotten(Source()).rule_id == ""
