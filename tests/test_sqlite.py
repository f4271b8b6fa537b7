"""What SQLite's file must stand: damage, locks, kill -9, erasure down to its bytes, readers of every kind."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from proxy.errors import StoreError, StoreUnavailable
from proxy.observe import answer_hash
from proxy.plugs import Filters, Transaction
from proxy.scope import Scope
from proxy.store import records
from proxy.store.lexical import query_terms, terms, token
from proxy.store.sqlite import SqliteStore
from proxy.traits import Traits
from proxy.types import Answer, Memory, State, Visibility
from tests.running import eventually
from tests.store_samples import (
    ALICE,
    DIMENSION,
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


def open_store(path: Path, kind: type[SqliteStore] = SqliteStore, exact_below: int = 2000) -> SqliteStore:
    return kind(
        path,
        fingerprint="model",
        dimension=DIMENSION,
        answer_hash=answer_hash,
        exact_below=exact_below,
        clock=Clock(),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = open_store(path)
    yield opened
    opened.close()


def bytes_of(path: Path) -> bytes:
    """All that lies on disk: the database and its companions."""
    return b"".join(one.read_bytes() for one in sorted(path.parent.iterdir()))


# ── the file ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_new_store_is_well_and_private(store: SqliteStore, path: Path) -> None:
    assert store.health() is None
    assert {one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {0o600}


def test_the_file_is_kept_the_safe_way(store: SqliteStore, path: Path) -> None:
    def pragmas(tx: Transaction) -> list[object]:
        connection: sqlite3.Connection = tx._unit.connection  # type: ignore[attr-defined]
        names = ("journal_mode", "synchronous", "secure_delete")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert store.transact(pragmas).result(10) == ["wal", 2, 1]


def test_the_view_has_the_columns_that_records_expects(store: SqliteStore, path: Path) -> None:
    connection = sqlite3.connect(path)
    cursor = connection.execute("SELECT * FROM records")
    assert tuple(column[0] for column in cursor.description) == records.COLUMNS
    connection.close()


def test_readers_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(StoreUnavailable):
        store._readers.all("DELETE FROM memories", {})


def test_threads_that_end_leave_no_connection(store: SqliteStore) -> None:
    for _ in range(20):
        thread = threading.Thread(target=lambda: store.get(ALICE, "x"))
        thread.start()
        thread.join(10)
    assert len(store._readers._open) <= 1


# ── damage ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def filled(path: Path) -> None:
    store = open_store(path)
    put(store, *(memory(f"tea number {i} " + "x" * 300) for i in range(200)), vectors=[unit(i) for i in range(200)])
    store.close()


def overwrite_all(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def overwrite_middle(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 8192))


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def foreign(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()


def from_the_future(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (overwrite_all, "sidemirror restore"),
        (overwrite_middle, "sidemirror restore"),
        (cut_short, "sidemirror restore"),
        (foreign, "another program"),
        (from_the_future, "schema 99"),
    ],
)
def test_a_database_that_cannot_be_used_stands_and_says_so(
    path: Path, damage: Callable[[Path], None], says: str
) -> None:
    filled(path)
    damage(path)
    before = path.read_bytes()
    store = open_store(path)
    try:
        health = store.health()
        assert health is not None
        assert says in health
        assert str(path) in health
        opened = turn(said("hi"))
        for call in (
            lambda: store.get(ALICE, "x"),
            lambda: store.list(ALICE, Filters(), limit=5),
            lambda: store.search(ALICE, unit(1), ["tea"], limit=5),
            lambda: store.session_of(ALICE, "x"),
            lambda: store.transact(lambda tx: None).result(10),
            lambda: store.journal_open(opened, account(opened)).result(10),
        ):
            with pytest.raises(StoreUnavailable, match=says):
                call()
    finally:
        store.close()
    assert path.read_bytes() == before


def test_damage_that_appears_later_is_noticed(path: Path) -> None:
    filled(path)
    store = open_store(path)
    try:
        assert store.health() is None
        overwrite_middle(path)
        with pytest.raises(StoreUnavailable):
            store.list(ALICE, Filters(text="tea"), limit=500)
        assert "damaged" in (store.health() or "")
        with pytest.raises(StoreUnavailable):
            put(store, memory())
    finally:
        store.close()


def test_a_lock_passes(store: SqliteStore, path: Path) -> None:
    store.transact(lambda tx: tx._unit.connection.execute("PRAGMA busy_timeout = 20")).result(10)  # type: ignore[attr-defined]
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="lock"):
        put(store, memory("lost"))
    assert "lock" in (store.health() or "")
    assert store.list(ALICE, Filters(), limit=5).items == ()
    other.execute("ROLLBACK")
    other.close()
    put(store, memory("kept"))
    assert store.health() is None


def test_a_directory_that_cannot_be_made_is_told_and_tried_again(tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where the directory should be")
    store = open_store(blocked / "store.db")
    try:
        assert "store.db" in (store.health() or "")
        with pytest.raises(StoreUnavailable):
            put(store, memory())
        blocked.unlink()
        put(store, memory())
        assert len(store.list(ALICE, Filters(), limit=5).items) == 1
        assert store.health() is None
    finally:
        store.close()


def test_other_lexical_rules_are_noticed_and_the_words_indexed_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    monkeypatch.setattr("proxy.store.lexical.VERSION", "other")
    monkeypatch.setattr("proxy.store.lexical.terms", lambda text: ["t" + text.split()[2]])
    store = open_store(path)
    try:
        assert len(store.search(ALICE, None, ["t7"], limit=5).candidates) == 1
        assert store.search(ALICE, None, ["tea"], limit=5).candidates == []
        assert store.reindex().result(10) == 200
        assert len(store.search(ALICE, None, ["t7"], limit=5).candidates) == 1
    finally:
        store.close()


def test_other_traits_are_noticed_and_every_record_looked_at_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    others = Traits("bob", asks=True, times=False, standing=True, preference=False, changed=False)
    monkeypatch.setattr("proxy.traits.VERSION", "other")
    monkeypatch.setattr("proxy.glance.traits", lambda text: others)
    store = open_store(path)
    try:
        found = store.search(ALICE, None, ["tea"], limit=5)
        glances = store.glances(ALICE, found.rows.tolist())
        assert (glances.speakers, glances.of("asks").tolist()) == (("bob",) * 5, [1.0] * 5)
        assert (glances.of("standing").tolist(), glances.of("times").tolist()) == ([1.0] * 5, [0.0] * 5)
    finally:
        store.close()


# ── erasure ────────────────────────────────────────────────────────────────────────────────────────────────────────
SECRET = "zanzibarquokka"


def traces(path: Path) -> list[str]:
    held = bytes_of(path)
    found = [SECRET] if SECRET.encode() in held else []
    for term in terms(SECRET):
        if token(ALICE.partition("agent"), term).encode()[25:] in held:
            found.append(term)
    return found


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_forgotten_text_is_in_no_byte_of_the_files(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("erase") / "store.db"
    store = open_store(path)
    try:
        before, after = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))
        size = data.draw(st.integers(0, 900))
        one = memory(f"my password is {SECRET} {'y ' * size}", message=said(f"it is {SECRET}").hash)
        put(store, *(memory(f"note {i} " + "x " * (size // 2)) for i in range(before)))
        put(store, one, vectors=[unit(1)])
        opened = turn(said(f"it is {SECRET}"))
        store.journal_open(opened, account(opened)).result(10)
        store.journal_answer(opened.id, opened.id, Answer(f"I noted {SECRET}"), [(ALICE, "link")]).result(10)
        for i in range(after):
            put(store, memory(f"more {i} " + "z " * (i * 13 % 300)), vectors=[unit(i)])
        changed = replace(one, content=f"the {SECRET} again", version=2)
        store.transact(lambda tx: tx.update(changed, None, change="updated")).result(10)
        assert traces(path)
        store.transact(lambda tx: tx.forget(ALICE, [one.id])).result(10)
        assert traces(path) == []
    finally:
        store.close()


def test_what_another_program_still_reads_leaves_the_files_once_it_has_read_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.store.writer.IDLE_S", 0.02)
    store, one = open_store(path), memory(f"it is {SECRET}")
    try:
        put(store, one, memory("other"))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM memories").fetchone() == (2,)
            store.transact(lambda tx: tx.forget(ALICE, [one.id])).result(10)
            assert store.get(ALICE, one.id) is None
            assert traces(path)
            put(store, memory("writing goes on"))
        eventually(lambda: traces(path) == [])
    finally:
        store.close()


def test_a_done_turn_leaves_no_text(store: SqliteStore, path: Path) -> None:
    opened = turn(said(f"it is {SECRET}"))
    store.journal_open(opened, account(opened)).result(10)
    store.journal_answer(opened.id, opened.id, Answer("noted"), []).result(10)
    store.transact(lambda tx: tx.journal_done(opened.id, "done", [])).result(10)
    store.close()
    assert traces(path) == []


def test_an_interrupted_erasure_is_finished_at_the_next_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(connection: sqlite3.Connection, again: bool) -> bool:
        raise sqlite3.OperationalError("on purpose")

    monkeypatch.setattr("proxy.store.forget.scrub", full)
    store = open_store(path)
    one = memory(f"it is {SECRET}")
    put(store, one, memory("other"))
    store.transact(lambda tx: tx.forget(ALICE, [one.id])).result(10)
    assert store.get(ALICE, one.id) is None
    store.close()
    monkeypatch.undo()
    open_store(path).close()
    assert traces(path) == []


# ── kill -9 ────────────────────────────────────────────────────────────────────────────────────────────────────────
WRITES = """
import sys
from pathlib import Path
from tests.store_samples import memory, put, said, turn, unit, account, ALICE
from tests.test_sqlite import open_store
store = open_store(Path(sys.argv[1]))
for i in range(100_000):
    one = memory(f"number {i} of {sys.argv[2]}")
    put(store, one, vectors=[unit(i)])
    opened = turn(said(one.content))
    store.journal_open(opened, account(opened)).result()
    print(one.id, opened.id, flush=True)
