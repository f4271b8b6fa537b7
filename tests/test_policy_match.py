"""The matcher: conditions, extraction, order, shadow, drop, traces."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
import regex

from proxy.language import detect
from proxy.policy import matcher
from proxy.policy.explain import explain
from proxy.policy.load import load
from proxy.policy.match import Evaluation, evaluate, request_event
from proxy.policy.matcher import Clock, Matcher
from proxy.policy.patterns import ByLanguage
from proxy.policy.rules import PolicySet
from proxy.types import Event

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def policies(tmp_path: Path, *rules: dict[str, Any]) -> PolicySet:
    full = [{"id": f"r{number}", "when": "user_message"} | rule for number, rule in enumerate(rules)]
    for rule in full:
        if not rule.get("drop"):
            rule.setdefault("extract", {"verbatim": {}})
            rule.setdefault("write", {"memory_type": "semantic"})
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"version": 1, "triggers": full}, ensure_ascii=False), "utf-8")
    return load([path])


def said(rules: PolicySet, text: str, **fields: Any) -> Evaluation:
    return evaluate(rules, Event("user_message", text, detect(text), "user", NOW, **fields))


def contents(result: Evaluation) -> list[str]:
    return [draft.content for draft in result.drafts]


def test_each_sentence_is_tried_alone_so_that_not_concerns_the_one_that_matched(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"if": {"match": "我喜欢", "not": {"match": "[吗？?]$"}}})
    assert contents(said(rules, "我喜欢茶。你喜欢吗？我喜欢吗？")) == ["我喜欢茶。"]


def test_several_matches_make_several_drafts_and_equal_ones_make_one(tmp_path: Path) -> None:
    rule = {"if": {"match": r"I like (?P<t>\w+)"}, "extract": {"template": "likes $t"}}
    rules = policies(tmp_path, rule)
    assert contents(said(rules, "I like tea and I like jazz. I like tea!")) == ["likes tea", "likes jazz"]


def test_pattern_and_template_follow_the_language(tmp_path: Path) -> None:
    rule = {
        "if": {"match": {"zh": "叫(?P<n>\\S+)", "en": "name is (?P<n>\\S+)"}},
        "extract": {"template": {"zh": "叫$n", "en": "named $n"}},
    }
    rules = policies(tmp_path, rule)
    assert contents(said(rules, "我叫 Bob")) == []
    assert contents(said(rules, "我叫Bob")) == ["叫Bob"]
    assert contents(said(rules, "my name is 张伟")) == ["named 张伟"]
    assert contents(said(rules, "名字 name is 张伟 的")) == ["named 张伟"]  # both scripts: both languages are tried


@pytest.mark.parametrize(
    ("condition", "text", "fields", "holds"),
    [
        ({"length": {"min": 3, "max": 5}}, "abcd", {}, True),
        ({"length": {"max": 3}}, "abcd", {}, False),
        ({"language": "zh"}, "你好", {}, True),
        ({"language": ["en", "other"]}, "你好", {}, False),
        ({"role": "user"}, "x", {}, True),
        ({"agent": "shop-*"}, "x", {"agent_id": "shop-1"}, True),
        ({"agent": ["a", "b"]}, "x", {"agent_id": "c"}, False),
        ({"user": "ann"}, "x", {"user_id": "bob"}, False),
        ({"has": "number"}, "port 5433", {}, True),
        ({"has": ["url", "code"]}, "see https://a.b", {}, True),
        ({"has": "date"}, "下周五见", {}, True),
        ({"has": "date"}, "whenever", {}, False),
        ({"asserted": True}, "I like tea", {}, True),
        ({"asserted": True}, "do I like tea?", {}, False),
        ({"asserted": False}, "do I like tea?", {}, True),
        ({"any": [{"match": "a"}, {"match": "b"}]}, "b", {}, True),
        ({"all": [{"match": "a"}, {"match": "b"}]}, "b", {}, False),
        ({"not": {"match": "a", "length": {"min": 5}}}, "a", {}, True),
        ({"not": {"any": [{"match": "a"}, {"length": {"min": 5}}]}}, "a", {}, False),
    ],
)
def test_conditions(tmp_path: Path, condition: dict[str, Any], text: str, fields: dict[str, str], holds: bool) -> None:
    rules = policies(tmp_path, {"if": condition})
    assert bool(said(rules, text, **fields).drafts) is holds


def test_tool_conditions(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"when": "tool_result", "if": {"tool": "get_*", "status": "ok"}})

    def came(tool: str, status: Any) -> bool:
        return bool(evaluate(rules, Event("tool_result", "fine", "en", "tool", NOW, tool=tool, status=status)).drafts)

    assert [came("get_x", "ok"), came("get_x", "error"), came("set_x", "ok")] == [True, False, False]


def test_drop_ends_the_event_for_later_rules(tmp_path: Path) -> None:
    keep: dict[str, Any] = {}
    rules = policies(tmp_path, keep, {"if": {"match": "^hi"}, "drop": True}, keep)
    result = said(rules, "hi there")
    assert ([draft.rule_id for draft in result.drafts], result.dropped_by) == (["r0"], "r1")
    assert [draft.rule_id for draft in said(rules, "ho there").drafts] == ["r0", "r2"]


def test_shadow_rules_are_counted_and_write_nothing(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"mode": "shadow"}, {"mode": "shadow", "drop": True}, {"mode": "disabled"}, {})
    result = said(rules, "anything")
    assert (result.shadow, result.matched, result.dropped_by) == (("r0", "r1"), ("r3",), None)
    assert [draft.rule_id for draft in result.drafts] == ["r3"]


def test_unclaimed_leaves_words_to_the_rule_that_took_them(tmp_path: Path) -> None:
    special = {"if": {"match": r"port \d+"}}
    general = {"if": {"match": r"use \w+ \d+", "unclaimed": True}}
    rules = policies(tmp_path, special, general)
    assert [draft.rule_id for draft in said(rules, "use port 80. use node 18.").drafts] == ["r0", "r1"]


def test_draft_carries_what_write_says(tmp_path: Path) -> None:
    rule = {
        "if": {"match": r"(?P<what>[\w ]{1,30}) is on port (?P<port>\d+)"},
        "extract": {"template": "$what: $port ($$)"},
        "write": {
            "memory_type": "episodic",
            "kind": "fact",
            "scope": "user",
            "key": "port.$what",
            "tags": ["env", "$what"],
            "confidence": 0.7,
            "ttl": "2d",
            "on_conflict": "version",
            "link": "parent",
        },
    }
    rules = policies(tmp_path, rule)
    [draft] = said(rules, "Staging DB is on port 5433.").drafts
    assert (draft.content, draft.key, draft.tags) == ("Staging DB: 5433 ($)", "port.staging-db", ("env", "Staging DB"))
    assert (draft.memory_type, draft.scope, draft.ttl_s, draft.on_conflict) == ("episodic", "user", 172_800, "version")
    assert (draft.rule_id, draft.policy_hash, draft.link_parent) == ("r0", rules.hash, True)


def test_a_group_that_took_no_part_makes_no_draft_and_an_empty_one_does(tmp_path: Path) -> None:
    optional = {"if": {"match": "a(?P<x>b)?"}, "extract": {"template": "a$x"}}
    empty = {"if": {"match": "a(?P<x>b?)"}, "extract": {"template": "a$x"}}
    assert [draft.rule_id for draft in said(policies(tmp_path, optional, empty), "a").drafts] == ["r1"]


def test_verbatim_of_message_and_its_limit(tmp_path: Path) -> None:
    whole = {"extract": {"verbatim": {"of": "message", "max_chars": 20}}}
    assert contents(said(policies(tmp_path, whole), "One sentence. A second one here.")) == ["One sentence."]


def test_slots_from_captures_and_json_paths(tmp_path: Path) -> None:
    from_words = {
        "if": {"match": r"to (?P<place>\w+)"},
        "extract": {"slots": {"destination": "$place", "note": "going to $place"}},
        "write": {"memory_type": "working", "ttl": "10m"},
    }
    from_json = {
        "when": "tool_result",
        "extract": {"slots": {"first": "$.items[0].name", "names": "$.items[*].name", "none": "$.missing"}},
        "write": {"memory_type": "working"},
    }
    rules = policies(tmp_path, from_words, from_json)
    slots = said(rules, "I go to Rome").slots
    assert [(slot.name, slot.value, slot.ttl_s) for slot in slots] == [
        ("destination", "Rome", 600),
        ("note", "going to Rome", 600),
    ]
    data = {"items": [{"name": "a"}, {"name": "b"}]}
    result = evaluate(rules, Event("tool_result", "{}", "other", "tool", NOW, data=data))
    assert [(slot.name, slot.value) for slot in result.slots] == [("first", "a"), ("names", ["a", "b"])]


def test_template_text_may_fill_a_slot(tmp_path: Path) -> None:
    rule = {"if": {"match": "(?P<e>E\\d+)"}, "extract": {"template": "error $e"}}
    rules = policies(tmp_path, rule | {"write": {"memory_type": "working", "slot": "error"}})
    result = said(rules, "I see E42")
    assert ([(s.name, s.value) for s in result.slots], result.drafts) == ([("error", "error E42")], ())


def test_tool_confidence_is_capped(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"when": "tool_result", "write": {"memory_type": "episodic", "confidence": 0.9}})
    [draft] = evaluate(rules, Event("tool_result", "done", "en", "tool", NOW)).drafts
    assert draft.confidence == rules.guard.tool_confidence == 0.6


def test_turn_end_every_n(tmp_path: Path) -> None:
    rule = {"when": {"turn_end": {"every": 3}}, "write": {"memory_type": "episodic", "kind": "summary"}}
    rules = policies(tmp_path, rule)
    turns = [n for n in range(1, 8) if evaluate(rules, Event("turn_end", "x", "en", "assistant", NOW, turn=n)).drafts]
    assert turns == [3, 6]


def test_request_rules_look_at_user_and_system_text_apart(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"when": "request", "if": {"match": r"\ATask:"}, "drop": True})
    assert evaluate(rules, request_event("Task: x", "", NOW)).dropped_by == "r0"
    assert evaluate(rules, request_event("hello", "Task: x", NOW)).dropped_by == "r0"
    assert evaluate(rules, request_event("hello", "Do it. Task: x", NOW)).dropped_by is None


def test_curly_apostrophes_match_straight_ones(tmp_path: Path) -> None:
    assert said(policies(tmp_path, {"if": {"match": "I'm"}}), "I’m here").drafts


@pytest.mark.usefixtures("slow_patterns")
def test_a_pattern_that_runs_out_of_time_does_not_match_and_is_reported(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"if": {"match": "(?:x|xx)+$"}}, {})
    result = said(rules, "x" * 60 + "z")
    assert [draft.rule_id for draft in result.drafts] == ["r1"]
    assert result.timed_out == (("r0", "(?:x|xx)+$"),)


@pytest.mark.usefixtures("slow_patterns")
def test_a_pattern_that_is_too_slow_is_not_run_again_on_the_same_message(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"if": {"match": "x", "not": {"match": "(?:x|xx)+$"}}})
    result = said(rules, f"{'x' * 60}z. " * 10)
    # What could not be looked for counts as not found: the rule is not kept from matching.
    assert (result.matched, result.timed_out) == (("r0",), (("r0", "(?:x|xx)+$"),))


class Hindered:
    """A pattern's stand-in: the engine's clock runs `times` as fast as its own thread's, as on a busy machine."""

    def __init__(self, pattern: str, times: int) -> None:
        self.pattern, self._real, self._least = pattern, regex.compile(pattern), matcher.RUN_TIMEOUT_S * times

    def search(self, text: str, *, timeout: float) -> regex.Match[str] | None:
        return self._real.search(text) if timeout >= self._least else self._late()

    def finditer(self, text: str, *, timeout: float) -> Iterator[regex.Match[str]]:
        yield from self._real.finditer(text) if timeout >= self._least else self._late()

    def _late(self) -> NoReturn:
        raise TimeoutError


