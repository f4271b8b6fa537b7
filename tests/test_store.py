"""The contract of `plugs.Store` and `plugs.Transaction`: every store passes this suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.errors import RequestError, StoreError, VersionConflict
from proxy.observe import answer_hash
from proxy.plugs import (
    FROZEN,
    GLANCED,
    Carried,
    Cascade,
    Filters,
    JournalTurn,
    Ledger,
    Piece,
    Store,
    Transaction,
    Unembedded,
)
from proxy.scope import Scope
from proxy.store.lexical import query_terms, terms
from proxy.store.showing import Showing
from proxy.store.sqlite import SqliteStore
from proxy.types import Answer, Memory, Outcome, Source, ToolCall
from tests.store_samples import (
    ALICE,
    ALICE_ELSEWHERE,
    ALICES_CODER,
    BOB,
    DIMENSION,
    START,
    Clock,
    IndexedStore,
    OldIndexStore,
    account,
    memory,
    put,
    said,
    turn,
    unit,
)

Open = Callable[..., Store]


def open_sqlite(
    directory: Path, clock: Clock, fingerprint: str = "model-1", kind: type[SqliteStore] = SqliteStore, **more: Any
) -> Store:
    return kind(
        directory / "store.db",
        fingerprint=fingerprint,
        dimension=DIMENSION,
        answer_hash=answer_hash,
        clock=clock,
        **more,
    )


STORES: dict[str, Open] = {
    "sqlite": open_sqlite,
    "sqlite with a fresh index": partial(open_sqlite, kind=IndexedStore, exact_below=0),
    "sqlite with an old index": partial(open_sqlite, kind=OldIndexStore, exact_below=0),
}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=list(STORES))
def reopen(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Open]:
    """Opens the store; called again, closes it and opens it anew on the same data."""
    opened: list[Store] = []

    def make(**more: Any) -> Store:
        while opened:
            opened.pop().close()
        opened.append(STORES[request.param](tmp_path, clock, **more))
        return opened[0]

    yield make
    while opened:
        opened.pop().close()


@pytest.fixture
def store(reopen: Open) -> Store:
    return reopen()


def found(store: Store, scope: Scope, question: str, seed: int | None = None, **more: Any) -> set[str]:
    """Contents that either leg finds."""
    vector = None if seed is None else unit(seed)
    searched = store.search(scope, vector, query_terms(question), limit=more.pop("limit", 20), **more)
    return {one.content for one in store.load(scope, [c.row for c in searched.candidates]).values()}


def do(store: Store, work: Callable[[Transaction], Any]) -> Any:
    return store.transact(work).result(10)


def contents(memories: Sequence[Memory]) -> list[str]:
    return [one.content for one in memories]


# ── records ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_record_comes_back_as_it_was_also_after_a_restart(reopen: Open) -> None:
    whole = memory(
        "我住在北京 \x00 🙂",
        key="home",
        tags=("家", "b"),
        entities=("北京",),
        language="zh",
        confidence=0.31,
        strength=1.7,
        access_count=4,
        last_accessed_at=START + timedelta(microseconds=1),
        expires_at=START + timedelta(days=3, microseconds=999_999),
        session_id="s9",
        parent_id="p",
        supersedes="x",
        superseded_by="y",
        version=3,
        token_estimate=7,
        message="m" * 32,
    )
    put(reopen(), whole)
    assert reopen().get(ALICE, whole.id) == whole


LONG = "The user keeps bees. " + "It rained, and then it rained some more, as it does. " * 12
LONGER = "The user sold the bees in May 2026. " + LONG


def insert(store: Store, old: Memory, new: Memory) -> None:
    put(store, replace(new, id=old.id))


def update(store: Store, old: Memory, new: Memory) -> None:
    put(store, old)
    do(store, lambda tx: tx.update(replace(new, id=old.id, version=2), None, change="updated"))


def supersede(store: Store, old: Memory, new: Memory) -> None:
    put(store, replace(old, id=new.id))
    do(store, lambda tx: tx.supersede(replace(old, id=new.id), replace(new, id=old.id), None))


def take_in(store: Store, old: Memory, new: Memory) -> None:
    do(store, lambda tx: tx.take_in(Carried(replace(new, id=old.id), "created"), None))


@pytest.mark.parametrize("write", [insert, update, supersede, take_in], ids=lambda one: one.__name__)
def test_a_long_content_has_its_own_short_form_however_it_was_written(
    store: Store, write: Callable[[Store, Memory, Memory], None]
) -> None:
    old = memory(LONG)
    write(store, old, memory(LONGER, short="Something that nobody said"))
    held = store.get(ALICE, old.id)
    assert held is not None
    assert held.short is not None
    assert held.short.startswith("The user sold the bees in May 2026. The user keeps bees.")
    assert len(held.short) <= 400
    assert held.line_tokens is None
    assert held.short_tokens is not None
    assert held.short_tokens > 0
    found = store.search(ALICE, None, query_terms("bees"), limit=5).candidates
    (searched,) = (one for one in store.load(ALICE, [c.row for c in found]).values() if one.id == old.id)
    assert (searched.short, searched.short_tokens) == (held.short, held.short_tokens)


def test_a_content_that_becomes_short_needs_no_short_form(store: Store) -> None:
    one = memory(LONG)
    put(store, one)
    do(store, lambda tx: tx.update(replace(one, content="The user keeps bees", version=2), None, change="updated"))
    held = store.get(ALICE, one.id)
    assert held is not None
    assert (held.short, held.short_tokens) == (None, None)
    assert held.line_tokens is not None
    assert held.line_tokens > 0
    former, _ = store.history(ALICE, one.id)
    assert former.memory.short is not None


def test_short_forms_keep_to_the_limit_and_the_counter_that_the_store_was_opened_with(reopen: Open) -> None:
    store = reopen(shown=Showing(len, 60))
    one = memory(LONG)
    put(store, one)
    held = store.get(ALICE, one.id)
    assert held is not None
    assert held.short is not None
    assert len(held.short) <= 60
    assert held.short_tokens == len(f" {held.short}\n")


def test_half_a_surrogate_pair_does_not_stop_a_write(store: Store) -> None:
    broken = memory("tea " + chr(0xD83D), tags=("a" + chr(0xDC00),))
    put(store, broken)
    stored = store.get(ALICE, broken.id)
    assert stored is not None
    assert stored.content == "tea ?"


def test_an_id_is_stored_once(store: Store) -> None:
    one = memory()
    put(store, one)
    with pytest.raises(StoreError, match=one.id):
        put(store, replace(one, content="other"))
    assert store.get(ALICE, one.id) == one


@pytest.mark.parametrize("fields", [{"scope": "session"}, {"memory_type": "working"}])
def test_working_memory_is_refused(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="working memory"):
        put(store, memory(**fields))


@pytest.mark.parametrize("vector", [np.full(DIMENSION, np.nan, np.float32), np.ones(DIMENSION + 1, np.float32)])
def test_a_bad_vector_is_refused_with_its_record(store: Store, vector: Any) -> None:
    one = memory()
    with pytest.raises(StoreError):
        put(store, one, vectors=[vector])
    assert store.get(ALICE, one.id) is None


def test_a_transaction_sees_its_own_writes_and_others_do_not(store: Store) -> None:
    one = memory()

    def work(tx: Transaction) -> tuple[Memory | None, Memory | None, set[str]]:
        tx.insert(one, unit(1))
        return tx.get(ALICE, one.id), tx.get(BOB, one.id), found(store, ALICE, "tea", 1)

    assert do(store, work) == (one, None, set())
    assert found(store, ALICE, "tea", 1) == {one.content}


def test_a_failed_transaction_leaves_no_trace_in_either_leg(store: Store) -> None:
    def work(tx: Transaction) -> None:
        tx.insert(memory(), unit(1))
        raise LookupError

    put(store, memory("unrelated words"))
    before = store.generation(ALICE)
    with pytest.raises(LookupError):
        do(store, work)
    assert found(store, ALICE, "tea", 1) == set()
    assert store.generation(ALICE) == before


# ── whose ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("visibility", "readers"),
    [
        ("agent", [ALICE]),
        ("user", [ALICE, ALICES_CODER]),
        ("shared", [ALICE, ALICES_CODER, BOB]),
    ],
)
def test_records_are_read_by_whom_they_are_for(store: Store, visibility: str, readers: list[Scope]) -> None:
    one = memory(scope=visibility, key="k", message="m1", memory_type="episodic")
    put(store, one, vectors=[unit(1)])
    row = store.search(ALICE, None, ["tea"], limit=1).candidates[0].row
    for scope in (ALICE, ALICES_CODER, BOB, ALICE_ELSEWHERE):
        expected = [one] if scope in readers else []
        assert [m for m in [store.get(scope, one.id)] if m] == expected
        assert [*store.list(scope, Filters(), limit=10).items] == expected
        assert [v.memory for v in store.history(scope, one.id)] == expected
        assert [*store.load(scope, [row]).values()] == expected
        assert store.glances(scope, [row]).alive.tolist() == [bool(expected)]
        assert [c.row for c in store.search(scope, unit(1), ["tea"], limit=5).candidates] == [row] * len(expected)
        assert [*store.recent(scope, "episodic", 5)] == expected
        assert [*store.by_key(scope, "k")] == expected
        assert [*store.from_message(scope, "m1")] == expected
        assert store.stats(scope)["total"] == len(expected)


def test_all_agents_lists_one_users_agents_and_what_is_shared(store: Store) -> None:
    mine, other_agents, shared = memory("mine"), memory("coder's", ALICES_CODER), memory("all's", BOB, scope="shared")
    put(store, mine, other_agents, shared, memory("bob's", BOB), memory("elsewhere", ALICE_ELSEWHERE))
    page = store.list(ALICE, Filters(), limit=10, all_agents=True)
    assert {one.content for one in page.items} == {"mine", "coder's", "all's"}
    assert {one.content for one in store.list(ALICE, Filters(), limit=10).items} == {"mine", "all's"}


def test_nobody_updates_supersedes_or_forgets_anothers_record(store: Store) -> None:
    one = memory(message="m1")
    put(store, one)
    with pytest.raises(StoreError, match=one.id):
        do(store, lambda tx: tx.update(replace(one, user_id="bob", content="stolen"), None, change="updated"))
    with pytest.raises(StoreError, match=one.id):
        do(store, lambda tx: tx.supersede(one, memory("stolen", BOB), None))
    assert do(store, lambda tx: tx.forget(BOB, [one.id])) == 0
    assert store.get(ALICE, one.id) == one


# ── listing ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_pages_go_newest_first_without_gaps_or_repeats(store: Store) -> None:
    many = [memory(f"no {i}", at=START + timedelta(seconds=i // 3)) for i in range(20)]
    put(store, *many)
    seen: list[Memory] = []
    cursor: str | None = None
    for _ in range(10):
        page = store.list(ALICE, Filters(), limit=7, cursor=cursor)
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == sorted(many, key=lambda one: (one.created_at, one.id), reverse=True)


@pytest.mark.parametrize("cursor", ["", "x", "W10", "WzEsMiwzXQ", "bnVsbA", "€"])
def test_a_foreign_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(RequestError) as raised:
        store.list(ALICE, Filters(), limit=5, cursor=cursor)
    assert raised.value.param == "cursor"


@pytest.mark.parametrize("limit", [0, 501])
def test_a_limit_out_of_range_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(RequestError):
        store.list(ALICE, Filters(), limit=limit)


FILTERED: list[tuple[Filters, set[str]]] = [
    (Filters(), {"a", "b", "c"}),
    (Filters(state=None), {"a", "b", "c", "d"}),
    (Filters(state="pending"), {"d"}),
    (Filters(memory_type="episodic"), {"b"}),
    (Filters(kind="preference"), {"a"}),
    (Filters(key="home"), {"c"}),
    (Filters(session_id="s7"), {"b"}),
    (Filters(scope="user"), {"c"}),
    (Filters(language="zh"), {"b"}),
    (Filters(tags=("x",)), {"a", "b"}),
    (Filters(tags=("x", "y")), {"b"}),
    (Filters(created_after=START + timedelta(seconds=1)), {"b", "c"}),
    (Filters(created_before=START + timedelta(seconds=1)), {"a"}),
    (Filters(created_after=START, created_before=START + timedelta(seconds=2)), {"a", "b"}),
    (Filters(text="ÉTUDE"), {"c"}),
    (Filters(text="100%"), {"a"}),
]


@pytest.fixture
def filtered(store: Store) -> Store:
    put(
        store,
        memory("tea 100% sure", kind="preference", tags=("x",)),
        memory("tea 北京", memory_type="episodic", session_id="s7", language="zh", tags=("x", "y"), at=later(1)),
        memory("tea étude", key="home", scope="user", at=later(2)),
        memory("tea for later", state="pending", at=later(3)),
    )
    return store


def later(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


NAMES = {"tea 100% sure": "a", "tea 北京": "b", "tea étude": "c", "tea for later": "d"}


@pytest.mark.parametrize(("filters", "expected"), FILTERED)
def test_filters_narrow_a_listing(filtered: Store, filters: Filters, expected: set[str]) -> None:
    assert {NAMES[one.content] for one in filtered.list(ALICE, filters, limit=10).items} == expected


@pytest.mark.parametrize(("filters", "expected"), FILTERED)
def test_filters_narrow_a_search_to_active_records(filtered: Store, filters: Filters, expected: set[str]) -> None:
    names = {NAMES[content] for content in found(filtered, ALICE, "tea", filters=filters)}
    assert names == ({"a", "b", "c"} if filters.state == "pending" else expected - {"d"})


def test_filters_narrow_before_the_limit_counts(filtered: Store) -> None:
    assert found(filtered, ALICE, "tea", limit=1, filters=Filters(kind="preference")) == {"tea 100% sure"}


# ── search ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_words_are_found_in_both_languages(store: Store) -> None:
    put(store, memory("我住在北京"), memory("ssh runs with --port=2222"))
    assert found(store, ALICE, "北京") == {"我住在北京"}
    assert found(store, ALICE, "which --port=2222") == {"ssh runs with --port=2222"}
    assert found(store, ALICE, "上海 8080") == set()


def test_every_candidate_carries_both_scores_it_has(store: Store) -> None:
    put(store, memory("tea"), memory("coffee"), memory("tea without vector"), vectors=[unit(1), unit(2), None])
    candidates = store.search(ALICE, unit(1), ["tea"], limit=3).candidates
    by_text = {store.load(ALICE, [c.row])[c.row].content: c for c in candidates}
    assert by_text["tea"].dense == pytest.approx(1.0, abs=1e-3)
    assert by_text["tea"].lexical > 0
    assert by_text["coffee"].dense == pytest.approx(float(unit(1) @ unit(2)), abs=1e-3)
    assert by_text["coffee"].lexical == 0
    assert by_text["tea without vector"].dense is None
    assert by_text["tea without vector"].lexical > 0


def test_the_legs_work_alone(store: Store) -> None:
    put(store, memory("tea"), memory("coffee"), vectors=[unit(1), unit(2)])
    assert [c.dense for c in store.search(ALICE, None, ["tea"], limit=5).candidates] == [None]
    assert len(store.search(ALICE, unit(2), [], limit=5).candidates) == 2
    assert store.search(ALICE, None, [], limit=5).candidates == []
    assert store.search(ALICE, np.zeros(DIMENSION, np.float32), [], limit=5).candidates == []


def test_vectors_of_another_model_are_left_to_the_words(reopen: Open) -> None:
    put(reopen(), memory("tea"), vectors=[unit(1)])
    store = reopen(fingerprint="model-2")
    assert [c.dense for c in store.search(ALICE, unit(1), ["tea"], limit=5).candidates] == [None]
    assert store.search(ALICE, unit(1), [], limit=5).candidates == []
    one = store.list(ALICE, Filters(), limit=1).items[0]
    do(store, lambda tx: tx.update(one, unit(1), change="embedded"))
    assert store.search(ALICE, unit(1), [], limit=5).candidates[0].dense == pytest.approx(1.0, abs=1e-3)


def test_scores_are_the_same_after_a_restart(reopen: Open) -> None:
    store = reopen()
    store.search(ALICE, unit(1), [], limit=1)
    put(store, *(memory(f"tea {i} {'x ' * i}") for i in range(9)), vectors=[unit(i) for i in range(9)])
    before = store.search(ALICE, unit(3), ["tea", "x"], limit=9).candidates
    assert len(before) == 9
    for was, now in zip(before, reopen().search(ALICE, unit(3), ["tea", "x"], limit=9).candidates, strict=True):
        assert (now.row, now.lexical) == (was.row, was.lexical)
        assert now.dense == pytest.approx(was.dense, abs=1e-6)


def test_other_tenants_words_do_not_weigh_on_a_score(store: Store) -> None:
    put(store, memory("rare tea"), memory("plain coffee"))
    before = store.search(ALICE, None, query_terms("rare"), limit=5).candidates[0].lexical
    put(store, *(memory("rare rare rare", BOB) for _ in range(30)))
    assert store.search(ALICE, None, query_terms("rare"), limit=5).candidates[0].lexical == before


@pytest.mark.parametrize("state", ["pending", "superseded", "archived"])
def test_only_active_records_are_found_and_a_restored_one_again(store: Store, state: Any) -> None:
    one = memory("tea", key="k", memory_type="episodic")
    put(store, memory("older"), one, memory("newer"), vectors=[unit(5), unit(1), unit(6)])
    away = replace(one, state=state)
    do(store, lambda tx: tx.update(away, None, change="archived"))
    assert "tea" not in found(store, ALICE, "tea", 1)
    assert store.by_key(ALICE, "k") == ()
    assert store.recent(ALICE, "episodic", 3) == ()
    do(store, lambda tx: tx.update(one, None, change="restored"))
    assert found(store, ALICE, "tea") == {"tea"}
    best = store.search(ALICE, unit(1), [], limit=1).candidates[0]
    assert store.load(ALICE, [best.row])[best.row].content == "tea"
    assert best.dense == pytest.approx(1.0, abs=1e-3)


def test_expired_records_are_not_recalled(store: Store, clock: Clock) -> None:
    put(store, memory("tea", key="k", memory_type="episodic", expires_at=later(60)), vectors=[unit(1)])
    assert found(store, ALICE, "tea", 1) == {"tea"}
    clock.forward(seconds=60)
    assert found(store, ALICE, "tea", 1) == set()
    assert store.by_key(ALICE, "k") == ()
    assert store.recent(ALICE, "episodic", 1) == ()
    assert len(store.list(ALICE, Filters(), limit=5).items) == 1


def test_a_changed_text_is_found_by_its_new_words_only(store: Store) -> None:
    one = memory("tea in the morning")
    put(store, one, vectors=[unit(1)])
    do(store, lambda tx: tx.update(replace(one, content="coffee at night", version=2), unit(2), change="updated"))
    assert found(store, ALICE, "tea morning") == set()
    assert found(store, ALICE, "coffee") == {"coffee at night"}
    assert store.search(ALICE, unit(2), [], limit=1).candidates[0].dense == pytest.approx(1.0, abs=1e-3)


def test_a_record_that_changes_its_readers_is_found_by_the_new_ones_only(store: Store) -> None:
    one = memory("tea", scope="shared")
    put(store, one, vectors=[unit(1)])
    assert found(store, BOB, "tea", 1) == {"tea"}
    do(store, lambda tx: tx.update(replace(one, scope="user"), None, change="updated"))
    assert found(store, BOB, "tea", 1) == set()
    assert found(store, ALICES_CODER, "tea", 1) == {"tea"}


def test_the_newest_by_validity_come_first(store: Store) -> None:
    put(
        store,
        *(
            memory(f"{i}", memory_type="episodic", valid_from=later(i), scope=s)
            for i, s in enumerate(["agent", "user", "shared", "agent"])
        ),
    )
    assert contents(store.recent(ALICE, "episodic", 3)) == ["3", "2", "1"]
    assert contents(store.recent(BOB, "episodic", 3)) == ["2"]


def test_from_message_gives_active_and_pending_records(store: Store) -> None:
    kept = [memory("a", message="m"), memory("b", message="m", state="pending")]
    put(store, *kept, memory("c", message="m", state="archived"), memory("d", message="n"))
    assert [*store.from_message(ALICE, "m")] == kept


# ── vectors of the present model ───────────────────────────────────────────────────────────────────────────────────
def test_what_the_present_model_was_not_asked_about_waits_for_it(store: Store) -> None:
    put(store, memory("tea"), memory("coffee"), memory("milk", BOB), vectors=[unit(1), None, None])
    assert store.unembedded_count() == 2
    assert len(store.unembedded(1)) == 1
    waiting = store.unembedded(10)
    assert sorted(one.content for one in waiting) == ["coffee", "milk"]
    vectors = {"coffee": unit(2), "milk": None}
    assert store.embed([(one, vectors[one.content]) for one in waiting]).result(10) == 2
    assert (store.unembedded_count(), store.unembedded(10)) == (0, ())
    searched = store.search(ALICE, unit(2), [], limit=1)
    assert [one.content for one in store.load(ALICE, searched.rows.tolist()).values()] == ["coffee"]
    assert found(store, BOB, "milk", 3) == {"milk"}
    store.drop_foreign_index()


def test_an_embedded_record_stays_so_after_a_restart(reopen: Open) -> None:
    store = reopen()
    put(store, memory("tea"))
    store.embed([(store.unembedded(1)[0], unit(1))]).result(10)
    assert reopen().unembedded_count() == 0
    assert reopen().search(ALICE, unit(1), [], limit=1).candidates[0].dense == pytest.approx(1, abs=1e-3)


def test_a_vector_of_former_words_is_given_to_nobody(store: Store) -> None:
    one, other = memory("tea"), memory("coffee")
    put(store, one, other, vectors=[unit(1), unit(2)])
    (read,) = [Unembedded(row, "tea") for row in store.search(ALICE, unit(1), [], limit=1).rows.tolist()]
    do(store, lambda tx: tx.update(replace(one, content="milk", version=2), None, change="updated"))
    assert [waiting.content for waiting in store.unembedded(5)] == ["milk"]
    assert store.embed([(read, unit(1))]).result(10) == 0
    assert found(store, ALICE, "", 1) == {"coffee"}


# ── versions ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_every_state_stays_in_the_history(store: Store) -> None:
    first = memory("one")
    second = replace(first, content="two", version=2, updated_at=later(5))
    put(store, first)
    do(store, lambda tx: tx.update(second, None, change="updated", expected_version=1))
    history = store.history(ALICE, first.id)
    assert [(v.memory, v.change, v.at) for v in history] == [
        (first, "created", START),
        (second, "updated", later(5)),
    ]
    assert store.history(ALICE, "unknown") == []


def test_a_stale_version_is_refused(store: Store) -> None:
    one = memory()
    put(store, one)
    do(store, lambda tx: tx.update(replace(one, version=2), None, change="updated", expected_version=1))
    with pytest.raises(VersionConflict, match="version 2, not 1"):
        do(store, lambda tx: tx.update(replace(one, version=2), None, change="updated", expected_version=1))


def test_superseding_links_both_ways_and_tells_one_story(store: Store) -> None:
    old, new = memory("lives in Shanghai", key="home"), memory("lives in Beijing", key="home", at=later(9))
    put(store, old, vectors=[unit(1)])
    do(store, lambda tx: tx.supersede(old, new, unit(2)))
    now_old, now_new = store.get(ALICE, old.id), store.get(ALICE, new.id)
    assert now_old is not None
    assert now_new is not None
    assert (now_old.state, now_old.superseded_by, now_new.supersedes) == ("superseded", new.id, old.id)
    assert [(v.memory.content, v.change) for v in store.history(ALICE, new.id)] == [
        ("lives in Shanghai", "created"),
        ("lives in Shanghai", "superseded"),
        ("lives in Beijing", "created"),
    ]
    assert found(store, ALICE, "lives Shanghai Beijing", 1) == {"lives in Beijing"}
    assert contents(store.by_key(ALICE, "home")) == ["lives in Beijing"]
    with pytest.raises(VersionConflict):
        do(store, lambda tx: tx.supersede(old, memory("lives in Wuhan"), None))


def test_use_strengthens_up_to_two(store: Store) -> None:
    one, other = memory("a"), memory("b", strength=1.95)
    put(store, one, other)
    foreign = memory("c", BOB)
    put(store, foreign)
    do(store, lambda tx: tx.touch(ALICE, [one.id, other.id, foreign.id, "unknown"], later(3)))
    assert store.get(BOB, foreign.id) == foreign
    used, capped = store.get(ALICE, one.id), store.get(ALICE, other.id)
    assert used == replace(one, access_count=1, strength=1.1, last_accessed_at=later(3))
    assert capped is not None
    assert capped.strength == 2.0


@pytest.mark.parametrize("again", [False, True], ids=["as kept", "read anew"])
def test_what_ranking_sees_of_a_record_follows_every_change(reopen: Open, again: bool) -> None:
    store = reopen()

    def seen(row: int, of: Scope = ALICE) -> tuple[dict[str, float], str, tuple[str, str]]:
        glances = (reopen() if again else store).glances(of, [row])
        return dict(zip(GLANCED, glances.table[0].tolist(), strict=True)), glances.speakers[0], glances.sorts[0]

    def change(work: Callable[[Transaction], Any]) -> None:
        do(reopen() if again else store, work)

    one = memory("Ann: I like tea now", kind="preference", confidence=0.7, role="assistant")
    put(store, one)
    row = store.search(ALICE, None, ["tea"], limit=1).candidates[0].row
    flags = {"assistant": 1, "asks": 0, "times": 0, "standing": 0, "preference": 1, "changed": 1}
    assert seen(row) == (
        {"confidence": 0.7, "strength": 1.0, "at": START.timestamp(), **flags},
        "ann",
        ("semantic", "preference"),
    )
    change(lambda tx: tx.touch(ALICE, [one.id], later(3)))
    assert seen(row)[0]["strength"] == 1.1
    change(lambda tx: tx.witness(one, Source("user", "another session"), later(3)))
    assert seen(row)[0]["strength"] > 1.1
    asks = replace(one, content="小王：你明天去哪儿？", kind="fact", confidence=0.5, valid_from=later(5))
    change(lambda tx: tx.update(asks, None, change="updated"))
    flags = {"assistant": 1, "asks": 1, "times": 1, "standing": 0, "preference": 0, "changed": 0}
    assert seen(row) == (
        {"confidence": 0.5, "strength": 1.0, "at": later(5).timestamp(), **flags},
        "小王",
        ("semantic", "fact"),
    )
    assert np.isnan(seen(row, BOB)[0]["confidence"])
    change(lambda tx: tx.forget(ALICE, [one.id]))
    assert np.isnan(seen(row)[0]["confidence"])


def test_the_generation_moves_for_those_who_may_read_the_change(store: Store) -> None:
    one = memory()
    scopes = (ALICE, ALICES_CODER, BOB)
    before = [store.generation(scope) for scope in scopes]
    put(store, one)
    after = [store.generation(scope) for scope in scopes]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True, True]
    do(store, lambda tx: tx.update(replace(one, scope="shared"), None, change="updated"))
    assert all(a != store.generation(scope) for a, scope in zip(after, scopes, strict=True))


def test_the_generation_of_another_run_differs(reopen: Open) -> None:
    before = reopen().generation(ALICE)
    assert reopen().generation(ALICE) != before


def test_stats_count_what_the_scope_reads(store: Store) -> None:
    put(store, memory(kind="preference"), memory(state="pending"), memory(memory_type="episodic", scope="user"))
    put(store, memory(owner=BOB))
    store.search(ALICE, None, ["tea"], limit=1)
    assert store.stats(ALICE) == {
        "by_memory_type": {"semantic": 2, "episodic": 1},
        "by_kind": {"preference": 1, "fact": 2},
        "by_state": {"active": 2, "pending": 1},
        "total": 3,
        "unembedded": 2,
        "exact_searches": 1,
        "index_searches": 0,
    }


# ── forgetting ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_forgetting_reaches_what_hangs_on_a_record_and_nothing_else(store: Store) -> None:
    old = memory("lives in Shanghai", scope="user", message="m0")
    new = memory("lives in Beijing", scope="user", message="m1")
    gone = [
        memory("I live in Shanghai now", kind="turn", message="m0"),
        memory("No, I live in Beijing", kind="turn", message="m1"),
        memory("works in Beijing", ALICES_CODER, message="m1", state="pending"),
        memory("a move from Shanghai", kind="summary", parent_id=new.id, message="m2"),
    ]
    kept = [
        memory("Beijing is big", message="m2"),
        memory("the next tool call", kind="tool_result", parent_id=new.id),
        memory("No, I live in Beijing", BOB, message="m1"),
        memory("No, I live in Beijing", ALICE_ELSEWHERE, message="m1"),
    ]
    put(store, old, *gone, *kept)
    do(store, lambda tx: tx.supersede(old, new, unit(1)))
    assert do(store, lambda tx: tx.forget(ALICE, [new.id, "unknown"])) == 5
    owners = {"alice": ALICE, "bob": BOB}
    for one in (old, new, *gone):
        scope = ALICES_CODER if one.agent_id == "coder" else ALICE
        assert store.get(scope, one.id) is None
        assert store.history(scope, one.id) == []
    for one in kept:
        scope = ALICE_ELSEWHERE if one.tenant == "globex" else owners[one.user_id]
        assert store.get(scope, one.id) == one
    assert found(store, ALICE, "lives Shanghai move", 1) == set()


def test_forgetting_a_superseded_record_keeps_what_replaced_it(store: Store) -> None:
    old, new = memory("Shanghai"), memory("Beijing")
    put(store, old)
    do(store, lambda tx: tx.supersede(old, new, None))
    assert do(store, lambda tx: tx.forget(ALICE, [old.id])) == 0
    stored = store.get(ALICE, new.id)
    assert stored is not None
    assert stored.supersedes is None
    assert [v.memory.content for v in store.history(ALICE, new.id)] == ["Beijing"]


def test_forgotten_things_do_not_come_back_by_themselves(reopen: Open) -> None:
    store = reopen()
    one = memory("The user prefers tea.", message="m1")
    put(store, one)
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    store = reopen()
    for again in (
        memory("the user   prefers TEA", message="m2"),
        memory("something else", message="m1"),
        memory("the user prefers tea", ALICES_CODER),
    ):
        with pytest.raises(StoreError, match="forgotten"):
            put(store, again)
    put(store, memory("The user prefers tea.", BOB, message="m1"))
    assert store.is_forgotten(ALICE, "m1")
    assert store.is_forgotten(ALICES_CODER, "m1")
    assert not store.is_forgotten(BOB, "m1")
    assert not store.is_forgotten(ALICE, "m2")


def test_former_texts_are_forgotten_too(store: Store) -> None:
    one = memory("the door code is 4711")
    put(store, one)
    do(store, lambda tx: tx.update(replace(one, content="the door code is 0815", version=2), None, change="updated"))
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    with pytest.raises(StoreError, match="forgotten"):
        put(store, memory("the door code is 4711"))


def test_an_explicit_write_brings_a_forgotten_thing_back(store: Store) -> None:
    one = memory("tea", message="m1")
    put(store, one)
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    put(store, memory("tea", role="api"))
    put(store, memory("tea"))
    assert store.is_forgotten(ALICE, "m1")


def test_forgetting_drops_unfinished_turns_with_the_message(store: Store) -> None:
    secret, other = said("my code is 4711"), said("hello there")
    one = memory("code 4711", message=secret.hash)
    put(store, one)
    for opened in (turn(secret), turn(said("more"), backfill=(secret,)), turn(other)):
        store.journal_open(opened, account(opened)).result(10)
        store.journal_answer(opened.id, opened.id, Answer("fine"), []).result(10)
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    assert [t.new[0].text for t in store.journal_waiting()] == ["hello there"]


def test_a_late_write_of_a_forgotten_turn_is_refused(store: Store) -> None:
    opened = turn(said("my code is 4711"))
    store.journal_open(opened, account(opened)).result(10)
    first = memory("code 4711", message=opened.new[0].hash)
    put(store, first)
    do(store, lambda tx: tx.forget(ALICE, [first.id]))
    store.journal_answer(opened.id, opened.id, Answer("fine"), [(ALICE, "link")]).result(10)
    with pytest.raises(StoreError, match="forgotten"):
        put(store, memory("4711", message=opened.new[0].hash))
    assert [*store.journal_waiting()] == []
    assert store.session_of(ALICE, "link") == "s1"


# ── conversations ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_seen_chains_hold_within_their_scope_and_contents_within_their_owner(store: Store, clock: Clock) -> None:
    messages = [said("hi"), said("there")]
    do(store, lambda tx: tx.mark_seen("scope-1", ALICE.owner, messages))
    chains, hashes = [m.chain for m in messages], [m.hash for m in messages]
    assert store.seen("scope-1", [*chains, "other"]) == set(chains)
    assert store.seen("scope-2", chains) == set()
    assert store.seen_content(ALICE.owner, [*hashes, "other"]) == set(hashes)
    assert store.seen_content(BOB.owner, hashes) == set()
    moment = clock.forward(seconds=5)
    assert store.seen("scope-1", chains, since=moment) == set()
    do(store, lambda tx: tx.mark_seen("scope-1", ALICE.owner, messages[:1]))
    assert store.seen("scope-1", chains, since=moment) == {chains[0]}
    assert store.seen("scope-1", []) == set()


def test_seen_content_includes_what_was_forgotten_by_any_agent_of_the_user(store: Store) -> None:
    one = memory("tea", message="m1")
    put(store, one, memory("of the coder", ALICES_CODER))
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
    assert store.seen_content(ALICE.owner, ["m1", "m2"]) == {"m1"}
    assert store.seen_content(ALICES_CODER.owner, ["m1"]) == {"m1"}
    assert store.seen_content(BOB.owner, ["m1"]) == set()


def test_a_link_leads_to_the_session_whose_newest_point_it_is(store: Store) -> None:
    def link(session: str, name: str, seconds: float, *, head: bool) -> None:
        do(store, lambda tx: tx.link_session(ALICE.in_session(session), name, later(seconds), head=head))

    link("s1", "hi", 0, head=True)
    assert store.session_of(ALICE, "hi") == "s1"
    link("s1", "more", 1, head=True)
    link("s2", "hi", 2, head=True)
    assert store.session_of(ALICE, "hi") == "s2"
    link("s2", "on", 3, head=True)
    link("s3", "hi", 4, head=False)
    assert store.session_of(ALICE, "hi") == "s3"
    link("s1", "hi", 5, head=True)
    link("s3", "hi", 6, head=False)
    assert store.session_of(ALICE, "hi") == "s1"
    assert store.session_of(BOB, "hi") is None
    assert store.session_of(ALICES_CODER, "hi") is None
    assert store.session_of(ALICE, "unknown") is None


def test_a_link_without_a_session_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="session"):
        do(store, lambda tx: tx.link_session(BOB, "x", START, head=True))


def test_a_session_ends_once_known_and_opens_again_when_it_goes_on(store: Store) -> None:
    assert not do(store, lambda tx: tx.end_session(ALICE, later(1)))
    assert store.session(ALICE) is None
    do(store, lambda tx: tx.link_session(ALICE, "x", START, head=True))
    assert do(store, lambda tx: tx.end_session(ALICE, later(2)))
    ended = store.session(ALICE)
    assert ended is not None
    assert (ended.session_id, ended.started_at, ended.ended_at, ended.turns) == ("s1", START, later(2), 0)
    do(store, lambda tx: tx.link_session(ALICE, "y", later(3), head=True))
    going_on = store.session(ALICE)
    assert going_on is not None
    assert (going_on.ended_at, going_on.last_at) == (None, later(3))
    assert not do(store, lambda tx: tx.end_session(BOB, later(4)))


# ── journal and ledger ─────────────────────────────────────────────────────────────────────────────────────────────
WHOLE = turn(
    said("what is it?"),
    replace(said("42", role="tool"), tool_call_id="c1", name="ask"),
    backfill=(said("earlier"),),
    context=replace(said("let me ask", role="assistant"), tool_calls=(ToolCall("c1", "ask", '{"q": 1}'),)),
    injected=("id-1", "id-2"),
    model="gpt-x",
    user_text="what is it?",
    in_play=True,
)
ANSWER = Answer("It is 42.", (ToolCall("c2", "save", "{}"),), "stop", usage={"total_tokens": 3})


def test_a_turn_comes_back_whole_once_answered(store: Store) -> None:
    assert store.journal_open(WHOLE, account(WHOLE)).result(10) == WHOLE
    assert [*store.journal_waiting()] == []
    store.journal_answer(WHOLE.id, WHOLE.id, ANSWER, [(ALICE, "link-1"), (ALICE, "link-2")]).result(10)
    assert [*store.journal_waiting()] == [replace(WHOLE, status="answered", answer=ANSWER)]
    assert store.session_of(ALICE, "link-1") == store.session_of(ALICE, "link-2") == "s1"


def test_answers_count_the_sessions_turns(store: Store, clock: Clock) -> None:
    for i in range(3):
        opened = turn(said(f"no {i}"), at=clock.forward(seconds=1))
        store.journal_open(opened, account(opened)).result(10)
        clock.forward(seconds=1)
        store.journal_answer(opened.id, opened.id, ANSWER, [(ALICE, f"link {i}")]).result(10)
    store.journal_answer(opened.id, opened.id, ANSWER, [(ALICE, "link 2")]).result(10)
    info = store.session(ALICE)
    assert info is not None
    assert (info.turns, info.started_at, info.last_at) == (3, later(1), later(6))


def test_a_turn_open_when_the_process_died_is_given_out_as_aborted(reopen: Open) -> None:
    store = reopen()
    answered = turn(said("second"))
    for opened in (WHOLE, answered):
        store.journal_open(opened, account(opened)).result(10)
    store.journal_answer(answered.id, answered.id, ANSWER, []).result(10)
    waiting = [*reopen().journal_waiting()]
    assert waiting == [
        replace(WHOLE, answer=Answer(status="aborted")),
        replace(answered, status="answered", answer=ANSWER),
    ]


def test_a_done_turn_waits_no_longer_and_its_outcomes_are_in_the_ledger(store: Store) -> None:
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, ANSWER, []).result(10)
    outcomes = [Outcome("rule", "created", "id-1", "new"), Outcome("rule-2", "dropped", None, "why")]
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", outcomes))
    assert [*store.journal_waiting()] == []
    entry = store.ledger(ALICE, WHOLE.id)
    assert entry is not None
    assert (entry.written_status, entry.outcomes) == ("done", tuple(outcomes))


def test_closing_a_turn_is_undone_with_its_transaction(store: Store) -> None:
    def work(tx: Transaction) -> None:
        tx.journal_done(WHOLE.id, "done", [])
        raise LookupError

    store.journal_open(WHOLE, account(WHOLE)).result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, ANSWER, []).result(10)
    with pytest.raises(LookupError):
        do(store, work)
    assert len([*store.journal_waiting()]) == 1


def test_a_failed_turn_says_so_in_the_ledger(store: Store) -> None:
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    do(store, lambda tx: tx.journal_done(WHOLE.id, "failed", [Outcome("rule", "failed", None, "disk full")]))
    entry = store.ledger(ALICE, WHOLE.id)
    assert entry is not None
    assert entry.written_status == "failed"
    assert entry.outcomes[0].reason == "disk full"


def again(first: JournalTurn, **fields: Any) -> JournalTurn:
    """The same turn under a new request id, as a retry or a regeneration sends it."""
    return replace(first, id=first.id + "-again", **fields)


def test_a_retry_joins_the_turn_that_is_open(store: Store) -> None:
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    retry = again(WHOLE)
    assert store.journal_open(retry, account(retry)).result(10) == WHOLE
    for request in (WHOLE, retry):
        store.journal_answer(WHOLE.id, request.id, ANSWER, []).result(10)
    assert len([*store.journal_waiting()]) == 1
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", []))
    for request in (WHOLE, retry):
        entry = store.ledger(ALICE, request.id)
        assert entry is not None
        assert entry.written_status == "done"


def written_of(store: Store, turn: JournalTurn) -> tuple[str, str]:
    """How far the memories of a call are written, and what came of them."""
    entry = store.ledger(ALICE, turn.id)
    assert entry is not None
    return entry.written_status, ",".join(outcome.reason for outcome in entry.outcomes)


def test_a_retrys_account_waits_for_its_own_answer(store: Store) -> None:
    retry, cut, whole = again(WHOLE), replace(ANSWER, hash="cut"), replace(ANSWER, hash="whole")
    store.journal_open(WHOLE, account(WHOLE, written_status="queued")).result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, cut, []).result(10)
    store.journal_open(retry, account(retry, written_status="queued")).result(10)
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", [Outcome("", "aborted", None, "cut")], worked_on="cut"))
    assert (written_of(store, WHOLE), written_of(store, retry)) == (("done", "cut"), ("queued", ""))
    store.journal_answer(WHOLE.id, retry.id, whole, []).result(10)
    [waiting] = store.journal_waiting()
    assert (waiting.new, waiting.answer, waiting.replaces) == (WHOLE.new, whole, "cut")
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", [Outcome("", "created", None, "new")], worked_on="whole"))
    assert (written_of(store, WHOLE), written_of(store, retry)) == (("done", "cut"), ("done", "new"))
    assert [*store.journal_waiting()] == []


def test_an_answer_that_came_while_the_one_before_was_worked_on_is_still_worked_on(store: Store) -> None:
    retry, cut, whole = again(WHOLE), replace(ANSWER, hash="cut"), replace(ANSWER, hash="whole")
    store.journal_open(WHOLE, account(WHOLE, written_status="queued")).result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, cut, []).result(10)
    store.journal_open(retry, account(retry, written_status="queued")).result(10)
    store.journal_answer(WHOLE.id, retry.id, whole, []).result(10)
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", [Outcome("", "aborted", None, "cut")], worked_on="cut"))
    [waiting] = store.journal_waiting()
    assert (waiting.new, waiting.answer) == (WHOLE.new, whole)
    assert written_of(store, retry) == ("queued", "")
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", [Outcome("", "created", None, "new")], worked_on="whole"))
    assert written_of(store, retry) == ("done", "new")
    assert [*store.journal_waiting()] == []


def test_of_two_calls_that_share_a_turn_only_the_failed_one_is_told_as_failed(store: Store) -> None:
    retry = again(WHOLE)
    for one in (WHOLE, retry):
        store.journal_open(one, account(one, written_status="queued")).result(10)
    store.journal_void(WHOLE.id, WHOLE.id, "429").result(10)
    assert (written_of(store, WHOLE), written_of(store, retry)) == (("failed", "429"), ("queued", ""))
    store.journal_answer(WHOLE.id, retry.id, ANSWER, []).result(10)
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", [Outcome("", "created", None, "new")]))
    assert (written_of(store, WHOLE), written_of(store, retry)) == (("failed", "429"), ("done", "new"))


def test_a_call_that_the_process_did_not_live_to_answer_is_told_as_failed(reopen: Open) -> None:
    store, retry = reopen(), again(WHOLE)
    store.journal_open(WHOLE, account(WHOLE, written_status="queued")).result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, ANSWER, []).result(10)
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", [Outcome("", "created", None, "new")]))
    store.journal_open(retry, account(retry, written_status="queued")).result(10)
    store = reopen()
    assert (written_of(store, WHOLE), written_of(store, retry)) == (
        ("done", "new"),
        ("failed", "the process ended before the answer"),
    )


def test_the_same_chain_in_another_scope_is_another_turn(store: Store) -> None:
    other = again(WHOLE, seen_scope="elsewhere")
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    assert store.journal_open(other, account(other)).result(10) == other


@pytest.mark.parametrize("worked_on", [False, True])
def test_a_regenerated_answer_names_the_one_it_replaces(reopen: Open, worked_on: bool) -> None:
    store = reopen()
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, ANSWER, []).result(10)
    if worked_on:
        do(store, lambda tx: tx.journal_done(WHOLE.id, "done", []))
    other = again(WHOLE)
    expected = replace(WHOLE, replaces=answer_hash(ANSWER))
    assert store.journal_open(other, account(other)).result(10) == expected
    better = replace(ANSWER, text="It is 43.")
    store.journal_answer(WHOLE.id, WHOLE.id, better, []).result(10)
    assert [*reopen().journal_waiting()] == [replace(expected, status="answered", answer=better)]


def test_a_void_turn_is_gone_and_its_ledger_entry_says_why(store: Store) -> None:
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    store.journal_void(WHOLE.id, WHOLE.id, "the provider answered 429").result(10)
    entry = store.ledger(ALICE, WHOLE.id)
    assert entry is not None
    assert entry.written_status == "failed"
    assert entry.outcomes[0].reason == "the provider answered 429"
    retry = again(WHOLE)
    assert store.journal_open(retry, account(retry)).result(10).id == retry.id


def test_a_failed_regeneration_keeps_the_answer_there_was(store: Store) -> None:
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, ANSWER, []).result(10)
    do(store, lambda tx: tx.journal_done(WHOLE.id, "done", []))
    other = again(WHOLE)
    store.journal_open(other, account(other)).result(10)
    store.journal_void(WHOLE.id, WHOLE.id, "429").result(10)
    third = replace(WHOLE, id="third")
    assert store.journal_open(third, account(third)).result(10).replaces == answer_hash(ANSWER)


def test_a_turn_that_two_calls_share_outlives_the_failure_of_one(store: Store) -> None:
    store.journal_open(WHOLE, account(WHOLE)).result(10)
    other = again(WHOLE)
    store.journal_open(other, account(other)).result(10)
    store.journal_void(WHOLE.id, WHOLE.id, "429").result(10)
    store.journal_answer(WHOLE.id, WHOLE.id, ANSWER, []).result(10)
    assert [t.answer for t in store.journal_waiting()] == [ANSWER]


def test_the_ledger_is_for_its_user_only(store: Store) -> None:
    entry = Ledger(
        "r1",
        ALICE,
        START,
        "skipped:no-identity",
        recalled=({"id": "m", "score": 0.5},),
        injected={"placement": "system", "tokens": 3},
        written_status="done",
    )
    store.ledger_put(entry).result(10)
    assert store.ledger(ALICE, "r1") == entry
    assert store.ledger(ALICES_CODER, "r1") == entry
    assert store.ledger(BOB, "r1") is None
    assert store.ledger(ALICE_ELSEWHERE, "r1") is None
    assert store.ledger(ALICE, "r2") is None


def test_the_ledger_keeps_thirty_days(reopen: Open, clock: Clock) -> None:
    store = reopen()
    old, fresh = turn(said("old")), turn(said("fresh"), at=START + timedelta(days=20))
    for opened in (old, fresh):
        store.journal_open(opened, account(opened)).result(10)
    clock.forward(days=31)
    store = reopen()
    assert store.ledger(ALICE, old.id) is None
    assert store.ledger(ALICE, fresh.id) is not None
    assert len([*store.journal_waiting()]) == 2


def test_a_closed_store_refuses_with_a_reason(store: Store) -> None:
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get(ALICE, "x")
    with pytest.raises(StoreError, match="closed"):
        store.transact(lambda tx: None).result(10)
    store.close()


def test_holding_finds_the_records_with_every_term_in_any_scope_size(store: Store) -> None:
    put(store, memory("green tea with milk"), memory("green tea"), memory("tea with milk"), memory("我喜欢绿茶"))
    put(store, memory("green tea with milk", BOB))
    assert {one.content for one in store.holding(ALICE, ["green", "tea"], limit=9)} == {
        "green tea with milk",
        "green tea",
    }
    assert [one.content for one in store.holding(ALICE, terms("我喜欢绿茶"), limit=9)] == ["我喜欢绿茶"]
    assert len(store.holding(ALICE, ["tea"], limit=2)) == 2
    assert store.holding(ALICE, ["green", "coffee"], limit=9) == ()
    assert store.holding(ALICE, [], limit=9) == ()


def test_holding_asks_the_index_of_a_scope_too_large_for_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.store.term_maps.MOST_RECORDS", 1)
    put(store, memory("green tea"), memory("black tea"), memory("green milk"))
    assert [one.content for one in store.holding(ALICE, ["green", "tea"], limit=9)] == ["green tea"]


# ── what stands in a session's requests ────────────────────────────────────────────────────────────────────────────
def piece(text: str, *items: str, mentions: tuple[str, ...] = ()) -> Piece:
    return Piece(text, len(text), items, mentions)


def on_disk(store: Store) -> None:
    """Wait for what nobody waits for: jobs are done in turn."""
    do(store, lambda tx: None)


def test_the_first_piece_stands_also_after_a_restart(reopen: Open) -> None:
    store = reopen()
    assert store.pieces(ALICE) == {}
    first = piece("冻结 🙂", "slot:place", mentions=("slot:place#1",))
    assert store.keep_piece(ALICE, FROZEN, first) == first
    assert store.keep_piece(ALICE, FROZEN, piece("another")) == first
    assert store.keep_piece(ALICE, "chain", Piece()) == Piece()
    assert store.keep_piece(ALICE, "chain", piece("late")) == Piece()
    assert store.pieces(ALICE) == {FROZEN: first, "chain": Piece()}
    store = reopen()
    assert store.pieces(ALICE) == {FROZEN: first, "chain": Piece()}
    assert store.keep_piece(ALICE, "chain", piece("late")) == Piece()


def test_pieces_that_nobody_has_asked_for_before_are_kept_as_well(reopen: Open) -> None:
    store = reopen()
    store.keep_piece(ALICE, "chain", piece("kept"))
    on_disk(store)
    assert store.pieces(ALICE) == {"chain": piece("kept")}


def test_pieces_belong_to_one_session_of_one_agent(store: Store) -> None:
    store.keep_piece(ALICE, FROZEN, piece("alice's"))
    on_disk(store)
    for other in (ALICE.in_session("s2"), ALICES_CODER.in_session("s1"), BOB.in_session("s1")):
        assert store.pieces(other) == {}
    assert store.pieces(ALICE_ELSEWHERE.in_session("s1")) == {}


def test_many_at_once_keep_one_piece(store: Store) -> None:
    store.pieces(ALICE)
    with ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(lambda n: store.keep_piece(ALICE, FROZEN, piece(f"{n}")), range(40)))
    assert len(set(kept)) == 1
    assert store.pieces(ALICE)[FROZEN] == kept[0]


def test_what_is_forgotten_takes_its_pieces_along_in_every_session_of_the_user(reopen: Open) -> None:
    store = reopen()
    gone, stays = memory("port 5433", scope="user"), memory("tea")
    put(store, gone, stays)
    elsewhere, coder, bob = ALICE.in_session("s2"), ALICES_CODER.in_session("s3"), BOB.in_session("s1")
    for scope in (ALICE, elsewhere, coder, bob):
        store.pieces(scope)
    store.keep_piece(ALICE, FROZEN, piece("tea", stays.id))
    store.keep_piece(ALICE, "one", piece("port 5433", gone.id))
    store.keep_piece(ALICE, "two", piece("empty"))
    store.keep_piece(elsewhere, FROZEN, piece("was port 5433", stays.id, mentions=(gone.id,)))
    store.keep_piece(elsewhere, "three", piece("tea", stays.id))
    store.keep_piece(coder, "four", piece("port 5433", gone.id))
    store.keep_piece(bob, "five", piece("tea", stays.id))
    do(store, lambda tx: tx.forget(ALICE, [gone.id]))
    left = {ALICE: {FROZEN: piece("tea", stays.id), "two": piece("empty")}, elsewhere: {}, coder: {}}
    left[bob] = {"five": piece("tea", stays.id)}
    assert {scope: store.pieces(scope) for scope in left} == left
    store = reopen()
    assert {scope: store.pieces(scope) for scope in left} == left


def test_what_was_shared_and_is_forgotten_leaves_the_sessions_of_all_users(store: Store) -> None:
    shared = memory("the office closes at six", scope="shared")
    put(store, shared)
    bob = BOB.in_session("s1")
    store.pieces(bob)
    store.keep_piece(bob, FROZEN, piece("closes at six", shared.id))
    do(store, lambda tx: tx.forget(ALICE, [shared.id]))
    assert store.pieces(bob) == {}


def test_former_values_that_are_forgotten_with_their_successor_leave_the_pieces(store: Store) -> None:
    old, new = memory("lives in Bern"), memory("lives in Rome")
    put(store, old)
    do(store, lambda tx: tx.supersede(old, new, None))
    store.pieces(ALICE)
    store.keep_piece(ALICE, FROZEN, piece("lives in Bern", old.id))
    do(store, lambda tx: tx.forget(ALICE, [new.id]))
    assert store.pieces(ALICE) == {}


def test_no_text_of_a_dropped_piece_is_left_in_the_files(reopen: Open, tmp_path: Path) -> None:
    store = reopen()
    gone = memory("the code word is Zanzibar")
    put(store, gone)
    store.pieces(ALICE)
    store.keep_piece(ALICE, "chain", piece("- [fact] the code word is Zanzibar", gone.id))
    on_disk(store)
    assert b"Zanzibar" in b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    do(store, lambda tx: tx.forget(ALICE, [gone.id]))
    assert b"Zanzibar" not in b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))


def test_a_piece_that_comes_too_late_for_its_forgetting_does_not_stay(reopen: Open, tmp_path: Path) -> None:
    """The call had recalled the memory, and is forwarded while it is being forgotten."""
    store = reopen()
    gone, stays = memory("port 5433"), memory("tea")
    put(store, gone, stays)
    store.pieces(ALICE)
    do(store, lambda tx: tx.forget(ALICE, [gone.id]))
    store.keep_piece(ALICE, "items", piece("port 5433", gone.id, stays.id))
    store.keep_piece(ALICE, "mentions", piece("was port 5433", stays.id, mentions=(gone.id,)))
    store.keep_piece(ALICE, "clean", piece("tea", stays.id, "slot:a", mentions=("slot:a#1",)))
    on_disk(store)
    clean = {"clean": piece("tea", stays.id, "slot:a", mentions=("slot:a#1",))}
    assert store.pieces(ALICE) == clean
    assert reopen().pieces(ALICE) == clean


def test_unfreezing_ends_what_the_sessions_of_the_user_were_told(store: Store) -> None:
    put_away = memory("likes jazz")
    put(store, put_away)
    store.pieces(ALICE)
    store.keep_piece(ALICE, "one", piece("likes jazz", put_away.id))
    store.keep_piece(ALICE, "two", piece("other"))
    do(store, lambda tx: tx.unfreeze(ALICE, [put_away.id]))
    assert store.pieces(ALICE) == {"two": piece("other")}
    assert store.get(ALICE, put_away.id) is not None


def test_an_unfrozen_session_is_frozen_anew_and_keeps_that(reopen: Open) -> None:
    store = reopen()
    gone = memory("port 5433")
    put(store, gone)
    before = store.pieces(ALICE)
    store.keep_piece(ALICE, FROZEN, piece("port 5433", gone.id))
    do(store, lambda tx: tx.unfreeze(ALICE, [gone.id]))
    assert before == {}  # a call under way must not go on with it
    assert store.pieces(ALICE) == {}
    store.keep_piece(ALICE, FROZEN, piece("anew"))
    assert store.pieces(ALICE) == {FROZEN: piece("anew")}
    assert reopen().pieces(ALICE) == {FROZEN: piece("anew")}


def test_erased_archive_takes_its_pieces_along(store: Store) -> None:
    old = memory("likes jazz")
    put(store, old)
    store.pieces(ALICE)
    store.keep_piece(ALICE, "one", piece("likes jazz", old.id))
    do(store, lambda tx: tx.update(replace(old, state="archived"), None, change="archived"))
    assert set(store.pieces(ALICE)) == {"one"}
    do(store, lambda tx: tx.discard(ALICE, [old.id]))
    assert store.pieces(ALICE) == {}


def test_states_tell_successors_of_what_the_scope_may_read(store: Store) -> None:
    old, new, bobs = memory("lives in Bern"), memory("lives in Rome"), memory("tea", BOB)
    put(store, old, bobs)
    do(store, lambda tx: tx.supersede(old, new, None))
    states = store.states(ALICE, [old.id, new.id, bobs.id, "unknown"])
    assert states == {old.id: ("superseded", new.id, 1), new.id: ("active", None, 1)}


def test_pieces_without_a_session_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="session"):
        store.pieces(BOB)


def test_pieces_that_hold_a_slot_go_with_whatever_is_forgotten(store: Store) -> None:
    """Nobody knows which message filled a slot that stands in a prompt."""
    gone = memory("prefers window seats")
    put(store, gone)
    for scope in (ALICE, BOB.in_session("s1")):
        store.pieces(scope)
        store.keep_piece(
            scope, "slot", piece("destination: Oslo", "slot:destination", mentions=("slot:destination#1",))
        )
    store.keep_piece(ALICE, "plain", piece("tea"))
    do(store, lambda tx: tx.unfreeze(ALICE, [gone.id]))
    assert set(store.pieces(ALICE)) == {"slot", "plain"}
    do(store, lambda tx: tx.forget(ALICE, [gone.id]))
    assert set(store.pieces(ALICE)) == {"plain"}
    assert set(store.pieces(BOB.in_session("s1"))) == {"slot"}


def test_thawing_a_session_drops_what_stands_in_its_requests_and_in_no_others(reopen: Open) -> None:
    store, elsewhere = reopen(), ALICE.in_session("s2")
    for scope in (ALICE, elsewhere):
        store.pieces(scope)
        store.keep_piece(scope, FROZEN, piece("tea"))
        store.keep_piece(scope, "one", piece("jazz"))
    do(store, lambda tx: tx.thaw(ALICE))
    assert (store.pieces(ALICE), len(store.pieces(elsewhere))) == ({}, 2)
    assert reopen().pieces(ALICE) == {}


def test_the_cascade_names_messages_sessions_and_whether_others_could_read_it(store: Store) -> None:
    one = replace(memory("lives in Rome", message="m1"), session_id="s1")
    same = memory("likes Rome", message="m1", scope="user")
    other = memory("prefers tea", message="m3")
    put(store, one, same, other, memory("open till six", scope="shared", message="m4"))
    again = Source("user", session="s9", message_hash="m2")
    do(store, lambda tx: tx.witness(one, again, START))
    found: list[Cascade] = []
    do(store, lambda tx: found.append(tx.cascade(ALICE, [same.id])))
    assert found == [Cascade(frozenset({"m1", "m2"}), frozenset({("s1", ALICE.agent_id)}), shared=False)]
    shared = store.list(ALICE, Filters(scope="shared"), limit=1).items[0]
    do(store, lambda tx: found.append(tx.cascade(ALICE, [shared.id])))
    assert found[1].shared


def test_a_turn_that_came_after_a_forgotten_message_is_worked_on_without_it(store: Store) -> None:
    gone = memory("prefers Gallumphing boots", message=said("I prefer Gallumphing boots").hash)
    put(store, gone)
    opened = turn(said("and the weather?"), previous=said("I prefer Gallumphing boots"))
    store.journal_open(opened, account(opened)).result(10)
    do(store, lambda tx: tx.forget(ALICE, [gone.id]))
    assert store.journal_answer(opened.id, opened.id, Answer("sunny"), []).result(10)
    [waiting] = store.journal_waiting()
    assert (waiting.new[0].text, waiting.previous) == ("and the weather?", None)


def test_the_answer_to_a_turn_that_was_forgotten_meanwhile_finds_no_turn(store: Store) -> None:
    gone = memory("The vault opens with Kettledrumble")
    put(store, gone)
    opened = turn(said("Remember that The vault opens with Kettledrumble and more"))
    store.journal_open(opened, account(opened)).result(10)
    do(store, lambda tx: tx.forget(ALICE, [gone.id]))
    assert not store.journal_answer(opened.id, opened.id, Answer("noted"), []).result(10)


@pytest.mark.parametrize(
    "far", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)], ids=["max", "min"]
)
def test_a_far_off_date_leaves_the_record_readable(reopen: Open, far: datetime) -> None:
    store = reopen()
    one = replace(memory("tea"), valid_from=far, last_accessed_at=far)
    put(store, one)
    store = reopen()
    read = store.get(ALICE, one.id)
    assert read is not None
    assert abs(read.valid_from - far) < timedelta(days=3)
    assert store.list(ALICE, Filters(), limit=5).items == (read,)
    do(store, lambda tx: tx.forget(ALICE, [one.id]))
