"""Old memories under one summary, and facts promoted out of several sessions; both can be walked back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.plugs import Surveyed
from proxy.store.sqlite import SqliteStore
from proxy.sweeps.compress import extract
from proxy.sweeps.restore import restore
from proxy.types import Memory, Source
from tests.store_samples import ALICE, ALICES_CODER, memory
from tests.sweep_samples import NOW, ZONE, active, ago, opened, policies, remember, swept

TRIPS = [
    "用户在京都参观了清水寺",
    "用户在京都参观了金阁寺",
    "用户在京都参观了伏见稻荷大社",
    "用户在京都参观了银阁寺",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with opened(tmp_path) as one:
        yield one


def trips(store: SqliteStore, **fields: Any) -> list[Memory]:
    return [
        remember(store, text, memory_type="episodic", at=ago(days=60 - place), message=f"m{place}", **fields)
        for place, text in enumerate(TRIPS)
    ]


def summaries(store: SqliteStore) -> list[Surveyed]:
    return [one for one in store.survey(ALICE).records if "compressed" in one.memory.tags]


# ── compress ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_related_old_records_go_under_one_summary_and_others_stay(store: SqliteStore) -> None:
    members = trips(store)
    remember(store, "用户修好了厨房的水龙头", memory_type="episodic", at=ago(days=60))
    fresh = remember(store, "用户在京都参观了龙安寺", memory_type="episodic", at=ago(days=3))
    report = swept(store, "compress")
    (summary,) = summaries(store)
    assert (report.changed, report.examples) == (1, (summary.memory.id,))
    assert active(store) == {summary.memory.content, "用户修好了厨房的水龙头", fresh.content}
    assert (summary.memory.kind, summary.memory.memory_type) == ("summary", "episodic")
    assert summary.memory.valid_from == members[-1].valid_from
    assert summary.vector is not None
    assert all(text in summary.memory.content for text in TRIPS)
    assert swept(store, "compress").changed == 0


def test_what_was_used_lately_holds_a_slot_or_is_anothers_is_left_alone(store: SqliteStore) -> None:
    trips(store, last_accessed_at=ago(days=1))
    for place, text in enumerate(TRIPS):
        remember(store, text + "。", memory_type="episodic", at=ago(days=60), key=f"k{place}")
    for text in TRIPS[:2]:
        remember(store, text, ALICES_CODER, memory_type="episodic", at=ago(days=60))
        remember(store, text, memory_type="episodic", scope="user", at=ago(days=60))
    assert swept(store, "compress").changed == 0


def test_a_restored_member_stays_for_as_long_as_it_takes_to_grow_old(store: SqliteStore) -> None:
    member = trips(store)[0]
    swept(store, "compress")
    assert restore(store, ALICE, member.id, now=NOW) is not None
    assert swept(store, "compress").changed == 0
    assert member.content in active(store)


def test_forgetting_a_member_brings_the_others_back_to_a_summary_without_it(store: SqliteStore) -> None:
    first, *others = trips(store)
    swept(store, "compress")
    (summary,) = summaries(store)
    store.transact(lambda tx: tx.forget(ALICE, [first.id])).result()
    assert store.get(ALICE, summary.memory.id) is None
    assert active(store) == {one.content for one in others}
    swept(store, "compress")
    (again,) = summaries(store)
    assert "清水寺" not in again.memory.content
    assert active(store) == {again.memory.content}


def test_forgetting_a_summary_forgets_its_members_but_not_what_else_their_messages_said(store: SqliteStore) -> None:
    members = trips(store)
    fact = remember(store, "用户喜欢寺庙", message="m0")
    swept(store, "compress")
    (summary,) = summaries(store)
    store.transact(lambda tx: tx.forget(ALICE, [summary.memory.id])).result()
    assert [store.get(ALICE, one.id) for one in members] == [None] * len(members)
    assert active(store) == {fact.content}
    assert store.survey(ALICE).links == ()


def test_a_given_summariser_writes_the_text(store: SqliteStore) -> None:
    trips(store)
    asked: list[tuple[str, ...]] = []

    def summarise(lines: object, language: str, scope: object) -> str:
        asked.append(tuple(lines))  # type: ignore[arg-type]
        return f"京都之行 {language}"

    swept(store, "compress", summarise=summarise)
    assert active(store) == {"京都之行 zh"}
    assert asked == [tuple(TRIPS)]


def test_a_tools_word_among_the_members_makes_the_summary_a_tools(store: SqliteStore) -> None:
    trips(store)
    remember(store, "用户在京都参观了东寺", memory_type="episodic", at=ago(days=50), role="tool")
    swept(store, "compress")
    assert summaries(store)[0].memory.source.role == "tool"


def test_a_long_summary_takes_lines_from_first_to_last() -> None:
    members = [memory(f"line {i} " + "x" * 300, at=NOW + timedelta(days=i), language="en") for i in range(40)]
    head, *lines = extract(members, ZONE).splitlines()
    assert head == "40 related memories, 2026-11-30 to 2027-01-08:"
    assert len(lines) == 12
    assert lines[0].startswith("- 2026-11-30 line 0 ")
    assert lines[-1].startswith("- 2027-01-08 line 39 ")
    assert max(map(len, lines)) < 180


# ── promote ────────────────────────────────────────────────────────────────────────────────────────────────────────
def facts(store: SqliteStore) -> list[Memory]:
    return [one.memory for one in store.survey(ALICE).records if "promoted" in one.memory.tags]


def said(store: SqliteStore, *sessions: str, text: str = "用户每天早上喝黑咖啡", **fields: Any) -> list[Memory]:
    return [
        remember(store, text, memory_type="episodic", session=session, at=ago(days=9 - place, hours=place), **fields)
        for place, session in enumerate(sessions)
    ]


def test_what_three_sessions_said_becomes_one_lasting_fact(store: SqliteStore) -> None:
    said(store, "s1", "s2", "s3", confidence=0.5)
    assert swept(store, "promote").changed == 1
    (fact,) = facts(store)
    assert (fact.content, fact.memory_type, fact.confidence) == ("用户每天早上喝黑咖啡", "semantic", 0.875)
    assert len(store.survey(ALICE).links) == 3
    assert swept(store, "promote").changed == 0


@pytest.mark.parametrize(
    ("sessions", "fields"),
    [
        (["s1", "s1", "s1", "s2"], {}),
        (["s1", "s2", "s3"], {"role": "tool"}),
        (["s1", "s2", "s3"], {"role": "assistant"}),
        (["s1", "s2", "s3"], {"kind": "tool_result"}),
    ],
)
def test_repetition_and_others_words_promote_nothing(
    store: SqliteStore, sessions: list[str], fields: dict[str, Any]
) -> None:
    said(store, *sessions, **fields)
    assert swept(store, "promote").changed == 0


def test_a_record_that_was_said_again_elsewhere_counts_each_session_once(store: SqliteStore) -> None:
    (one,) = said(store, "s1")
    for session in ("s2", "s2", "s3"):
        store.transact(lambda tx, s=session: tx.witness(one, Source(session=s), NOW)).result()  # type: ignore[misc]
    swept(store, "promote")
    assert len(facts(store)) == 1


def test_further_sessions_make_it_surer_in_place(store: SqliteStore) -> None:
    said(store, "s1", "s2", "s3", confidence=0.5)
    swept(store, "promote")
    said(store, "s4", confidence=0.5)
    assert swept(store, "promote").changed == 1
    (fact,) = facts(store)
    assert fact.confidence == 0.9375
    assert swept(store, "promote").changed == 0


def test_talk_is_quoted_and_only_when_it_says_something(store: SqliteStore) -> None:
    for text in ("我每天早上喝黑咖啡", "好的我们继续吧"):
        said(store, "s1", "s2", "s3", text=text, kind="turn", confidence=0.3)
    swept(store, "promote", worth=lambda text, _vector: 1.0 if "咖啡" in text else 0.0)
    assert [one.content for one in facts(store)] == ["用户多次说过：我每天早上喝黑咖啡"]


def test_a_known_or_replaced_fact_is_not_made_again(store: SqliteStore) -> None:
    remember(store, "用户每天早上喝黑咖啡。")
    said(store, "s1", "s2", "s3")
    assert swept(store, "promote").changed == 0
    said(store, "s1", "s2", "s3", text="用户住在武汉")
    swept(store, "promote")
    (fact,) = facts(store)
    moved = replace(fact, id="new", content="用户住在北京", supersedes=None)
    store.transact(lambda tx: tx.supersede(fact, moved, None)).result()
    said(store, "s5", text="用户住在武汉")
    assert swept(store, "promote").changed == 0


def test_a_promoted_fact_goes_with_forgotten_evidence_and_does_not_come_back(store: SqliteStore) -> None:
    first, *_ = said(store, "s1", "s2", "s3", "s4")
    swept(store, "promote")
    store.transact(lambda tx: tx.forget(ALICE, [first.id])).result()
    assert facts(store) == []
    assert swept(store, "promote").changed == 0


def test_nothing_is_promoted_unless_a_policy_says_when(store: SqliteStore) -> None:
    said(store, "s1", "s2", "s3")
    assert swept(store, "promote", rules=policies(promote=None)).changed == 0
