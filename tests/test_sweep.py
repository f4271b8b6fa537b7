"""The runner: whole sweeps beside running writes, reports without text, one user's trouble, and the end in between."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from proxy.errors import StoreError, StoreUnavailable
from proxy.plugs import Filters, Transaction
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.sweep import STEPS, Sweep
from proxy.types import Memory
from tests.store_samples import ALICE, BOB, memory, put
from tests.sweep_samples import EMBEDDER, NOW, ZONE, active, ago, opened, policies, remember, run, surveyed, swept
from tests.test_reflect import DEPLOYED_ZH, FRIDAY
from tests.test_sweep_compress import TRIPS

T = TypeVar("T")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with opened(tmp_path) as one:
        yield one


def lived_in(store: SqliteStore, owner: Scope = ALICE) -> None:
    """Something to do for every step."""
    remember(store, "an old offer", owner, expires_at=ago(days=1))
    remember(store, "long unused", owner, memory_type="episodic", at=ago(days=200))
    remember(store, "long away", owner, state="archived", at=ago(days=400))
    for place in range(2):
        remember(store, "用户住在北京", owner, session=f"d{place}")
    for place, text in enumerate(TRIPS):
        remember(store, text, owner, memory_type="episodic", at=ago(days=60 - place))
    for place, text in enumerate(DEPLOYED_ZH):
        remember(store, text, owner, memory_type="episodic", at=FRIDAY + timedelta(days=7 * place), session=f"s{place}")
    for place in range(3):
        remember(store, "用户每天早上喝黑咖啡", owner, memory_type="episodic", session=f"c{place}", at=ago(hours=place))
    for place in range(9):
        remember(store, f"note {place}", owner, kind="note", at=ago(days=place))


RULES = policies(delete_archived_after="90d", kinds={"note": {"max_items": 5}})


def test_every_step_does_its_part_and_a_second_sweep_changes_nothing(store: SqliteStore) -> None:
    lived_in(store)
    lived_in(store, BOB)
    report = run(store, *STEPS, rules=RULES)
    assert [step.step for step in report.steps] == list(STEPS)
    assert report.owners == 2
    assert report.complete
    assert all(step.changed > 0 and step.failed == step.skipped == 0 for step in report.steps)
    assert active(store) == active(store, BOB)
    before = [(one.memory, one.change) for one in store.survey(ALICE).records]
    again = run(store, *STEPS, rules=RULES)
    assert [(one.memory, one.change) for one in store.survey(ALICE).records] == before
    assert [(step.step, step.changed) for step in again.steps if step.changed] == []


def test_steps_run_in_their_own_order_whatever_was_asked_for_and_unknown_ones_are_refused(store: SqliteStore) -> None:
    assert [step.step for step in run(store, "merge", "expire").steps] == ["expire", "merge"]
    with pytest.raises(ValueError, match="no sweep step is named polish"):
        run(store, "polish")


def test_neither_the_report_nor_the_log_holds_text(store: SqliteStore) -> None:
    lived_in(store)
    told: list[object] = []
    with capture_logs() as logs:
        report = run(store, *STEPS, rules=RULES, told=told.append)
    assert told == list(report.steps)
    assert [entry["step"] for entry in logs if entry["event"] == "sweep_step_done"] == list(STEPS)
    shown = repr((report, logs))
    assert not any(one.memory.content in shown for one in store.survey(ALICE).records)


def test_sweeps_stay_within_a_user(store: SqliteStore) -> None:
    for owner in (ALICE, BOB, Scope("globex", "alice")):
        remember(store, "The user likes tea", owner)
    remember(store, "The user likes tea.", BOB)
    assert swept(store, "merge").examples[0] in {one.memory.id for one in store.survey(BOB).records}
    assert [len(active(store, owner)) for owner in (ALICE, BOB)] == [1, 1]


# ── beside running writes ──────────────────────────────────────────────────────────────────────────────────────────
class MeddledStore(SqliteStore):
    """Lets a test write between a sweep's look and its change."""

    meddle: Callable[[], object] | None = None

    def transact(self, work: Callable[[Transaction], T], *, patient: bool = False) -> Future[T]:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        return super().transact(work, patient=patient)


@pytest.fixture
def meddled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MeddledStore]:
    monkeypatch.setattr("tests.sweep_samples.SqliteStore", MeddledStore)
    with opened(tmp_path) as one:
        assert isinstance(one, MeddledStore)
        yield one


@pytest.mark.parametrize("what", ["used", "updated", "forgotten"])
def test_what_changed_after_it_was_looked_at_is_left_for_the_next_sweep(meddled: MeddledStore, what: str) -> None:
    one = remember(meddled, "long unused", memory_type="episodic", at=ago(days=200))
    newer = replace(one, content="used again", version=2, updated_at=NOW)
    changes: dict[str, Callable[[Transaction], object]] = {
        "used": lambda tx: tx.touch(ALICE, [one.id], NOW),
        "updated": lambda tx: tx.update(newer, None, change="updated"),
        "forgotten": lambda tx: tx.forget(ALICE, [one.id]),
    }
    meddled.meddle = lambda: meddled.transact(changes[what]).result()
    report = swept(meddled, "archive")
    assert (report.changed, report.skipped) == (0, 1)
    stored = meddled.get(ALICE, one.id)
    assert stored is None if what == "forgotten" else stored is not None and stored.state == "active"


