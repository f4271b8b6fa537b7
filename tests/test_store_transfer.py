"""The store's part in transfer: what is carried out comes in as it was; kept answers; the listing of a tenant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from proxy.errors import Forgotten, RequestError, StoreError
from proxy.observe import answer_hash
from proxy.plugs import Carried, Filters, KeptAnswer, Store
from proxy.scope import Scope, TenantScope
from proxy.store.lexical import query_terms
from proxy.store.sqlite import SqliteStore
from proxy.types import Memory, Source
from tests.store_samples import (
    ALICE,
    ALICE_ELSEWHERE,
    ALICES_CODER,
    BOB,
    DIMENSION,
    START,
    Clock,
    memory,
    put,
    unit,
)

ANY = Filters(state=None)


def opened(path: Path, clock: Clock) -> SqliteStore:
    return SqliteStore(path, fingerprint="m1", dimension=DIMENSION, answer_hash=answer_hash, clock=clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    made = opened(tmp_path / "one" / "s.db", clock)
    yield made
    made.close()


@pytest.fixture
def empty(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    made = opened(tmp_path / "two" / "s.db", clock)
    yield made
    made.close()


def take_in(store: Store, *carried: Carried) -> list[bool]:
    return store.transact(lambda tx: [tx.take_in(one, unit(1)) for one in carried]).result()


def filled(store: Store) -> list[Memory]:
    """A user's records in every state, with histories, links and sightings."""
    old = memory("The port is 1. " + "It was chosen by lot, as ports are. " * 20, key="port", message="m1")
    new = memory("The port is 2", key="port", at=START + timedelta(days=1))
    member, summary = memory("We met on Monday"), memory("We met in spring", kind="summary")
    waiting = memory("Obey", state="pending", scope="user")
    put(store, old, member, summary, waiting, memory("For the coder", ALICES_CODER), memory("Not hers", BOB))
    store.transact(lambda tx: tx.supersede(old, new, unit(2))).result()
    store.transact(lambda tx: tx.link(summary, [member.id], "compressed")).result()
    away = replace(member, state="archived", updated_at=START + timedelta(hours=1))
    store.transact(lambda tx: tx.update(away, None, change="compressed")).result()
    said = Source("user", session="s9", message_hash="m9")
    store.transact(lambda tx: tx.witness(new, said, START + timedelta(hours=2))).result()
    return [old, new, member, summary, waiting]


def test_what_is_carried_out_comes_in_as_it_was(store: SqliteStore, empty: SqliteStore) -> None:
    made = filled(store)
    before = list(store.carried(ALICE, all_agents=True))
    assert {one.memory.state for one in before} == {"active", "superseded", "archived", "pending"}
    assert {one.change for one in before} == {"created", "superseded", "compressed"}
    assert sum(len(one.links) + len(one.said_again) for one in before) == 2
    assert take_in(empty, *before) == [True] * len(before)
    assert list(empty.carried(ALICE, all_agents=True)) == before
    for one in made:
        assert empty.get(ALICE, one.id) == store.get(ALICE, one.id)
        assert empty.history(ALICE, one.id) == store.history(ALICE, one.id)
    assert empty.list(ALICE, ANY, limit=50) == store.list(ALICE, ANY, limit=50)
    assert empty.survey(ALICE).links == store.survey(ALICE).links
    assert [one.again for one in empty.survey(ALICE).records] == [one.again for one in store.survey(ALICE).records]


def test_what_came_in_is_found_and_forgotten_with_all_that_hangs_on_it(store: SqliteStore, empty: SqliteStore) -> None:
    _, new, member, summary, _ = filled(store)
    take_in(empty, *store.carried(ALICE, all_agents=True))
    found = empty.search(ALICE, None, query_terms("port"), limit=5).candidates
    assert [one.id for one in empty.load(ALICE, [hit.row for hit in found]).values()] == [new.id]
    assert empty.by_key(ALICE, "port")[0].id == new.id
    assert empty.transact(lambda tx: tx.forget(ALICE, [member.id])).result() == 1
    assert empty.get(ALICE, summary.id) is None


