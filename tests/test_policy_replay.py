"""A transcript replayed: how it is read, what is proposed for it, and how two policy sets are told apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy import load as loader
from proxy.policy.knowledge import NOTHING_KNOWN
from proxy.policy.rules import PolicySet
from proxy.replay.compare import compare, paired
from proxy.replay.play import Proposal, Replay, Step
from proxy.replay.transcript import Transcript, Turn, read
from tests.running import ROOT

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")
RULES = """
version: 1
triggers:
  - id: likes
    why: What the user likes.
    when: user_message
    if: {match: {en: 'I like (?P<what>\\w+)'}}
    extract: {template: The user likes $what}
    write: {memory_type: semantic, kind: preference, confidence: CONFIDENCE}
    examples: [{user: I like tea, expect: [{content: The user likes tea}]}]
"""


def said(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def lines(*items: Any) -> list[str]:
    return [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items]


def transcript(*items: Any) -> Transcript:
    return read(lines(*items), "talk.jsonl", now=NOW, zone=SHANGHAI)


def turns(*items: Any) -> list[Turn]:
    found = transcript(*items)
    assert not found.problems
    return found.turns


@pytest.fixture(scope="module")
def shipped() -> PolicySet:
    return loader.load([ROOT / "policies"])


@pytest.fixture
def rules(tmp_path: Path) -> Callable[..., PolicySet]:
    """A policy set of one rule, or of what else is given."""

    def made(confidence: float = 0.9, text: str = RULES) -> PolicySet:
        file = tmp_path / f"{confidence}.yaml"
        file.write_text(text.replace("CONFIDENCE", str(confidence)), encoding="utf-8")
        return loader.load([file])

    return made


def steps(policies: PolicySet, *items: Any) -> list[Step]:
    replay = Replay(policies, SHANGHAI)
    return [step for turn in turns(*items) for step in replay.turn(turn)]


def contents(found: list[Step]) -> list[str]:
    return [one.content for step in found for one in step.proposals if one.kind != "turn"]


# ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_messages_are_cut_into_turns_at_each_answer() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    first, second, third = turns(
        said("system", "Be brief."),
        said("user", "find it"),
        said("assistant", None, tool_calls=[call]),
        said("tool", "found", tool_call_id="c1"),
        said("assistant", "Here."),
        said("user", "thanks"),
    )
    assert [message.text for message in first.new] == ["find it"]
    assert first.answer is not None
    assert first.answer.finish_reason == "tool_calls"
    assert first.system == "Be brief."
    assert [message.role for message in second.new] == ["tool"]
    assert second.context is not None
    assert second.context.tool_calls[0].name == "search"
    assert second.user_text == "find it"
    assert third.answer is None
    assert [turn.number for turn in (first, second, third)] == [1, 2, 3]
    assert third.lines[third.new[0].hash] == 6


def test_each_conversation_line_is_one_conversation() -> None:
    found = turns({"messages": [said("user", "a")]}, "", {"messages": [said("user", "b"), said("assistant", "c")]})
    assert [(turn.conversation, turn.number) for turn in found] == [(1, 1), (2, 1)]
    assert found[1].lines[found[1].new[0].hash] == 3


def test_a_resent_history_counts_from_where_it_goes_on() -> None:
    opening = [said("user", "hi"), said("assistant", "hello"), said("user", "I like tea")]
    found = turns({"messages": opening}, {"messages": [*opening, said("assistant", "ok"), said("user", "and jazz")]})
    assert [[message.text for message in turn.new] for turn in found] == [["hi"], ["I like tea"], [], ["and jazz"]]
    assert {turn.conversation for turn in found} == {1}


def test_two_conversations_that_open_alike_are_two() -> None:
    first = {"messages": [said("user", "hi"), said("assistant", "hello"), said("user", "I like tea")]}
    second = {"messages": [said("user", "hi"), said("assistant", "hello"), said("user", "I like jazz")]}
    assert [turn.conversation for turn in turns(first, second)] == [1, 1, 2, 2]


def test_a_time_counts_for_what_follows_and_is_in_the_users_zone() -> None:
    first, second, third = turns(
        said("user", "a", at="2026-11-30T09:00:00"),
        said("assistant", "b"),
        said("user", "c"),
        said("assistant", "d"),
        said("user", "e", at=1_796_029_200),
    )
    assert first.at == second.at == datetime(2026, 11, 30, 1, 0, tzinfo=UTC)
    assert third.at == datetime.fromtimestamp(1_796_029_200, UTC)


def test_without_a_time_it_is_said_now() -> None:
    assert turns(said("user", "a"))[0].at == NOW


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"content": "a"}', "no role"),
        ('{"role": "cat", "content": "a"}', "cat"),
        ('{"role": "user"}', "no content"),
        ('{"messages": {}}', "not a list"),
        ('{"messages": [1]}', "messages[0]"),
        ('{"messages": [{"role": "user"}]}', "messages[0]: no content"),
        ('{"role": "user", "content": "a", "at": "noon"}', "noon"),
        ('{"role": "user", "content": "a", "at": 1e30}', "1e+30"),
    ],
)
def test_every_wrong_line_is_told_with_its_place(line: str, told: str) -> None:
    problem, other = transcript(said("user", "a"), line, "{").problems
    assert (problem.file, problem.line) == ("talk.jsonl", 2) or (other.file, other.line) == ("talk.jsonl", 2)
    assert told in f"{problem}\n{other}"


@given(st.lists(st.text(max_size=40)))
def test_no_text_breaks_the_reader(text: list[str]) -> None:
    read(text, "x", now=NOW, zone=UTC)


# ── replaying ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_would_be_written_stands_alone(shipped: PolicySet) -> None:
    found = steps(shipped, said("user", "记住：下周五我要去东京", at="2026-11-30T09:00:00"))
    assert "2026-12-11 用户要去东京" in contents(found)


def test_slots_drops_and_tool_failures_are_told(shipped: PolicySet) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    found = steps(
        shipped,
        said("user", "帮我规划下周去京都旅游的行程"),
        said("assistant", None, tool_calls=[call]),
        said("tool", '{"error": "timeout"}', tool_call_id="c1"),
        said("assistant", "超时了"),
        said("user", "谢谢"),
    )
    slots = {(one.name, one.content) for step in found for one in step.proposals if one.sort == "slot"}
    assert ("destination", "京都") in slots
    assert any("search" in content and "timeout" in content for content in contents(found))
    assert [step.dropped_by for step in found if step.text == "谢谢"] == ["chitchat"]


def test_a_background_call_comes_to_nothing(shipped: PolicySet) -> None:
    task = "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\nI like tea"
    (step,) = steps(shipped, said("user", task), said("assistant", "Tea"))
    assert step.event == "request"
    assert step.dropped_by is not None


def test_secrets_are_redacted_as_before_the_journal(shipped: PolicySet) -> None:
    secret = "sk-proj-" + "Ab3dEf9hIj2LmNo5QrSt8VwX" * 2
    found = steps(shipped, said("user", f"Remember that my key is {secret}"))
    assert found
    assert secret not in repr(found)


def test_shadow_rules_are_told_and_write_nothing(rules: Callable[..., PolicySet]) -> None:
    shadow = rules(text=RULES.replace("    when:", "    mode: shadow\n    when:"))
    (step,) = steps(shadow, said("user", "I like tea"))
    assert step.shadow == ("likes",)
    assert step.proposals == ()


def test_the_value_check_is_asked(shipped: PolicySet) -> None:
    asked: list[str] = []

    def value(text: str, language: Any) -> float:
        asked.append(text)
        return 0.0

    replay = Replay(shipped, UTC, value)
    for turn in turns(said("user", "The backup job writes its files to the second disk every night.")):
        replay.turn(turn)
    assert asked


def test_the_end_of_a_conversation_is_summed_up(shipped: PolicySet) -> None:
    (turn,) = turns(said("user", "We decided to go with Postgres."), said("assistant", "ok"))
    replay = Replay(shipped, UTC, NOTHING_KNOWN.value)
    replay.turn(turn)
    (end,) = replay.end(turn)
    assert end.event == "session_end"
    assert any("Postgres" in one.content and one.kind == "summary" for one in end.proposals)
    assert replay.end(turn) == []


def test_the_same_transcript_gives_the_same_twice(shipped: PolicySet) -> None:
    talk = [said("user", "I like tea and my name is Bob"), said("assistant", "ok"), said("user", "我住在杭州")]
    assert steps(shipped, *talk) == steps(shipped, *talk)


# ── comparing ──────────────────────────────────────────────────────────────────────────────────────────────────────
def proposal(content: str, rule: str = "r", **more: Any) -> Proposal:
    return Proposal("memory", rule, content, **more)


def step(*proposals: Proposal, line: int = 1, text: str = "t") -> Step:
    return Step(line, 1, 1, "user_message", text, proposals)


def test_each_thing_is_marked() -> None:
    same, gone = proposal("same"), proposal("gone", "old")
    was, now = proposal("changed", confidence=0.5), proposal("changed", confidence=0.9)
    new = proposal("new", "other")
    changes = compare(step(same, gone, was), step(same, now, new))
    assert [(one.mark, one.proposal.content) for one in changes] == [
        ("=", "same"),
        ("~", "changed"),
        ("+", "new"),
        ("-", "gone"),
    ]
    assert changes[1].before == was


def test_other_words_of_the_same_rule_are_a_change() -> None:
    (change,) = compare(step(proposal("用户喜欢茶")), step(proposal("用户爱喝茶")))
    assert change.mark == "~"


def test_the_raw_turn_is_not_taken_for_what_was_made_of_it() -> None:
    marks = [one.mark for one in compare(step(proposal("x", "a", kind="turn")), step(proposal("x", "b", kind="fact")))]
    assert marks == ["+", "-"]


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_nothing_is_lost_or_counted_twice(left: list[str], right: list[str]) -> None:
    live, new = [proposal(one, one) for one in left], [proposal(one, one) for one in right]
    changes = compare(step(*live), step(*new))
    assert sorted(one.proposal.content for one in changes if one.mark != "-") == sorted(right)
    before = [one.before or one.proposal for one in changes if one.mark != "+"]
    assert sorted(one.content for one in before) == sorted(left)


def test_events_of_two_replays_are_paired() -> None:
    one, two, three = step(line=1), step(line=2), step(line=3)
    assert list(paired([one, two], [two, three])) == [(one, None), (two, two), (None, three)]


def test_two_sets_differ_where_their_rules_do(rules: Callable[..., PolicySet]) -> None:
    talk = turns(said("user", "I like tea"))
    live, new = (Replay(rules(confidence), UTC).turn(talk[0]) for confidence in (0.5, 0.9))
    ((left, right),) = paired(live, new)
    assert [one.mark for one in compare(left, right)] == ["~"]