def test_no_write_is_lost_while_sweeps_run(store: SqliteStore) -> None:
    lived_in(store)
    lock, stop, failures = threading.Lock(), threading.Event(), []
    written: list[Memory] = []

    @contextmanager
    def locked(_scope: Scope) -> Iterator[None]:
        with lock:
            yield

    def write() -> None:
        number = 0
        while not stop.is_set() or number < 60:
            one = memory(f"fresh fact {number}", at=NOW, kind="fresh")
            with lock:
                put(store, one, vectors=[EMBEDDER.documents([one.content])[0]])
                following = replace(one, confidence=0.5, version=2)
                store.transact(lambda tx, it=following: tx.update(it, None, change="updated")).result()  # type: ignore[misc]
            written.append(following)
            number += 1

    def guarded() -> None:
        try:
            write()
        except StoreError as error:
            failures.append(error)

    writer = threading.Thread(target=guarded)
    writer.start()
    for _ in range(4):
        run(store, *STEPS, rules=RULES, locked=locked)
    stop.set()
    writer.join()
    assert failures == []
    assert [store.get(ALICE, one.id) for one in written] == written
    assert all(step.changed == 0 for step in run(store, *STEPS, rules=RULES).steps)


def test_the_users_lock_is_held_for_small_transactions_only(store: SqliteStore) -> None:
    for number in range(130):
        remember(store, f"offer {number}", expires_at=ago(days=1))
    held: list[Scope] = []

    @contextmanager
    def locked(scope: Scope) -> Iterator[None]:
        held.append(scope)
        yield

    assert swept(store, "expire", locked=locked).changed == 130
    assert len(held) == 3
    assert {(scope.tenant, scope.user_id) for scope in held} == {("acme", "alice")}


# ── what goes wrong ────────────────────────────────────────────────────────────────────────────────────────────────
def test_one_users_trouble_is_not_the_others(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (ALICE, BOB):
        remember(store, "an old offer", owner, expires_at=ago(days=1))
    look = store.survey

    def survey(scope: Scope) -> Any:
        if scope.user_id == "alice":
            raise StoreError("a row cannot be read")
        return look(scope)

    monkeypatch.setattr(store, "survey", survey)
    report = swept(store, "expire")
    assert (report.changed, report.failed) == (1, 1)
    assert active(store, BOB) == set()


def test_an_unusable_store_ends_the_sweep(store: SqliteStore) -> None:
    remember(store, "an old offer", expires_at=ago(days=1))
    store.close()
    with pytest.raises(StoreUnavailable):
        run(store, "expire")


def test_a_sweep_told_to_stop_ends_between_transactions(store: SqliteStore) -> None:
    for number in range(120):
        remember(store, f"offer {number}", expires_at=ago(days=1))
    asked: list[None] = []

    def go_on() -> bool:
        asked.append(None)
        return len(asked) < 4

    report = run(store, "expire", go_on=go_on)
    assert not report.complete
    assert 0 < report.steps[0].changed < 120
    assert run(store, "expire").steps[0].changed == 120 - report.steps[0].changed


def test_a_summary_that_cannot_be_embedded_is_still_made(store: SqliteStore) -> None:
    for place, text in enumerate(TRIPS):
        remember(store, text, memory_type="episodic", at=ago(days=60 - place))
    Sweep(store, None, lambda: NOW, ZONE).run(policies(), ["compress"])
    (summary,) = [one for one in surveyed(store).values() if one.memory.kind == "summary"]
    assert summary.vector is None


def _sweep_and_die(folder: Path) -> None:
    with opened(folder) as store:
        done: list[object] = []

        @contextmanager
        def locked(_scope: Scope) -> Iterator[None]:
            if len(done) == 3:
                os._exit(9)
            done.append(None)
            yield

        run(store, *STEPS, rules=RULES, locked=locked)


def test_a_kill_in_the_middle_leaves_a_store_that_the_next_sweep_finishes(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        lived_in(store)
    process = multiprocessing.get_context("spawn").Process(target=_sweep_and_die, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    with opened(tmp_path) as store, opened(tmp_path / "unbroken") as other:
        run(store, *STEPS, rules=RULES)
        lived_in(other)
        run(other, *STEPS, rules=RULES)
        assert active(store) == active(other)
        members = {link.evidence for link in store.survey(ALICE).links}
        stored = {one.memory.id for one in store.survey(ALICE).records}
        assert members <= stored
        assert store.list(ALICE, Filters(), limit=100).items