def test_only_what_its_user_owns_is_carried_and_with_one_agent_what_that_reads(store: SqliteStore) -> None:
    filled(store)
    put(store, memory("Shared by Bob", BOB, scope="shared"), memory("Shared by Alice", scope="shared"))
    put(store, memory("Elsewhere", ALICE_ELSEWHERE))
    everything = [one.memory.content for one in store.carried(ALICE, all_agents=True)]
    assert "For the coder" in everything
    assert "Shared by Alice" in everything
    assert not {"Not hers", "Shared by Bob", "Elsewhere"} & set(everything)
    coder = [one.memory.content for one in store.carried(ALICES_CODER, all_agents=False)]
    assert coder == ["Obey", "For the coder", "Shared by Alice"]


def test_more_than_a_page_is_carried(store: SqliteStore) -> None:
    put(store, *(memory(f"Number {number}") for number in range(401)))
    assert [one.memory.content for one in store.carried(ALICE, all_agents=True)] == [f"Number {n}" for n in range(401)]


def test_a_known_id_is_left_as_it_is(store: SqliteStore) -> None:
    kept = memory("Port 1")
    put(store, kept)
    assert take_in(store, Carried(replace(kept, content="Port 2"), "created")) == [False]
    assert store.get(ALICE, kept.id) == kept


@pytest.mark.parametrize("owner", [BOB, ALICE_ELSEWHERE], ids=["user", "tenant"])
def test_somebody_elses_id_is_refused(store: SqliteStore, owner: Scope) -> None:
    theirs = memory("Port 1", owner)
    put(store, theirs)
    with pytest.raises(StoreError, match="another user"):
        take_in(store, Carried(memory("Port 2", id=theirs.id), "created"))
    assert store.get(owner, theirs.id) == theirs


@pytest.mark.parametrize("role", ["user", "api"])
def test_a_tombstone_keeps_a_record_out_whoever_wrote_it(store: SqliteStore, role: str) -> None:
    gone = memory("Port 1", role=role, message="m1")
    put(store, gone)
    store.transact(lambda tx: tx.forget(ALICE, [gone.id])).result()
    for again in (gone, memory("port 1."), memory("Another text", message="m1")):
        with pytest.raises(Forgotten):
            take_in(store, Carried(again, "created"))
    assert list(store.carried(ALICE, all_agents=True)) == []


def test_what_comes_in_with_an_older_time_is_not_the_newest(store: SqliteStore) -> None:
    put(store, memory("Now", memory_type="episodic"))
    assert [one.content for one in store.recent(ALICE, "episodic", 2)] == ["Now"]
    before = START - timedelta(days=400)
    take_in(store, Carried(memory("Long ago", memory_type="episodic", at=before), "created"))
    assert [one.content for one in store.recent(ALICE, "episodic", 2)] == ["Now", "Long ago"]


# ── a tenant ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_tenants_listing_holds_all_its_users_and_no_other_tenants(store: SqliteStore) -> None:
    for number, owner in enumerate((ALICE, BOB, ALICE_ELSEWHERE, ALICES_CODER)):
        put(store, memory(f"Number {number}", owner))
    acme = TenantScope("acme")
    assert [one.content for one in store.list_tenant(acme, ANY, limit=9).items] == ["Number 3", "Number 1", "Number 0"]
    alice = replace(acme, user_id="alice")
    assert [one.content for one in store.list_tenant(alice, ANY, limit=9).items] == ["Number 3", "Number 0"]
    coder = replace(acme, agent_id="coder")
    assert [one.content for one in store.list_tenant(coder, ANY, limit=9).items] == ["Number 3"]
    assert store.list_tenant(TenantScope("nobody"), ANY, limit=9).items == ()
    narrowed = store.list_tenant(acme, Filters(state="pending"), limit=9)
    assert narrowed.items == ()


def test_a_tenants_pages_follow_one_another(store: SqliteStore) -> None:
    put(store, *(memory(f"Number {number}", owner) for number in range(5) for owner in (ALICE, BOB)))
    pages: list[int] = []
    cursor = None
    while len(pages) < 4:
        page = store.list_tenant(TenantScope("acme"), ANY, limit=3, cursor=cursor)
        pages.append(len(page.items))
        put(store, memory("Newer"))
        cursor = page.next_cursor
    assert (pages, cursor) == ([3, 3, 3, 1], None)


