"""Index files from the store's side: when they answer, when they are made anew, and what is in them no more."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.observe import answer_hash
from proxy.plugs import Filters
from proxy.scope import Scope
from proxy.store.build import build
from proxy.store.filed import Filed
from proxy.store.index_file import Built, IndexFiles
from proxy.store.marks import marks_of
from proxy.store.partition import NEVER, Entry, pack
from proxy.store.sqlite import SqliteStore
from proxy.store.usearch_file import UsearchBuilder, UsearchVectors
from proxy.types import Memory, Vector
from tests.store_samples import ALICE, BOB, DIMENSION, START, Clock, memory, put, unit

PARTITION = ALICE.partition("agent")


def open_store(path: Path, clock: Clock | None = None, exact_below: int = 20, model: str = "model") -> SqliteStore:
    return SqliteStore(
        path / "store.db",
        fingerprint=model,
        dimension=DIMENSION,
        answer_hash=answer_hash,
        exact_below=exact_below,
        clock=clock or Clock(),
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    opened = open_store(tmp_path, clock)
    yield opened
    opened.close()


def numbered(first: int, last: int, owner: Scope = ALICE) -> list[Memory]:
    return [memory(f"number {i}", owner) for i in range(first, last)]


def fill(store: SqliteStore, count: int, owner: Scope = ALICE) -> list[Memory]:
    """Records with their index, read and built."""
    records = numbered(0, count, owner)
    put(store, *records, vectors=[unit(i) for i in range(count)])
    search(store, 0, owner)
    assert store.settle(30)
    return records


def search(
    store: SqliteStore, seed: int, owner: Scope = ALICE, limit: int = 5, filters: Filters | None = None
) -> list[str]:
    found = store.search(owner, unit(seed), [], limit=limit, filters=filters).candidates
    records = store.load(owner, [one.row for one in found])
    return [records[one.row].content for one in found]


def source(store: SqliteStore) -> str:
    return store.search(ALICE, unit(0), [], limit=1).source


def nearest(seed: int, seeds: list[int], limit: int = 5) -> list[str]:
    """By plain computation."""
    scores = np.stack([unit(i) for i in seeds]).astype("<f2").astype(np.float32) @ unit(seed)
    return [f"number {seeds[i]}" for i in np.argsort(-scores)[:limit]]


def quantized(vector: Vector) -> bytes:
    """A vector as it lies in a file."""
    packed = pack(vector, DIMENSION)
    assert packed is not None
    stored = np.frombuffer(packed, "<f2").astype(np.float32)
    scaled: bytes = np.rint(stored * (127 / np.abs(stored).max())).astype(np.int8).tobytes()
    return scaled


def in_files(folder: Path, vector: Vector) -> bool:
    for one in (folder / "index").iterdir():
        with suppress(FileNotFoundError):  # the builder's, renamed or removed meanwhile
            if quantized(vector) in one.read_bytes():
                return True
    return False


# ── which path answers ─────────────────────────────────────────────────────────────────────────────────────────────
def test_large_scopes_are_answered_by_the_index_and_small_ones_exactly(store: SqliteStore) -> None:
    fill(store, 21)
    fill(store, 20, BOB)
    assert source(store) == "index"
    assert store.search(BOB, unit(1), [], limit=1).source == "exact"
    assert store.search(ALICE, None, ["number"], limit=1).source == "exact"
    stats = store.stats(ALICE)
    assert (stats["exact_searches"], stats["index_searches"]) == (2, 1)


def test_until_the_index_is_built_searches_are_exact_and_the_store_says_so(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_build = threading.Event()

    def waiting(*args: object) -> Built | None:
        assert may_build.wait(20)
        return build(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("proxy.store.vectors.build", waiting)
    put(store, *numbered(0, 50), vectors=[unit(i) for i in range(50)])
    assert (search(store, 3), source(store)) == (nearest(3, [*range(50)]), "exact")
    assert "1 large scope" in (store.index_health() or "")
    may_build.set()
    assert store.settle(30)
    assert (search(store, 3), source(store), store.index_health()) == (nearest(3, [*range(50)]), "index", None)


def test_the_index_answers_at_once_after_a_restart(store: SqliteStore, tmp_path: Path) -> None:
    fill(store, 100)
    before = (tmp_path / "index" / f"{PARTITION}.usearch").stat()
    store.close()
    again = open_store(tmp_path)
    assert source(again) == "index"
    assert search(again, 7) == nearest(7, [*range(100)])
    assert again.settle(30)
    assert (tmp_path / "index" / f"{PARTITION}.usearch").stat() == before
    again.close()


def test_files_are_private_and_nothing_else_lies_in_the_folder(store: SqliteStore, tmp_path: Path) -> None:
    fill(store, 100)
    found = {one.name: one.stat().st_mode & 0o777 for one in (tmp_path / "index").iterdir()}
    assert found == {f"{PARTITION}.usearch": 0o600, f"{PARTITION}.json": 0o600}
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o700


def test_a_large_file_finds_almost_all_of_the_nearest(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    count = 3_000
    fill(store, count)
    assert source(store) == "index"
    pairs = [(search(store, seed, limit=10), nearest(seed, [*range(count)], 10)) for seed in range(5_000, 5_040)]
    store.close()
    assert sum(len({*found} & {*expected}) for found, expected in pairs) >= 0.98 * 400


# ── fresh, changed and removed records ─────────────────────────────────────────────────────────────────────────────
def test_fresh_changed_and_removed_records_count_at_once_without_a_new_file(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)
    built = (tmp_path / "index" / f"{PARTITION}.usearch").stat().st_mtime_ns
    put(store, *numbered(100, 110), vectors=[unit(i) for i in range(100, 110)])
    changed = replace(records[5], content="number 500", version=2)
    store.transact(lambda tx: tx.update(changed, unit(500), change="updated")).result(10)
    archived = replace(records[6], state="archived")
    store.transact(lambda tx: tx.update(archived, None, change="archived")).result(10)
    left = [i for i in range(110) if i not in (5, 6)] + [500]
    for seed in (5, 6, 105, 500):
        assert search(store, seed) == nearest(seed, left)
    store.transact(lambda tx: tx.update(records[6], None, change="restored")).result(10)
    assert search(store, 6)[0] == "number 6"
    assert source(store) == "index"
    assert (tmp_path / "index" / f"{PARTITION}.usearch").stat().st_mtime_ns == built


def test_changes_of_the_last_run_are_seen_beside_its_file(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)
    changed = replace(records[5], content="number 500", version=2)
    store.transact(lambda tx: tx.update(changed, unit(500), change="updated")).result(10)
    archived = replace(records[6], state="archived")
    store.transact(lambda tx: tx.update(archived, None, change="archived")).result(10)
    store.close()
    again = open_store(tmp_path)
    left = [i for i in range(100) if i not in (5, 6)] + [500]
    assert source(again) == "index"
    assert [search(again, seed) for seed in (5, 6, 500)] == [nearest(seed, left) for seed in (5, 6, 500)]
    again.close()


def test_a_file_older_than_the_store_hides_nothing(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)
    kept = {one: one.read_bytes() for one in (tmp_path / "index").iterdir()}
    for i in range(60):
        new = replace(records[i], content=f"number {1000 + i}", version=2)
        store.transact(lambda tx, new=new, i=i: tx.update(new, unit(1000 + i), change="updated")).result(10)  # type: ignore[misc]
    assert store.settle(30)
    store.close()
    for path, content in kept.items():
        path.write_bytes(content)
    again = open_store(tmp_path)
    left = [*range(60, 100), *range(1000, 1060)]
    assert [search(again, seed) for seed in (3, 70, 1005)] == [nearest(seed, left) for seed in (3, 70, 1005)]
    assert again.settle(30)
    assert [search(again, seed) for seed in (3, 70, 1005)] == [nearest(seed, left) for seed in (3, 70, 1005)]
    again.close()


def test_a_file_is_made_anew_after_thirty_percent_of_churn(store: SqliteStore, tmp_path: Path) -> None:
    fill(store, 100)
    path = tmp_path / "index" / f"{PARTITION}.usearch"
    first = path.stat().st_mtime_ns
    put(store, *numbered(100, 130), vectors=[unit(i) for i in range(100, 130)])
    assert store.settle(30)
    assert path.stat().st_mtime_ns == first
    put(store, *numbered(130, 131), vectors=[unit(130)])
    assert store.settle(30)
    assert path.stat().st_mtime_ns != first
    assert search(store, 130) == nearest(130, [*range(131)])


def test_a_partition_that_has_become_small_has_no_file(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 30)
    for one in records[:15]:
        away = replace(one, state="archived")
        store.transact(lambda tx, away=away: tx.update(away, None, change="archived")).result(10)  # type: ignore[misc]
    assert store.settle(30)
    assert [*(tmp_path / "index").iterdir()] == []
    assert (search(store, 20), source(store)) == (nearest(20, [*range(15, 30)]), "exact")


def test_filters_and_expiry_narrow_before_the_limit_counts(store: SqliteStore, clock: Clock) -> None:
    put(
        store,
        *(
            memory(
                f"number {i}",
                kind="preference" if i % 40 == 0 else "fact",
                expires_at=START + timedelta(seconds=60) if i % 2 else None,
            )
            for i in range(400)
        ),
        vectors=[unit(i) for i in range(400)],
    )
    search(store, 0)
    assert store.settle(30)
    assert source(store) == "index"
    assert search(store, 3, filters=Filters(kind="preference")) == nearest(3, [*range(0, 400, 40)])
    assert search(store, 3) == nearest(3, [*range(400)])
    clock.forward(seconds=60)
    assert search(store, 3) == nearest(3, [*range(0, 400, 2)])


def test_words_carry_their_cosine_wherever_their_vector_lies(store: SqliteStore) -> None:
    fill(store, 100)
    put(store, *numbered(100, 102), vectors=[unit(100), None])
    found = store.search(ALICE, unit(3), ["77", "100", "101"], limit=3).candidates
    records = store.load(ALICE, [one.row for one in found])
    dense = {records[one.row].content: one.dense for one in found if one.lexical}
    assert dense["number 77"] == pytest.approx(float(unit(3) @ unit(77)), abs=1e-3)
    assert dense["number 100"] == pytest.approx(float(unit(3) @ unit(100)), abs=1e-3)
    assert dense["number 101"] is None


# ── forgetting ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_forgotten_vector_is_in_no_file_once_the_promise_is_kept(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)
    assert in_files(tmp_path, unit(5))
    store.transact(lambda tx: tx.forget(ALICE, [records[5].id])).result(10)
    assert not in_files(tmp_path, unit(5))
    left = [i for i in range(100) if i != 5]
    assert (search(store, 5), source(store)) == (nearest(5, left), "index")
    assert store.settle(30)
    assert not in_files(tmp_path, unit(5))
    assert in_files(tmp_path, unit(6))
    assert (search(store, 5), source(store)) == (nearest(5, left), "index")


def test_the_file_goes_before_the_record_so_that_no_crash_leaves_it(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)

    def work(tx: object) -> bool:
        tx.forget(ALICE, [records[5].id])  # type: ignore[attr-defined]
        return in_files(tmp_path, unit(5))

    assert store.transact(work).result(10) is False


def test_a_vector_forgotten_while_its_file_is_built_does_not_come_back(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, may_go_on = threading.Event(), threading.Event()

    def slow(*args: object) -> Built | None:
        built = build(*args)  # type: ignore[arg-type]
        read.set()
        assert may_go_on.wait(20)
        return built

    monkeypatch.setattr("proxy.store.vectors.build", slow)
    records = numbered(0, 100)
    put(store, *records, vectors=[unit(i) for i in range(100)])
    search(store, 0)
    assert read.wait(20)
    store.transact(lambda tx: tx.forget(ALICE, [records[5].id])).result(10)
    may_go_on.set()
    assert store.settle(30)
    assert source(store) == "index"
    assert not in_files(tmp_path, unit(5))
    assert in_files(tmp_path, unit(6))


def test_a_record_that_leaves_a_partition_leaves_its_file(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)
    moved = replace(records[5], scope="user")
    store.transact(lambda tx: tx.update(moved, None, change="updated")).result(10)
    assert not in_files(tmp_path, unit(5))
    assert search(store, 5) == nearest(5, [*range(100)])


def test_what_was_forgotten_is_gone_after_a_restart_too(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)
    store.transact(lambda tx: tx.forget(ALICE, [records[5].id])).result(10)
    store.close()
    again = open_store(tmp_path)
    search(again, 5)
    assert again.settle(30)
    assert not in_files(tmp_path, unit(5))
    assert search(again, 5) == nearest(5, [i for i in range(100) if i != 5])
    again.close()


# ── made anew ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_reindex_makes_every_file_anew(store: SqliteStore, tmp_path: Path) -> None:
    fill(store, 100)
    fill(store, 50, BOB)
    before = {one.name: one.stat().st_mtime_ns for one in (tmp_path / "index").iterdir()}
    assert store.reindex().result(10) == 150
    assert store.settle(30)
    after = {one.name: one.stat().st_mtime_ns for one in (tmp_path / "index").iterdir()}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert (search(store, 3), source(store)) == (nearest(3, [*range(100)]), "index")


def test_another_model_does_not_use_the_file(store: SqliteStore, tmp_path: Path) -> None:
    records = fill(store, 100)
    store.close()
    other = open_store(tmp_path, model="other")
    assert search(other, 3) == []
    for i, one in enumerate(records):
        other.transact(lambda tx, i=i, one=one: tx.update(one, unit(i + 50), change="embedded")).result(10)  # type: ignore[misc]
    assert other.settle(30)
    assert source(other) == "index"
    assert search(other, 53)[0] == "number 3"
    other.close()


REBUILDS = """
import sys
from proxy import log
log.configure("error")
from pathlib import Path
from tests.test_index import memory, open_store, put, search, unit
store = open_store(Path(sys.argv[1]))
search(store, 0)
for i in range(int(sys.argv[2]), 100_000):
    put(store, memory(f"number {i}"), vectors=[unit(i)])
    print(i, flush=True)
