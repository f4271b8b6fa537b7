"""What rules do besides writing: forget, restore, ask a model, sweep; and what they ask of stored memories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.enclosure import enclose
from proxy.language import detect
from proxy.policy.explain import explain
from proxy.policy.knowledge import NOTHING_KNOWN, Knowledge
from proxy.policy.llm import LlmTask, answered
from proxy.policy.load import load
from proxy.policy.match import Evaluation, ForgetRequest, evaluate
from proxy.policy.rules import PolicySet
from proxy.types import Event, EventType, Language

NOW = datetime(2026, 1, 5, tzinfo=UTC)
LLM: dict[str, Any] = {"model": "extractor", "prompt": "Facts in: $text", "daily_tokens": 900, "timeout": "5s"}
LIKES = {"match": r"I like (?P<thing>\w+)"}


def policies(folder: Path, *rules: dict[str, Any], models: Sequence[str] = ("extractor",)) -> PolicySet:
    full = [{"id": f"r{number}", "when": "user_message"} | rule for number, rule in enumerate(rules)]
    for rule in full:
        if not {"drop", "forget", "restore", "sweep"} & rule.keys():
            rule.setdefault("extract", {"verbatim": {}})
            rule.setdefault("write", {"memory_type": "semantic", "confidence": 0.7})
    path = folder / "rules.yaml"
    path.write_text(json.dumps({"version": 1, "triggers": full}, ensure_ascii=False), "utf-8")
    return load([path], models=models)


def came(rules: PolicySet, text: str, kind: EventType = "user_message", **fields: Any) -> Evaluation:
    knowledge = fields.pop("knowledge", NOTHING_KNOWN)
    role = "assistant" if kind == "turn_end" else "user"
    return evaluate(rules, Event(kind, text, detect(text), role, NOW, **fields), knowledge=knowledge)


@dataclass
class Stored:
    """Knowledge that notes what it was asked."""

    names: frozenset[str] = frozenset()
    similarity: float = 0.0
    worth: float = 1.0
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def known(self, text: str) -> bool:
        self.asked.append(("known", text))
        return text in self.names

    def similar(self, text: str, kind: str | None) -> float:
        self.asked.append(("similar", text, kind or ""))
        return self.similarity

    def value(self, text: str, language: Language) -> float:
        self.asked.append(("value", text, language))
        return self.worth


# ── forgetting ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_forget_and_restore_say_about_what(tmp_path: Path) -> None:
    rules = policies(
        tmp_path,
        {
            "if": {"match": {"zh": "忘掉(?P<x>.+)", "en": "forget (?P<x>.+)"}},
            "extract": {"template": "$x"},
            "forget": True,
        },
        {"if": {"match": "never mind, keep (?P<x>.+)"}, "extract": {"template": "$x"}, "restore": True},
        {"if": {"match": "forget that"}, "forget": True},
    )
    assert came(rules, "忘掉我的地址。").forgets == (ForgetRequest("r0", "我的地址", False),)
    assert came(rules, "never mind, keep my address").forgets == (ForgetRequest("r1", "my address", True),)
    assert came(rules, "Please forget my address. And forget that").forgets[-1] == ForgetRequest("r2", None, False)


def test_nothing_captured_is_no_request_to_forget_what_was_said_last(tmp_path: Path) -> None:
    rule = {"if": {"match": "forget(?P<x>.*)"}, "extract": {"template": "$x"}, "forget": True}
    assert came(policies(tmp_path, rule), "forget...").forgets == ()


def test_a_forget_request_claims_its_words_and_is_dropped_or_shadowed_like_any_rule(tmp_path: Path) -> None:
    forget = {"if": {"match": "forget"}, "forget": True}
    rules = policies(tmp_path, forget, {"if": {"unclaimed": True, "match": "forget"}})
    assert came(rules, "forget it").drafts == ()
    shadow = came(policies(tmp_path, forget | {"mode": "shadow"}), "forget it")
    assert (shadow.forgets, shadow.shadow) == ((), ("r0",))


# ── asking a model ────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_rule_asks_once_about_all_it_matched_and_brings_its_fallback(tmp_path: Path) -> None:
    rule = {
        "if": LIKES,
        "extract": {"llm": LLM | {"otherwise": "template"}, "template": "likes $thing"},
        "write": {"memory_type": "semantic", "kind": "preference", "key": "like.$thing", "confidence": 0.7},
    }
    rules = policies(tmp_path, rule, {"if": LIKES | {"unclaimed": True}})
    result = came(rules, "Hello. I like tea. I like jazz!")
    [task] = result.llm
    assert task.prompt == "Facts in: " + enclose("I like tea.\nI like jazz!")
    assert (task.model, task.timeout_s, task.daily_tokens, task.policy_hash) == ("extractor", 5, 900, rules.hash)
    assert [draft.content for draft in task.fallback] == ["likes tea", "likes jazz"]
    assert (task.draft.content, task.draft.key, task.draft.kind) == ("", "like.tea", "preference")
    assert (result.drafts, result.matched) == ((), ("r0",))


@pytest.mark.parametrize(
    ("otherwise", "contents"), [("nothing", []), ("verbatim", ["I like tea."]), ("template", ["likes tea"])]
)
def test_without_the_model_a_rule_takes_what_otherwise_says(
    tmp_path: Path, otherwise: str, contents: list[str]
) -> None:
    beside = {"template": "likes $thing"} if otherwise == "template" else {}
    rule = {"if": LIKES, "extract": {"llm": LLM | {"otherwise": otherwise}} | beside}
    result = came(policies(tmp_path, rule, models=()), "I like tea.")
    assert (result.llm, [draft.content for draft in result.drafts]) == ((), contents)
    [task] = came(policies(tmp_path, rule), "I like tea.").llm
    assert [draft.content for draft in task.fallback] == contents


def test_a_prompt_may_hold_captures_the_whole_message_and_a_dollar(tmp_path: Path) -> None:
    prompt = "$thing of '$message' for 5 $$"
    rules = policies(tmp_path, {"if": LIKES, "extract": {"llm": LLM | {"prompt": prompt}}})
    asked = came(rules, "Hi. I like tea.\n> quoted").llm[0].prompt
    assert asked == f"{enclose('tea')} of '{enclose('Hi. I like tea.')}' for 5 $"
    optional = {"if": {"match": r"like(?P<thing> \w+)?"}, "extract": {"llm": LLM | {"prompt": prompt}}}
    assert came(policies(tmp_path, optional), "like!").llm == ()


def task_of(tmp_path: Path, kind: EventType = "user_message") -> LlmTask:
    write = {"memory_type": "semantic", "kind": "task", "confidence": 0.7, "tags": ["t"], "scope": "user"}
    [task] = came(policies(tmp_path, {"when": kind, "extract": {"llm": LLM}, "write": write}), "x", kind).llm
    return task


@pytest.mark.parametrize(
    ("answer", "contents"),
    [
        ({"memories": ["a", {"content": " b\n c "}, {"content": "a"}, {"content": ""}, 7, None]}, ["a", "b c"]),
        (["a"], ["a"]),
        ({"content": "a"}, ["a"]),
        ("a", ["a"]),
        ({"memories": "a"}, ["a"]),
        ({"facts": ["a"]}, []),
        (None, []),
        ({"memories": [["a"]]}, []),
        ([f"m{number}" for number in range(99)], [f"m{number}" for number in range(20)]),
    ],
)
def test_an_answer_may_come_in_several_forms(tmp_path: Path, answer: Any, contents: list[str]) -> None:
    assert [draft.content for draft in answered(task_of(tmp_path), answer)] == contents


def test_an_answer_stays_within_the_rules_bounds(tmp_path: Path) -> None:
    item = {
        "content": "用户喜欢茶",
        "kind": "preference",
        "key": " drink ",
        "tags": ["x", 3, "t"],
        "confidence": 0.99,
        "memory_type": "episodic",
        "scope": "shared",
    }
    [draft] = answered(task_of(tmp_path), item)
    assert (draft.kind, draft.key, draft.tags, draft.confidence) == ("preference", "drink", ("t", "x"), 0.7)
    assert (draft.memory_type, draft.scope, draft.language) == ("episodic", "user", "zh")
    odd = {"content": "x", "kind": "No Kind", "confidence": True, "memory_type": "working", "tags": "x", "key": 3}
    [draft] = answered(task_of(tmp_path), odd)
    assert draft == replace(task_of(tmp_path).draft, content="x", language="en")
    [low] = answered(task_of(tmp_path), {"content": "x", "confidence": 0.2})
    assert low.confidence == 0.2


def test_a_model_cannot_make_the_assistants_words_the_users(tmp_path: Path) -> None:
    task = task_of(tmp_path, "turn_end")
    kinds = [answered(task, {"content": "x", "kind": kind})[0].kind for kind in ("preference", "decision")]
    assert kinds == ["task", "decision"]


# ── what is stored ────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("condition", "knowledge", "holds"),
    [
        ({"known": False}, NOTHING_KNOWN, True),
        ({"known": True}, NOTHING_KNOWN, False),
        ({"value": {"at_least": 1.0}}, NOTHING_KNOWN, True),
        ({"similar_to_existing": {"at_least": 0.1}}, NOTHING_KNOWN, False),
        ({"known": False}, Stored(frozenset({"Ann", "Rome"})), False),
        ({"known": False}, Stored(frozenset({"Ann"})), True),
        ({"known": True}, Stored(frozenset({"Ann", "Rome"})), True),
        ({"value": {"at_least": 0.5}}, Stored(worth=0.4), False),
        ({"value": {"at_least": 0.5}}, Stored(worth=0.5), True),
        ({"similar_to_existing": {"at_least": 0.9, "kind": "fact"}}, Stored(similarity=0.9), True),
        ({"not": {"similar_to_existing": {"at_least": 0.9}}}, Stored(similarity=0.95), False),
        ({"any": [{"known": True}, {"value": {"at_least": 0.9}}]}, Stored(worth=0.9), True),
    ],
)
def test_conditions_on_what_is_stored(
    tmp_path: Path, condition: dict[str, Any], knowledge: Knowledge, holds: bool
) -> None:
    rules = policies(tmp_path, {"if": {"match": r"met (?P<who>\w+) in (?P<where>\w+)"} | condition})
    assert bool(came(rules, "I met Ann in Rome", knowledge=knowledge).drafts) is holds


def test_the_store_is_asked_last_and_once_about_each_text(tmp_path: Path) -> None:
    one = {"if": {"match": r"met (?P<who>\w+)", "known": False, "value": {"at_least": 0.1}}}
    never = {"if": {"match": "met", "known": False, "length": {"max": 2}}}
    stored = Stored()
    came(policies(tmp_path, one, one, never), "I met Ann.", knowledge=stored)
    assert stored.asked == [("known", "Ann"), ("value", "I met Ann.", "en")]


def test_without_captures_the_text_itself_is_looked_up(tmp_path: Path) -> None:
    stored = Stored(frozenset({"I like tea."}))
    assert came(policies(tmp_path, {"if": {"known": False}}), "I like tea. I like jazz.", knowledge=stored).drafts[
        0
    ].content == ("I like jazz.")


def test_explain_shows_the_new_conditions_with_their_values(tmp_path: Path) -> None:
    rules = policies(
        tmp_path,
        {
            "if": {
                "match": r"met (?P<who>\w+)",
                "known": False,
                "value": {"at_least": 0.5},
                "similar_to_existing": {"at_least": 0.8, "kind": "entity"},
            },
            "extract": {"llm": LLM},
        },
        {"if": {"match": "met"}, "forget": True},
        {"when": {"schedule": "daily 03:00"}, "sweep": ["expire"]},
    )
    stored = Stored(frozenset({"Bob"}), similarity=0.8123, worth=0.4)
    event = Event("user_message", "I met Ann.", "en", "user", NOW)
    first, second, third = explain(evaluate(rules, event, knowledge=stored, trace=True))
    assert [(c["condition"], c["expected"], c["value"], c["holds"]) for c in first["conditions"][1:]] == [
        ("if.known", "false", "false", True),
        ("if.value", "at least 0.5", "0.4", False),
        ("if.similar_to_existing", "at least 0.8 to a memory of kind entity", "0.812", True),
    ]
    assert second["forgets"] == [{"rule_id": "r1", "action": "forget", "about": None}]
    assert third["outcome"] == "waits for schedule"
    stored.worth = 0.9
    [first, *_] = explain(evaluate(rules, event, knowledge=stored, trace=True))
    prompt = "Facts in: " + enclose("I met Ann.")
    assert first["llm"] == [{"rule_id": "r0", "model": "extractor", "prompt": prompt, "fallback": []}]


# ── schedules and session ends ────────────────────────────────────────────────────────────────────────────────────
def test_schedules_are_listed_and_sweeps_answer_no_event(tmp_path: Path) -> None:
    weekly = {"when": {"schedule": "weekly sun 04:00"}, "extract": {"template": "seen: $text"}}
    sweep = {"when": {"schedule": "daily 03:00"}, "sweep": ["expire", "reflect"]}
    rules = policies(tmp_path, sweep, {}, weekly, sweep | {"mode": "disabled"}, weekly)
    assert [(rule.id, rule.schedule and rule.schedule.every) for rule in rules.schedules] == [
        ("r0", "daily"),
        ("r2", "weekly"),
        ("r4", "weekly"),
    ]
    assert [draft.rule_id for draft in came(rules, "a\nb", "schedule").drafts] == ["r2", "r4"]
    alone = rules.alone(rules.schedules[1])
    assert [draft.content for draft in came(alone, "a\nb", "schedule").drafts] == ["seen: a b"]
    assert came(alone, "a", "schedule").drafts[0].policy_hash == rules.hash


def test_session_end_gives_its_summary_and_points(tmp_path: Path) -> None:
    write = {"memory_type": "episodic", "kind": "summary", "key": "session.$session"}
    summary = {"when": "session_end", "extract": {"template": "$summary"}, "write": write}
    points = {"when": "session_end", "extract": {"template": {"zh": "要点：$points", "en": "Points: $points"}}}
    rules = policies(tmp_path, summary, points)
    data = {"summary": "Moved the port. It works.", "points": ["port 5433.", "restart"], "session_id": "S 1"}
    first, second = came(rules, "text", "session_end", data=data).drafts
    assert (first.content, first.key) == ("Moved the port. It works", "session.S 1")
    assert second.content == "Points: port 5433; restart"
    assert came(rules, "改了端口", "session_end", data=data).drafts[1].content == "要点：port 5433；restart"
    nothings: list[Any] = [None, {}, {"summary": "", "points": []}, [], "x"]
    for nothing in nothings:
        assert came(rules, "text", "session_end", data=nothing).drafts == ()


# ── examples ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_examples_test_every_new_part(tmp_path: Path) -> None:
    rules = policies(
        tmp_path,
        {
            "if": LIKES
            | {"known": False, "value": {"at_least": 0.5}, "not": {"similar_to_existing": {"at_least": 0.9}}},
            "extract": {"llm": LLM | {"otherwise": "template"}, "template": "likes $thing"},
            "examples": [
                {"user": "I like tea", "expect": [{"content": "likes tea"}]},
                {"user": "I like tea", "answer": {"memories": ["Tea!"]}, "expect": [{"content": "Tea!"}]},
                {"user": "I like tea", "answer": {"memories": []}, "expect": "ignored"},
                {"user": "I like tea", "known": ["Tea"], "expect": "ignored"},
                {"user": "I like tea", "value": 0.2, "expect": "ignored"},
                {"user": "I like tea", "similar": 0.95, "expect": "ignored"},
            ],
        },
        {
            "if": {"match": "forget (?P<x>.+)"},
            "extract": {"template": "$x"},
            "forget": True,
            "examples": [
                {"user": "forget me", "expect": "forgets"},
                {"user": "forget me", "expect": [{"forget": "me"}]},
                {"user": "keep me", "expect": "ignored"},
            ],
        },
        {
            "if": {"match": "undo"},
            "restore": True,
            "examples": [{"user": "undo", "expect": "restores"}, {"user": "undo", "expect": [{"restore": None}]}],
        },
        {
            "when": {"schedule": "daily 03:00"},
            "if": {"match": "tea.*\n.*tea"},
            "extract": {"template": "often: $text"},
            "write": {"memory_type": "reflective", "kind": "lesson"},
            "examples": [
                {"episodes": ["had tea", "had tea"], "expect": [{"content": "often: had tea had tea"}]},
                {"episodes": ["had tea"], "expect": "ignored"},
            ],
        },
        {
            "when": "session_end",
            "extract": {"template": "$summary"},
            "examples": [
                {"session_end": {"summary": "Done", "points": ["a"]}, "expect": [{"content": "Done"}]},
                {"session_end": "only text", "expect": "ignored"},
            ],
        },
        models=(),
    )
    assert len(rules.triggers) == 5