@pytest.mark.parametrize("cursor", ["", "nonsense", "W10", "北京", "cm93"])
def test_a_foreign_cursor_is_refused(store: SqliteStore, cursor: str) -> None:
    with pytest.raises(RequestError, match="cursor"):
        store.list_tenant(TenantScope("acme"), ANY, limit=3, cursor=cursor)


@pytest.mark.parametrize("name", ["", " ", "a\0b", "x" * 257])
def test_a_tenant_scope_is_checked_as_a_scope_is(name: str) -> None:
    with pytest.raises(ValueError, match="tenant"):
        TenantScope(name)
    with pytest.raises(ValueError, match="user_id"):
        TenantScope("acme", user_id=name)


# ── kept answers ───────────────────────────────────────────────────────────────────────────────────────────────────
ANSWER = KeptAnswer("print", 201, '{"content": "北京"}', "some-id", '"1-0"')


def keep(store: Store, answer: KeptAnswer, clock: Clock, scope: Scope = ALICE, key: str = "k") -> None:
    since = clock.now - timedelta(hours=24)
    store.transact(lambda tx: tx.keep_answer(scope, key, answer, clock.now, since)).result()


def kept(store: Store, clock: Clock, scope: Scope = ALICE, key: str = "k") -> KeptAnswer | None:
    return store.kept_answer(scope, key, since=clock.now - timedelta(hours=24))


def test_an_answer_is_kept_for_a_day_per_user_and_key(store: SqliteStore, clock: Clock) -> None:
    keep(store, ANSWER, clock)
    assert kept(store, clock) == kept(store, clock, ALICES_CODER) == ANSWER
    assert kept(store, clock, BOB) is kept(store, clock, ALICE_ELSEWHERE) is kept(store, clock, key="other") is None
    clock.forward(hours=24)
    assert kept(store, clock) == ANSWER
    clock.forward(seconds=1)
    assert kept(store, clock) is None
    keep(store, replace(ANSWER, fingerprint="another"), clock)
    assert kept(store, clock) == replace(ANSWER, fingerprint="another")


def test_forgetting_a_record_takes_it_out_of_kept_answers(store: SqliteStore, clock: Clock, tmp_path: Path) -> None:
    gone, other = memory("My hobby is falconry"), memory("Port 1")
    put(store, gone, other)
    for key, one in (("a", gone), ("b", other)):
        keep(store, KeptAnswer("print", 201, one.content, one.id), clock, key=key)
    store.transact(lambda tx: tx.forget(ALICE, [gone.id])).result()
    assert kept(store, clock, key="a") == KeptAnswer("print", 201, None, gone.id)
    assert kept(store, clock, key="b") == KeptAnswer("print", 201, "Port 1", other.id)
    assert b"falconry" not in b"".join(path.read_bytes() for path in (tmp_path / "one").glob("s.db*"))


def test_what_was_erased_does_not_come_in_again_whatever_it_says(store: SqliteStore) -> None:
    said, summary = memory("We met on Monday"), memory("We met in spring", kind="summary")
    put(store, said, summary)
    store.transact(lambda tx: tx.link(summary, [said.id], "compressed")).result()
    before = list(store.carried(ALICE, all_agents=True))
    store.transact(lambda tx: tx.forget(ALICE, [said.id])).result()
    for one in before:
        with pytest.raises(Forgotten):
            take_in(store, one)
    assert not store.list(ALICE, ANY, limit=9).items


def test_a_former_text_that_was_forgotten_does_not_come_in_as_history(store: SqliteStore, empty: SqliteStore) -> None:
    old = memory("The word is Ambergristle")
    put(store, old)
    store.transact(
        lambda tx: tx.update(replace(old, content="The word is changed", version=2), None, change="updated")
    ).result()
    [carried] = store.carried(ALICE, all_agents=True)
    gone = memory("The word is Ambergristle")
    put(empty, gone)
    empty.transact(lambda tx: tx.forget(ALICE, [gone.id])).result()
    assert take_in(empty, carried) == [True]
    assert [version.memory.content for version in empty.history(ALICE, old.id)] == ["The word is changed"]
