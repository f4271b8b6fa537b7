"""The junk audit: each fault is found and shown, what is sound is left alone, and turns are counted apart."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.audit import JUNK, UNUSED_AFTER, AuditReport, audit, fingerprint, suspects
from proxy.inject import Item, build
from proxy.language import detect
from proxy.policy.retention import Retention, RetentionRule
from proxy.types import Memory, Source

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NUMBERS = count()


def memory(
    content: str, *, kind: str = "fact", role: str | None = "user", age: timedelta = timedelta(hours=1), **more: Any
) -> Memory:
    source = Source(role=role, request=more.pop("request", None), message_hash=more.pop("message_hash", None))
    at = NOW - age
    fields: dict[str, Any] = {
        "id": f"m{next(NUMBERS):06}",
        "tenant": "single",
        "user_id": "ada",
        "agent_id": "default",
        "scope": "user",
        "memory_type": "semantic",
        "created_at": at,
        "updated_at": at,
        "valid_from": at,
        "language": detect(content),
    }
    return Memory(**{**fields, **more}, kind=kind, content=content, source=source)


def faults(report: AuditReport) -> dict[str, int]:
    return {name: fault.count for name, fault in report.faults.items() if fault.count}


def audited(*records: Memory, **more: Any) -> dict[str, int]:
    return faults(audit(records, NOW, **more))


# ── what is sound ──────────────────────────────────────────────────────────────────────────────────────────────────
SOUND = [
    "用户喜欢深色模式",
    "The user prefers short answers",
    "用户对花生过敏",
    "The user does not drink coffee",
    "Docker 容器启动报端口冲突时，改映射端口解决了",
    "The user's password is [redacted:password]",
    "用户一般什么都吃",
    "The staging database listens on 5433",
]


@pytest.mark.parametrize("content", SOUND)
def test_a_sound_record_has_no_fault(content: str) -> None:
    assert audited(memory(content)) == {}


def test_nothing_at_all_is_no_junk() -> None:
    report = audit([], NOW)
    assert (report.records, report.junk, report.junk_share) == (0, 0, 0.0)


# ── each fault ─────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("用户喜欢深色模式", "用户喜欢深色模式。"),
        ("The user likes tea", "the user likes TEA."),
        ("用户的编辑器是 GoLand", "编辑器是ＧｏＬａｎｄ"),
        ("The user lives in Berlin", "User lives in Berlin"),
    ],
)
def test_the_later_of_two_that_say_the_same_is_a_duplicate(one: str, other: str) -> None:
    first, second = memory(one, age=timedelta(days=2)), memory(other)
    report = audit([second, first], NOW)
    [example] = report.faults["duplicate"].examples
    assert (example.id, example.other_id) == (second.id, first.id)
    assert faults(report) == {"duplicate": 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The port is 8080", "The port is 8081"),
        ("用户喜欢茶", "用户不喜欢茶"),
        ("Ada reports to Bob", "Bob reports to Ada"),
        ("生产库是 PG15", "测试库是 PG15"),
        ("The limit is -5", "The limit is 5"),
    ],
)
def test_what_differs_is_no_duplicate(one: str, other: str) -> None:
    assert audited(memory(one), memory(other)) == {}


@pytest.mark.parametrize(
    "other",
    [{"user_id": "bob"}, {"tenant": "other"}, {"agent_id": "coder", "scope": "agent"}],
    ids=lambda fields: next(iter(fields)),
)
def test_records_of_other_readers_are_no_duplicates(other: dict[str, Any]) -> None:
    assert audited(memory("I like tea"), memory("I like tea", **other)) == {}


def test_two_agents_private_records_of_the_same_are_no_duplicates() -> None:
    assert audited(*(memory("The build runs", scope="agent", agent_id=agent) for agent in ("a", "b"))) == {}


def test_a_record_that_says_less_than_another_one_of_its_message_is_a_duplicate() -> None:
    whole = memory("用户叫林浩，在一家做物流的公司写后端", message_hash="h")
    part = memory("用户叫林浩", message_hash="h")
    report = audit([part, whole], NOW)
    assert [example.id for example in report.faults["duplicate"].examples] == [part.id]
    assert audited(part, replace(whole, source=Source(role="user", message_hash="other"))) == {}


@pytest.mark.parametrize(
    "content", ["用户喜欢茶吗？", "Does the user like tea?", "你觉得我喜欢什么？", "What is that?"]
)
def test_a_record_that_only_asks_is_found(content: str) -> None:
    assert audited(memory(content)) == {"question": 1}


def test_a_record_that_tells_and_asks_is_none() -> None:
    assert audited(memory("The user lives in Berlin. Is it cold there?")) == {}


@pytest.mark.parametrize("kind", ["preference", "fact", "instruction", "entity", "correction"])
def test_the_assistants_words_as_the_users_are_found(kind: str) -> None:
    assert audited(memory("The user probably loves jazz", role="assistant", kind=kind)) == {"assistant_authored": 1}


@pytest.mark.parametrize("kind", ["decision", "task", "summary", "lesson"])
def test_what_the_assistant_did_or_summed_up_is_its_own(kind: str) -> None:
    assert audited(memory("The tests pass on port 8099", role="assistant", kind=kind)) == {}


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_blocks_own_words_are_an_echo(language: Any) -> None:
    item = Item("m", "preference", "I like tea", NOW)
    block = build([item], budget_tokens=500, count=len, language=language, max_item_chars=100)
    assert block.text
    for line in block.text.splitlines():
        assert audited(memory(line)) == {"recall_echo": 1}, line


def test_a_record_that_repeats_what_its_call_was_given_is_an_echo() -> None:
    recalled = memory("用户喜欢乌龙茶", age=timedelta(days=3))
    echo = memory("喜欢乌龙茶。", request="r1", role="assistant", kind="task")
    assert suspects([recalled, echo]) == {"r1"}
    assert audited(recalled, echo, injected={"r1": [recalled]}) == {"duplicate": 1, "recall_echo": 1}
    assert audited(recalled, echo, injected={"r2": [recalled]}) == {"duplicate": 1}


def test_only_repetitions_are_suspects() -> None:
    assert suspects([memory("one", request="r1"), memory("two", request="r2")]) == frozenset()


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        ("The key is ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "ghp_a1B2"),
        ("用户的数据库密码是 Tr0ub4dor&3", "Tr0ub4dor"),
        ("用户的电话是 13812345678", "13812345678"),
        ("Card 4111 1111 1111 1111", "4111"),
    ],
)
def test_a_secret_is_found_and_not_shown(content: str, secret: str) -> None:
    report = audit([memory(content)], NOW)
    assert faults(report) == {"secret": 1}
    assert secret not in json.dumps(report.as_json())


def test_what_is_out_of_date_is_stale() -> None:
    assert audited(memory("a b c", superseded_by="m9")) == {"stale": 1}
    assert audited(memory("a b c", expires_at=NOW)) == {"stale": 1}
    assert audited(memory("a b c", expires_at=NOW + timedelta(seconds=1))) == {}


def test_of_two_answers_in_one_slot_the_older_is_stale() -> None:
    old = memory("用户住在杭州", key="home", age=timedelta(days=2))
    new = memory("用户住在上海", key="home")
    for order in ([old, new], [new, old]):
        [example] = audit(order, NOW).faults["stale"].examples
        assert (example.id, example.other_id) == (old.id, new.id)
    assert audited(old, replace(new, user_id="bob")) == {}
    assert audited(replace(old, state="pending"), new) == {}


def test_of_three_answers_in_one_slot_two_are_stale() -> None:
    # The one that holds since longest was written last.
    three = [memory(f"Port {day}", key="port", age=timedelta(days=day)) for day in (3, 2, 1)]
    back = replace(three[2], valid_from=NOW - timedelta(days=9))
    report = audit([three[0], three[1], back], NOW)
    assert {one.id for one in report.faults["stale"].examples} == {three[0].id, back.id}


def test_a_faded_record_is_stale_by_the_retention_rules() -> None:
    rule = RetentionRule.model_validate({"half_life": "30d", "archive_below": 0.10, "archive_after": "90d"})
    retention = Retention(types={"episodic": rule})
    old = memory("It happened", memory_type="episodic", age=timedelta(days=200), confidence=0.9, access_count=1)
    assert audited(old, retention=retention) == {"stale": 1}
    assert audited(old) == {}
    assert audited(replace(old, last_accessed_at=NOW - timedelta(days=1)), retention=retention) == {}


def test_a_record_never_used_is_told_and_is_no_junk() -> None:
    old, used = memory("one", age=UNUSED_AFTER), memory("two", age=UNUSED_AFTER, access_count=1)
    report = audit([old, used, memory("three")], NOW)
    assert faults(report) == {"never_used": 1}
    assert report.junk == 0


# ── shares ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_turns_are_counted_apart() -> None:
    turns = [memory("我喜欢茶吗？", kind="turn"), memory("我喜欢茶吗？", kind="turn"), memory("好的", kind="turn")]
    report = audit([*turns, memory("用户喜欢茶")], NOW)
    assert (report.records, report.turns, report.repeated_turns, report.junk) == (1, 3, 1, 0)


def test_a_record_with_two_faults_is_one_piece_of_junk() -> None:
    twice = memory("Does she like tea?", role="assistant", superseded_by="m", expires_at=NOW)
    report = audit([twice, memory("The user likes tea")], NOW)
    assert faults(report) == {"question": 1, "assistant_authored": 1, "stale": 1}
    assert (report.junk, report.junk_share) == (1, 0.5)
    assert report.faults["question"].share == 0.5


def test_examples_are_as_many_as_asked_for() -> None:
    asking = [memory(f"What is {number}?") for number in range(5)]
    assert len(audit(asking, NOW, examples=2).faults["question"].examples) == 2
    assert audit(asking, NOW, examples=0).faults["question"].count == 5


def test_the_report_is_json() -> None:
    shown = json.loads(json.dumps(audit([memory("What is that?")], NOW).as_json()))
    assert shown["junk_share"] == 1.0
    assert set(shown["faults"]) == {*JUNK, "never_used"}
    assert shown["faults"]["question"]["examples"][0]["content"] == "What is that?"


@given(st.lists(st.sampled_from(["我喜欢茶", "我喜欢茶。", "I like tea?", "The port is 1", "- [fact · 2026-11-02] x"])))
def test_the_order_of_the_records_changes_nothing(contents: list[str]) -> None:
    records = [memory(content, age=timedelta(hours=hour)) for hour, content in enumerate(contents)]
    one, other = audit(records, NOW), audit(records[::-1], NOW)
    assert one == other
    assert 0 <= one.junk <= one.records == len(contents)


@given(st.text(), st.text())
def test_texts_with_other_letters_or_digits_never_say_the_same(one: str, other: str) -> None:
    if fingerprint(one) == fingerprint(other) != ():
        assert fingerprint(f"{one} 1") == fingerprint(f"{other} 1") != fingerprint(f"{other} 2")