"""


def test_killing_the_process_loses_no_resolved_write(path: Path) -> None:
    promised: list[list[str]] = []
    for attempt in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES, str(path), str(attempt)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(15 + 7 * attempt):
            promised.append(process.stdout.readline().split())
        process.send_signal(signal.SIGKILL)
        promised += [ids for line in process.stdout.read().splitlines() if len(ids := line.split()) == 2]
        process.stdout.close()
        process.wait(10)
    store = open_store(path)
    try:
        assert store.health() is None
        assert all(store.get(ALICE, memory_id) for memory_id, _ in promised)
        waiting = {one.id for one in store.journal_waiting()}
        assert {turn_id for _, turn_id in promised} <= waiting
        assert len(store.search(ALICE, None, query_terms("number"), limit=10_000).candidates) >= len(promised)
    finally:
        store.close()


# ── threads ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_readers_see_each_write_once_its_future_resolves(store: SqliteStore) -> None:
    failures: list[str] = []

    def work(name: str) -> None:
        for i in range(25):
            one = memory(f"{name} {i}")
            put(store, one, vectors=[unit(i)])
            hits = store.search(ALICE, unit(i), query_terms(f"{name} {i}"), limit=500).candidates
            if one not in store.load(ALICE, [hit.row for hit in hits]).values():
                failures.append(one.content)

    threads = [threading.Thread(target=work, args=(f"worker{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


# ── against a plain model ──────────────────────────────────────────────────────────────────────────────────────────
SCOPES = [Scope(tenant, user, agent) for tenant in ("t", "u") for user in ("a", "b") for agent in ("x", "y")]
WORDS = ("tea", "coffee", "北京", "上海", "--port=1")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
visibilities = st.sampled_from(["agent", "user", "shared"])


class AgainstModel(RuleBasedStateMachine):
    """Random changes by random owners: every read gives each scope what a plain scan of a dictionary gives it."""

    directory: pytest.TempPathFactory
    kind: type[SqliteStore]

    def __init__(self) -> None:
        super().__init__()
        self.path = self.directory.mktemp("model") / "store.db"
        self.open()
        self.model: dict[str, Memory] = {}
        self.seeds: dict[str, int | None] = {}
        self.count = 0

    def open(self) -> None:
        exact_below = 0 if issubclass(self.kind, IndexedStore) else 2000
        self.store = open_store(self.path, self.kind, exact_below)

    def teardown(self) -> None:
        self.store.close()

    def pick(self, number: int) -> Memory | None:
        return list(self.model.values())[number % len(self.model)] if self.model else None

    @rule(
        owner=st.sampled_from(SCOPES), text=texts, visibility=visibilities, seed=st.one_of(st.none(), st.integers(0, 9))
    )
    def insert(self, owner: Scope, text: str, visibility: Visibility, seed: int | None) -> None:
        self.count += 1
        one = memory(f"{text} n{self.count}", owner, scope=visibility, memory_type="episodic", key="k", message="m")
        one = replace(one, source=replace(one.source, message_hash=f"m{self.count}"))
        put(self.store, one, vectors=[None if seed is None else unit(seed)])
        self.model[one.id], self.seeds[one.id] = one, seed

    @rule(number=st.integers(0, 99), text=texts, visibility=visibilities, state=st.sampled_from(["active", "archived"]))
    def update(self, number: int, text: str, visibility: Visibility, state: State) -> None:
        if one := self.pick(number):
            self.count += 1
            new = replace(one, content=f"{text} n{self.count}", scope=visibility, state=state, version=one.version + 1)
            self.store.transact(
                lambda tx: tx.update(new, None, change="updated", expected_version=one.version)
            ).result()
            self.model[one.id], self.seeds[one.id] = new, None

    @rule(most=st.integers(1, 3), seed=st.one_of(st.none(), st.integers(0, 9)))
    def embed(self, most: int, seed: int | None) -> None:
        vector = None if seed is None else unit(seed)
        waiting = self.store.unembedded(most)
        assert self.store.embed([(one, vector) for one in waiting]).result() == len(waiting)
        said = {one.content for one in waiting}
        self.seeds |= {one.id: seed for one in self.model.values() if one.content in said}

    @rule(number=st.integers(0, 99), text=texts)
    def supersede(self, number: int, text: str) -> None:
        one = self.pick(number)
        if one is None or one.state == "superseded" or one.superseded_by is not None:
            return
        self.count += 1
        new = replace(memory(f"{text} n{self.count}", records.owner_of(one)), memory_type="episodic", key="k")
        self.store.transact(lambda tx: tx.supersede(one, new, unit(3))).result()
        self.model[one.id] = replace(one, state="superseded", superseded_by=new.id)
        self.model[new.id], self.seeds[new.id] = replace(new, supersedes=one.id), 3

    @rule(number=st.integers(0, 99))
    def forget(self, number: int) -> None:
        if one := self.pick(number):
            self.store.transact(lambda tx: tx.forget(records.owner_of(one), [one.id])).result()
            if one.superseded_by is not None:
                newer = self.model[one.superseded_by]
                self.model[newer.id] = replace(newer, supersedes=None)
            gone: str | None = one.id
            while gone is not None:
                gone = self.model.pop(gone).supersedes

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    @invariant()
    def every_scope_reads_what_is_its_own(self) -> None:
        for scope in SCOPES:
            readable = {one.id: one for one in self.model.values() if records.partition_of(one) in scope.readable}
            active = {id_ for id_, one in readable.items() if one.state == "active"}
            assert {one.id for one in self.store.list(scope, Filters(state=None), limit=500).items} == set(readable)
            assert {one.id for one in self.store.recent(scope, "episodic", 500)} == active
            assert {one.id for one in self.store.by_key(scope, "k")} == active
            assert self.store.stats(scope)["total"] == len(readable)
            self._check_search(scope, {id_: readable[id_] for id_ in active})
        for one in self.model.values():
            for scope in SCOPES:
                expected = one if records.partition_of(one) in scope.readable else None
                assert self.store.get(scope, one.id) == expected
                assert bool(self.store.history(scope, one.id)) == (expected is not None)

    def _check_search(self, scope: Scope, active: dict[str, Memory]) -> None:
        for word in WORDS[::2]:
            asked = query_terms(word)
            hits = self.store.search(scope, unit(1), asked, limit=500).candidates
            loaded = self.store.load(scope, [hit.row for hit in hits])
            assert len(loaded) == len(hits)
            worded = {loaded[hit.row].id for hit in hits if hit.lexical > 0}
            dense = {loaded[hit.row].id: hit.dense for hit in hits if hit.dense is not None}
            assert worded == {id_ for id_, one in active.items() if set(asked) & set(terms(one.content))}
            assert dense.keys() == {id_ for id_ in active if self.seeds[id_] is not None}
            for id_, cosine in dense.items():
                assert cosine == pytest.approx(float(unit(1) @ unit(self.seeds[id_] or 0)), abs=2e-3)


@pytest.mark.parametrize("kind", [SqliteStore, IndexedStore, OldIndexStore])
def test_random_changes_keep_records_words_and_vectors_together(
    tmp_path_factory: pytest.TempPathFactory, kind: type[SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is not SqliteStore:
        monkeypatch.setattr("proxy.store.term_maps.MOST_RECORDS", 0)
        monkeypatch.setattr("proxy.store.postings._MOST_CHANGES", 5)
    AgainstModel.directory, AgainstModel.kind = tmp_path_factory, kind
    run_state_machine_as_test(AgainstModel, settings=settings(max_examples=12, stateful_step_count=20, deadline=None))


def test_a_bound_value_sqlite_cannot_hold_is_the_callers_error(store: SqliteStore) -> None:
    with pytest.raises(StoreError):
        put(store, memory(key=chr(0xD83D)))
    with pytest.raises(StoreError):
        store.by_key(ALICE, chr(0xD83D))
    assert store.health() is None
