"""Merging what slipped through: who stays, what never merges, and what repetition is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.store.sqlite import SqliteStore
from proxy.sweeps.restore import restore
from tests.store_samples import ALICE, ALICES_CODER, BOB
from tests.sweep_samples import NOW, active, ago, opened, remember, surveyed, swept


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with opened(tmp_path) as one:
        yield one


def test_the_older_of_two_that_say_the_same_stays_and_the_other_can_come_back(store: SqliteStore) -> None:
    first = remember(store, "用户偏好用 pnpm 管理前端依赖", at=ago(days=3))
    second = remember(store, "用户偏好使用 pnpm 来管理前端依赖。", at=ago(days=1))
    report = swept(store, "merge")
    assert report.changed == 1
    assert set(report.examples) == {first.id, second.id}
    assert active(store) == {first.content}
    gone = store.get(ALICE, second.id)
    assert gone is not None
    assert (gone.state, gone.superseded_by) == ("archived", first.id)
    assert swept(store, "merge").changed == 0
    assert restore(store, ALICE, second.id, now=NOW) is not None


def test_the_better_source_then_the_key_stays(store: SqliteStore) -> None:
    remember(store, "The user's editor is Helix", role="assistant", at=ago(days=9))
    remember(store, "the user's editor is helix.", role="user", at=ago(days=5))
    kept = remember(store, "The user's editor is Helix!", role="user", key="editor")
    swept(store, "merge")
    assert [one.memory.id for one in surveyed(store).values() if one.memory.state == "active"] == [kept.id]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The port is 8080", "The port is 8081"),
        ("用户对花生过敏", "用户对花生不过敏"),
        ("The user works with Adam", "The user works with Adams"),
        ("生产是 PG15", "生产是 PG16"),
        ("The user does like tea", "The user does not like tea"),
    ],
)
def test_nothing_merges_when_numbers_negation_or_names_differ(store: SqliteStore, one: str, other: str) -> None:
    remember(store, one)
    remember(store, other)
    assert swept(store, "merge", judge=lambda _old, _new: "same" if one.islower() else "unsure").changed == 0


def test_a_judge_cannot_make_a_negation_or_a_number_the_same(store: SqliteStore) -> None:
    remember(store, "用户对花生过敏")
    remember(store, "用户对花生不过敏")
    remember(store, "The port is 8080")
    remember(store, "The port is 8081")
    assert swept(store, "merge", judge=lambda _old, _new: "same").changed == 0


def test_other_readers_slots_and_kinds_are_left_alone(store: SqliteStore) -> None:
    others: list[dict[str, Any]] = [{"key": "a"}, {"key": "b"}, {"kind": "preference"}, {"scope": "user"}]
    for fields in others:
        remember(store, "The user likes tea", **fields)
    remember(store, "The user likes tea", ALICES_CODER)
    remember(store, "The user likes tea", BOB)
    assert swept(store, "merge").changed == 0


@pytest.mark.parametrize(("sessions", "strength"), [(["s1", "s1", "s1"], 1.0), (["s1", "s2", "s3"], 1.2)])
def test_only_other_sessions_strengthen(store: SqliteStore, sessions: list[str], strength: float) -> None:
    for days, session in enumerate(sessions):
        remember(store, "The user likes tea", session=session, at=ago(days=9 - days), message=f"m{days}")
    swept(store, "merge")
    (kept,) = [one for one in store.survey(ALICE).records if one.memory.state == "active"]
    assert kept.memory.strength == pytest.approx(strength)
    assert kept.memory.confidence == 0.8


def test_forgetting_the_one_that_stayed_forgets_its_duplicates_and_their_messages(store: SqliteStore) -> None:
    kept = remember(store, "The user likes tea", at=ago(days=2), message="m1")
    gone = remember(store, "The user likes tea.", message="m2")
    raw = remember(store, "I do like tea, you know", kind="turn", memory_type="episodic", message="m2")
    swept(store, "merge")
    store.transact(lambda tx: tx.forget(ALICE, [kept.id])).result()
    assert [store.get(ALICE, one.id) for one in (kept, gone, raw)] == [None] * 3
    assert store.is_forgotten(ALICE, "m2")


def test_chains_of_duplicates_end_in_one(store: SqliteStore) -> None:
    for place, text in enumerate(
        ["用户偏好用 pnpm 管理前端依赖", "用户偏好用 pnpm 管理前端依赖。", "用户偏好使用 pnpm 来管理前端依赖"]
    ):
        remember(store, text, at=ago(days=place), session=f"s{place}")
    swept(store, "merge")
    assert len(active(store)) == 1
    assert swept(store, "merge").changed == 0