@pytest.mark.parametrize("times", [1, 2, 8])
def test_a_pattern_that_other_threads_keep_waiting_matches_all_the_same(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher, "compiled", lambda text, lines: Hindered(text, times))
    patterns, clock = Matcher.of(ByLanguage(en=("te.",))), Clock()
    first = patterns.first("tea, ten", None, ("en",), clock)
    every = [(found.start, found.end) for found in patterns.every("tea, ten", None, ("en",), clock)]
    assert (first and (first.start, first.end), every, clock.timed_out) == ((0, 3), [(0, 3), (5, 8)], [])


def test_a_pattern_that_is_kept_waiting_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "compiled", lambda text, lines: Hindered(text, 1_000))
    patterns, clock = Matcher.of(ByLanguage(en=("te.",))), Clock()
    assert [*patterns.every("tea, ten", None, ("en",), clock)] == []
    assert clock.timed_out == [("", "te.")]


def test_time_between_two_matches_is_not_the_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "RUN_TIMEOUT_S", 0.01)
    patterns, clock, found = Matcher.of(ByLanguage(en=("te.",))), Clock(), []
    for one in patterns.every("tea, ten", None, ("en",), clock):
        found.append(one.start)
        ready = time.thread_time() + 0.03
        while time.thread_time() < ready:  # what a caller does, like asking the store
            pass
    assert (found, clock.timed_out) == ([0, 5], [])


