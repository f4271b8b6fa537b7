"""Lessons in the store: one per pattern, with its evidence, updated and never doubled; and what it takes away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from proxy.plugs import Surveyed
from proxy.store.sqlite import SqliteStore
from proxy.sweep import Sweep
from proxy.sweeps.act import LessonShape
from proxy.sweeps.lifetime import FORGOTTEN_IN_CHAT
from proxy.types import Memory, Source
from tests.store_samples import ALICE, ALICES_CODER
from tests.sweep_samples import EMBEDDER, NOW, ZONE, ago, opened, policies, remember, run, swept
from tests.test_reflect import DEPLOYED_ZH, FRIDAY


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with opened(tmp_path) as one:
        yield one


def deployments(store: SqliteStore, texts: Sequence[str] = tuple(DEPLOYED_ZH), first: int = 0) -> list[Memory]:
    return [
        remember(
            store, text, memory_type="episodic", at=FRIDAY + timedelta(days=7 * place), session=f"s{place}",
            message=f"m{place}",
        )
        for place, text in enumerate(texts, first)
    ]  # fmt: skip


def lessons(store: SqliteStore, state: str = "active") -> list[Surveyed]:
    found = store.survey(ALICE).records
    return [one for one in found if one.memory.memory_type == "reflective" and one.memory.state == state]


def test_one_lesson_is_made_with_its_evidence_and_never_a_second(store: SqliteStore) -> None:
    made_of = deployments(store, DEPLOYED_ZH[:3])
    assert swept(store, "reflect").changed == 1
    (lesson,) = lessons(store)
    assert lesson.memory.content == "用户常在周五下午部署服务"
    assert (lesson.memory.kind, lesson.memory.source.role) == ("pattern", "user")
    assert lesson.vector is not None
    links = store.survey(ALICE).links
    assert {(link.derived, link.evidence, link.how) for link in links} == {
        (lesson.memory.id, one.id, "reflected") for one in made_of
    }
    assert swept(store, "reflect").changed == 0
    more = deployments(store, DEPLOYED_ZH[3:], 3)
    assert swept(store, "reflect").changed == 1
    (again,) = lessons(store)
    assert again.memory.id == lesson.memory.id
    assert again.memory.confidence > lesson.memory.confidence
    assert {link.evidence for link in store.survey(ALICE).links} == {one.id for one in [*made_of, *more]}
    assert swept(store, "reflect").changed == 0


def test_what_was_said_again_counts_as_often_as_it_was_said(store: SqliteStore) -> None:
    one = remember(store, "用户部署了支付服务", memory_type="episodic", at=FRIDAY, session="s0")
    for week in (1, 2):
        later = FRIDAY + timedelta(days=7 * week)
        again = Source(session=f"s{week}")
        store.transact(lambda tx, source=again, at=later: tx.witness(one, source, at)).result()  # type: ignore[misc]
    swept(store, "reflect")
    assert [lesson.memory.content for lesson in lessons(store)] == ["用户常在周五下午部署支付服务"]


def test_a_lesson_goes_with_forgotten_evidence_and_is_made_anew_from_what_is_left(store: SqliteStore) -> None:
    first, second, *_ = deployments(store)
    swept(store, "reflect")
    store.transact(lambda tx: tx.forget(ALICE, [first.id])).result()
    assert lessons(store) == []
    swept(store, "reflect")
    (lesson,) = lessons(store)
    assert first.id not in {link.evidence for link in store.survey(ALICE).links}
    store.transact(lambda tx: tx.forget(ALICE, [second.id])).result()
    swept(store, "reflect")
    assert lessons(store) == []
    assert store.history(ALICE, lesson.memory.id) == []


def test_forgetting_a_lesson_leaves_its_evidence(store: SqliteStore) -> None:
    made_of = deployments(store)
    swept(store, "reflect")
    store.transact(lambda tx: tx.forget(ALICE, [lessons(store)[0].memory.id])).result()
    assert all(store.get(ALICE, one.id) == one for one in made_of)
    report = swept(store, "reflect")
    assert (report.changed, report.skipped, report.failed) == (0, 1, 0)  # the user does not want to hear it again


def test_a_lesson_whose_evidence_was_withdrawn_is_archived(store: SqliteStore) -> None:
    first, *_ = deployments(store, DEPLOYED_ZH[:3])
    swept(store, "reflect")
    away = replace(first, state="archived")
    store.transact(lambda tx: tx.update(away, None, change=FORGOTTEN_IN_CHAT)).result()
    swept(store, "reflect")
    assert [one.change for one in lessons(store, "archived")] == ["evidence gone"]
    assert swept(store, "reflect").changed == 0


def test_a_lesson_outlives_evidence_that_faded_or_was_erased_for_its_age(store: SqliteStore) -> None:
    deployments(store, DEPLOYED_ZH[:3])
    swept(store, "reflect")
    later = NOW + timedelta(days=150)
    rules = policies(delete_archived_after="30d", types={"episodic": {"half_life": "30d", "archive_below": 0.1}})
    run(store, "archive", "reflect", rules=rules, now=later)
    assert len(lessons(store)) == 1
    run(store, "erase", "reflect", rules=rules, now=later + timedelta(days=40))
    assert len(store.survey(ALICE).records) == 1
    assert len(lessons(store)) == 1


def test_a_lesson_the_user_edited_or_put_away_stays_so(store: SqliteStore) -> None:
    deployments(store, DEPLOYED_ZH[:3])
    swept(store, "reflect")
    lesson = lessons(store)[0].memory
    edited = replace(lesson, content="用户周五部署", version=2)
    store.transact(lambda tx: tx.update(edited, None, change="updated")).result()
    deployments(store, DEPLOYED_ZH[3:], 3)
    assert swept(store, "reflect").changed == 0
    gone = replace(edited, state="archived")
    store.transact(lambda tx: tx.update(gone, None, change="archived")).result()
    assert swept(store, "reflect").changed == 0
    assert store.get(ALICE, lesson.id) == gone


def test_agents_do_not_learn_from_each_others_private_episodes(store: SqliteStore) -> None:
    deployments(store, DEPLOYED_ZH[:2])
    remember(store, DEPLOYED_ZH[2], ALICES_CODER, memory_type="episodic", at=ago(days=10), session="s9")
    assert swept(store, "reflect").changed == 0


def test_a_rule_says_what_lessons_look_like(store: SqliteStore) -> None:
    deployments(store)
    shape = LessonShape(kind="habit", tags=("weekly",), confidence=0.4)
    Sweep(store, EMBEDDER, lambda: NOW, ZONE).run(policies(), ["reflect"], now=NOW, shape=shape)
    (lesson,) = lessons(store)
    assert (lesson.memory.kind, lesson.memory.confidence) == ("habit", 0.4)
    assert lesson.memory.tags == ("reflection", "weekly")