"""


def test_killing_the_process_while_files_are_written_leaves_a_whole_one_or_none(tmp_path: Path) -> None:
    next_number = 0
    for attempt in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", REBUILDS, str(tmp_path), str(next_number)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(60 + 17 * attempt):
            next_number = int(process.stdout.readline()) + 1
        process.send_signal(signal.SIGKILL)
        process.stdout.read()
        process.stdout.close()
        process.wait(10)
        store = open_store(tmp_path)
        count = store.stats(ALICE)["total"]
        assert count >= next_number
        assert search(store, 3) == nearest(3, [*range(count)])
        assert store.settle(30)
        assert (search(store, count - 1), source(store)) == (nearest(count - 1, [*range(count)]), "index")
        assert not [one.name for one in (tmp_path / "index").iterdir() if one.name.startswith(".")]
        next_number = count
        store.close()


def test_closing_ends_a_long_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, told = threading.Event(), threading.Event()

    def endless(contents: object, partition: str, dimension: int, go_on: Callable[[], bool]) -> None:
        begun.set()
        while go_on():
            told.wait(0.01)

    monkeypatch.setattr("proxy.store.vectors.build", endless)
    store = open_store(tmp_path)
    put(store, *numbered(0, 50), vectors=[unit(i) for i in range(50)])
    search(store, 0)
    assert begun.wait(20)
    store.close()
    assert not (tmp_path / "index").exists()


def test_a_build_that_failed_is_left_alone_for_a_while_and_then_tried_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def failing(contents: object, partition: str, *more: object) -> Built | None:
        attempts.append(partition)
        if len(attempts) == 1:
            raise OSError(28, "No space left on device")
        return build(contents, partition, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("proxy.store.vectors.build", failing)
    put(store, *numbered(0, 50), vectors=[unit(i) for i in range(50)])
    search(store, 0)
    assert store.settle(20)
    assert "No space left" in (store.index_health() or "")
    assert search(store, 3) == nearest(3, [*range(50)])
    assert store.settle(20)
    assert len(attempts) == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert search(store, 3) == nearest(3, [*range(50)])
    monkeypatch.undo()
    assert store.settle(20)
    assert (source(store), store.index_health()) == ("index", None)


# ── the parts ──────────────────────────────────────────────────────────────────────────────────────────────────────
def built(seeds: list[int | None]) -> Built:
    file = UsearchBuilder(DIMENSION)
    packed = [None if seed is None else pack(unit(seed), DIMENSION) for seed in seeds]
    marks = marks_of(packed, DIMENSION)
    at = np.flatnonzero(marks)
    file.add(at, np.stack([unit(seed) for seed in seeds if seed is not None]))
    return Built(file.dump(), np.arange(len(seeds), dtype=np.int64) * 3 + 1, marks)


def test_a_published_file_comes_back_as_it_was(tmp_path: Path) -> None:
    files = IndexFiles(tmp_path / "index", "model", DIMENSION)
    made = built([1, None, 2, 3])
    assert files.open("p") is None
    assert files.publish("p", made, lambda: True)
    opened = files.open("p")
    assert opened is not None
    assert opened.rows.tolist() == made.rows.tolist()
    assert opened.marks.tolist() == made.marks.tolist()
    likeness = opened.vectors.likeness([unit(2)])[0]
    assert (int(likeness.argmax()), np.isneginf(likeness).tolist()) == (2, [False, True, False, False])


def test_a_file_that_is_wanted_no_more_is_not_published(tmp_path: Path) -> None:
    files = IndexFiles(tmp_path / "index", "model", DIMENSION)
    assert files.publish("p", built([1]), lambda: True)
    assert not files.publish("p", built([2, 3]), lambda: False)
    opened = files.open("p")
    assert opened is not None
    assert len(opened.rows) == 1
    assert len([*(tmp_path / "index").iterdir()]) == 2


def test_an_open_file_may_be_dropped_and_replaced(tmp_path: Path) -> None:
    files = IndexFiles(tmp_path / "index", "model", DIMENSION)
    files.publish("p", built([1, 2, 3]), lambda: True)
    opened = files.open("p")
    assert opened is not None
    files.publish("p", built([7, 8]), lambda: True)
    files.drop("p")
    assert not files.present("p")
    assert int(opened.vectors.likeness([unit(2)])[0].argmax()) == 1


@pytest.mark.parametrize(
    ("dimension", "count", "says"), [(DIMENSION + 1, 3, "dimensions"), (DIMENSION, 4, "count_present")]
)
def test_a_file_of_another_kind_is_refused(dimension: int, count: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        UsearchVectors(built([1, 2, 3]).usearch, dimension, np.ones(count, np.bool_))


@pytest.mark.parametrize("questions", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dimension", [16, 100, 256])
def test_a_file_tells_how_like_every_vector_is(questions: int, dimension: int) -> None:
    drawn = np.random.default_rng(questions).standard_normal((500 + questions, dimension)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    asked, matrix = drawn[:questions], drawn[questions:]
    embedded = np.arange(len(matrix)) % 7 != 3
    file = UsearchBuilder(dimension)
    at = np.flatnonzero(embedded)
    file.add(at[:300], matrix[at[:300]])
    file.add(at[300:], matrix[at[300:]])
    likeness = np.stack(UsearchVectors(file.dump(), dimension, embedded).likeness([*asked]))
    assert likeness.shape == (questions, len(matrix))
    assert np.isneginf(likeness[:, ~embedded]).all()
    cosines = (asked @ matrix.T)[:, embedded]
    factors = np.abs(127.0 / np.abs(asked).max(axis=1, keepdims=True))
    assert np.abs(likeness[:, embedded] / factors - cosines).max() < 0.02


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove"]),
        st.integers(1, 40),
        st.one_of(st.none(), st.integers(0, 99)),
        st.integers(1, 5),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(
    filed=st.lists(st.one_of(st.none(), st.integers(0, 99)), min_size=1, max_size=12),
    start=st.dictionaries(st.integers(1, 40), st.one_of(st.none(), st.integers(0, 99))),
    steps=steps,
)
def test_any_file_and_any_order_of_changes_give_what_a_dictionary_gives(
    tmp_path_factory: pytest.TempPathFactory,
    filed: list[int | None],
    start: dict[int, int | None],
    steps: list[tuple[str, int, int | None, int]],
) -> None:
    files = IndexFiles(tmp_path_factory.mktemp("filed"), "model", DIMENSION)
    files.publish("p", built([*filed, 1]), lambda: True)
    file = files.open("p")
    assert file is not None
    expected = {row: entry(row, seed) for row, seed in start.items()}
    stored = [(one.row, one.term_count, None, one.vector, one.thread) for one in expected.values()]
    held = Filed(file, [stored[::2], stored[1::2]], DIMENSION)
    assert alive(held, expected) == expected
    for what, row, seed, term_count in steps:
        if what == "put":
            expected[row] = entry(row, seed, term_count)
            held.put(expected[row])
        else:
            expected.pop(row, None)
            held.remove(row)
        assert alive(held, expected) == expected
        assert sum(part.count for part in held.parts) == len(expected)
        assert held.vectors == sum(one.vector is not None for one in expected.values())
        assert sum(part.terms for part in held.parts) == sum(one.term_count for one in expected.values())


def entry(row: int, seed: int | None, term_count: int = 3) -> Entry:
    return Entry(row, term_count, NEVER, None if seed is None else pack(unit(seed), DIMENSION))


def alive(held: Filed, expected: dict[int, Entry]) -> dict[int, Entry]:
    """What a partition holds; a vector in the file is the expected one if it has its mark."""
    found: dict[int, Entry] = {}
    base, tail = held.parts
    marks: Callable[[bytes | None], int] = lambda vector: int(marks_of([vector], DIMENSION)[0])  # noqa: E731
    for i in np.flatnonzero(base.alive):
        row = int(base.rows[i])
        wanted = expected[row].vector if row in expected else None
        vector = wanted if held.file.marks[i] == marks(wanted) else b"another"
        found[row] = Entry(row, int(base.term_counts[i]), float(base.expires_at[i]), vector)
        assert base.embedded[i] == (vector is not None)
    assert tail.matrix is not None
    for i in np.flatnonzero(tail.alive):
        row = int(tail.rows[i])
        assert row not in found
        vector = tail.matrix[i].astype("<f2").tobytes() if tail.embedded[i] else None
        found[row] = Entry(row, int(tail.term_counts[i]), float(tail.expires_at[i]), vector)
    return found