def test_trace_shows_every_condition_of_every_rule(tmp_path: Path) -> None:
    rules = policies(
        tmp_path,
        {"if": {"match": "I like (?P<t>\\w+)", "not": {"match": r"\?$"}, "agent": "shop"}},
        {"if": {"match": "(?P<t>jazz)"}},
        {"when": "session_end"},
        {"mode": "disabled"},
    )
    result = said(rules, "Hello. I like tea?", agent_id="shop")
    assert result.traces == ()
    traced = evaluate(
        rules, Event("user_message", "Hello. I like tea?", "en", "user", NOW, agent_id="shop"), trace=True
    )
    first, second, third, fourth = explain(traced)
    assert [(c["condition"], c["holds"], c["value"]) for c in first["conditions"]] == [
        ("if.agent", True, "shop"),
        ("if.match", True, "I like tea"),
        ("if.not.match", True, "?"),
        ("if.not", False, ""),
    ]
    assert (first["outcome"], first["text"]) == ("not matched", "I like tea?")
    assert second["conditions"][0]["expected"] == "(?P<t>jazz)"
    assert (third["outcome"], fourth["outcome"]) == ("waits for session_end", "disabled")
    json.dumps([first, second, third, fourth])


def test_trace_of_rules_after_a_drop(tmp_path: Path) -> None:
    rules = policies(tmp_path, {"drop": True}, {})
    traced = evaluate(rules, Event("user_message", "hi", "en", "user", NOW), trace=True)
    assert [entry["outcome"] for entry in explain(traced)] == ["dropped the event", "not reached: r0 dropped the event"]
    assert traced.drafts == ()


def test_trace_agrees_with_what_is_written(tmp_path: Path) -> None:
    claims = {"if": {"match": "I like (?P<t>\\w+)"}}
    rules = policies(tmp_path, claims, {"if": {"match": "like", "unclaimed": True}})
    traced = evaluate(rules, Event("user_message", "I like tea", "en", "user", NOW), trace=True)
    assert [entry["outcome"] for entry in explain(traced)] == ["matched", "not matched"]
    assert [draft for trace in traced.traces for draft in trace.drafts] == list(traced.drafts)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "。", "x" * 100_000, "\x00", "🎉" * 50, "我喜欢" * 3_000])
def test_odd_texts_do_no_harm(tmp_path: Path, text: str) -> None:
    rule = {"if": {"match": {"zh": "我喜欢(?P<t>.{1,9})", "en": "(?P<t>\\w+)"}, "asserted": True}}
    assert len(said(policies(tmp_path, rule, {"extract": {"verbatim": {"of": "message"}}}), text).drafts) <= 9
