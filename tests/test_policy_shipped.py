"""The shipped policies against real speech in both languages, and against what must never be stored."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import pytest
from ruamel.yaml import YAML

from proxy.embed import BUILTIN_MODEL, StaticEmbedder
from proxy.language import detect
from proxy.policy.load import load
from proxy.policy.match import Evaluation, evaluate, request_event
from proxy.policy.model import SweepStep
from proxy.policy.rules import PolicySet
from proxy.policy.schema import schema_text
from proxy.types import Event, Language
from proxy.value import WEIGHTS, ValueModel

POLICIES = Path(__file__).parent.parent / "policies"
NOW = datetime(2026, 1, 5, tzinfo=UTC)
CORPUS: dict[str, Any] = YAML(typ="safe").load((Path(__file__).parent / "policy_corpus.yaml").read_text("utf-8"))
ABOUT_THE_USER = {"preference", "fact", "instruction", "correction"}
NO_SPEECH = {"tool_result", "turn_end", "session_end", "request"}
MEANS = {
    "chitchat": "greetings and acknowledgements dropped",
    "preference-liked": "preference",
    "habit": "habit",
    "standing-instruction": "standing instruction",
    "fact-name": "personal fact",
    "env-port": "environment",
    "entity-person": "new person",
    "entity-project": "new project",
    "plan": "new date",
    "decision": "decision needing follow-up",
    "constraint-rule": "constraint and requirement",
    "positive-feedback": "positive feedback",
    "negative-feedback": "negative feedback",
    "corrected": "explicit correction",
    "remember-this": "explicit remember",
    "forget-about": "explicit forget",
    "forget-last": "forget what was said last",
    "restore-last": "taking a forget back",
    "tool-result-data": "structured result to a slot",
    "tool-result-text": "result in words",
    "tool-failed": "tool failed",
    "task-completed": "task completed",
    "task-progress": "task progress",
    "session-summary": "session end: summary",
    "session-points": "session end: key points",
    "task-destination": "task slots",
    "background-title": "background calls dropped",
    "user-turn": "raw trace",
    "nightly-sweep": "long unused archived",
    "reflection": "reflection",
    "own-words": "what patterns miss",
}
"""What policies.md says that the shipped policies cover: a rule of each, with the words."""
OF_ONE_AGENT = {"environment", "constraint", "note", "own_words"}
"""Tags of facts that are kept for the agent they were told to."""


class Classifier:
    """Knowledge of an empty store, with the shipped value classifier."""

    def __init__(self) -> None:
        self.embedder = StaticEmbedder(BUILTIN_MODEL)
        self.model = ValueModel.load(WEIGHTS, self.embedder.fingerprint)

    def known(self, text: str) -> bool:
        return False

    def similar(self, text: str, kind: str | None) -> float:
        return 0.0

    def value(self, text: str, language: Language) -> float:
        assert self.model is not None, "the shipped weights are of the shipped embedder"
        return self.model.score(text, self.embedder.documents([text])[0])


@lru_cache(maxsize=1)
def shipped() -> PolicySet:
    return load([POLICIES])


@lru_cache(maxsize=1)
def classifier() -> Classifier:
    return Classifier()


def said(text: str, *, role: str = "user") -> Evaluation:
    return evaluate(shipped(), Event("user_message", text, detect(text), role, NOW), knowledge=classifier())


def memories(text: str) -> list[str]:
    return [f"{draft.kind}: {draft.content}" for draft in said(text).drafts if draft.kind != "turn"]


@pytest.mark.parametrize("text", CORPUS["said"])
def test_what_is_said_becomes_these_memories(text: str) -> None:
    assert memories(text) == CORPUS["said"][text]


@pytest.mark.parametrize("text", CORPUS["nothing"])
def test_nothing_is_taken_for_the_users_own(text: str) -> None:
    assert memories(text) == []


@pytest.mark.parametrize("text", CORPUS["slots"])
def test_task_slots_from_the_users_words(text: str) -> None:
    assert {slot.name: slot.value for slot in said(text).slots} == CORPUS["slots"][text]


def test_corpus_is_large_and_in_both_languages() -> None:
    texts = [*CORPUS["said"], *CORPUS["nothing"]]
    assert len(texts) >= 120
    assert min(sum(detect(text) == language for text in texts) for language in ("zh", "en")) >= 60


def test_every_rule_has_four_examples_two_of_them_without_effect_and_both_languages() -> None:
    for rule in shipped().triggers:
        if rule.trigger.sweep is not None:
            continue  # a sweep looks at all that is stored; the loader lets it have no examples
        examples = rule.trigger.examples
        assert len(examples) >= 4, rule.id
        assert sum(example.expect == "ignored" for example in examples) >= 2, rule.id
        assert sum(example.expect != "ignored" for example in examples) >= 2, rule.id
        said_in = {detect(str(example.model_dump(exclude={"expect"}, exclude_unset=True))) for example in examples}
        assert said_in >= {"zh", "en"} or rule.event in NO_SPEECH, rule.id


def test_every_rule_says_why() -> None:
    assert all(rule.trigger.why for rule in shipped().triggers)


@pytest.mark.parametrize("rule_id", MEANS)
def test_shipped_policies_cover(rule_id: str) -> None:
    [rule] = [rule for rule in shipped().triggers if rule.id == rule_id]
    assert rule.mode == "live", MEANS[rule_id]


def test_every_pattern_about_the_user_exists_in_both_languages() -> None:
    for rule in shipped().triggers:
        if rule.event == "user_message" and rule.ready.source is not None:
            assert {"zh", "en"} <= set(rule.ready.source.patterns), rule.id


def test_what_is_about_the_user_is_for_all_agents_and_the_rest_for_one() -> None:
    for rule in shipped().triggers:
        write = rule.trigger.write
        if write is None or write.memory_type == "working":
            continue
        surroundings = "health" not in write.tags and bool(OF_ONE_AGENT & set(write.tags))
        expected = "agent" if surroundings or write.kind not in {*ABOUT_THE_USER, "feedback", "entity"} else "user"
        assert write.scope == expected, rule.id


def test_single_valued_facts_have_a_key_so_that_a_correction_finds_them() -> None:
    first = said("我叫李雷，住在杭州").drafts
    second = said("其实我住在上海").drafts
    assert [draft.key for draft in first if draft.kind != "turn"] == ["user.name", "user.home"]
    assert second[0].key == "user.home"
    assert second[0].on_conflict == "supersede"
    assert said("Our staging server listens on port 2222.").drafts[0].key == "env.port.staging"


def test_correction_is_forced() -> None:
    [draft] = [d for d in said("No, I meant the blue one").drafts if d.kind != "turn"]
    assert (draft.kind, draft.on_conflict) == ("correction", "supersede")


def test_values_stay_as_they_were_written() -> None:
    assert "--port=2222" in memories("To run the tests we use pytest -q --port=2222 -x")[0]
    assert "10.0.0.5:5432" in memories("our staging db runs on 10.0.0.5:5432")[0]
    assert "15.3" in memories("我们的 Postgres 版本是 15.3")[0]


def test_several_facts_of_one_message_become_several_memories() -> None:
    text = "Hi! My name is Ann. I live in Berlin and I work at Siemens. I prefer short answers. Can you help?"
    assert memories(text) == [
        "preference: The user prefers short answers",
        "fact: The user's name is Ann",
        "fact: The user lives in Berlin",
        "fact: The user works at Siemens",
    ]


def test_turn_is_kept_verbatim_at_low_confidence() -> None:
    text = "我们的测试库昨天挂了两次，怀疑是磁盘满了。怎么办？"
    [turn] = [draft for draft in said(text).drafts if draft.kind == "turn"]
    assert (turn.content, turn.confidence, turn.memory_type, turn.scope) == (text, 0.3, "episodic", "agent")


@pytest.mark.parametrize(
    "text",
    [
        "怎么重启 Docker？",
        "帮我写一个脚本",
        "please list the open issues",
        "How do I restart it?",
        "你好",
        "thanks!",
        "Translate this:\nThe staging box went down twice yesterday.",
        "You are a pirate. You sail the seven seas and hate the navy.",
        "如果服务器昨天挂了两次呢",
    ],
)
def test_turn_is_not_kept_for_questions_orders_talk_pasted_text_and_play(text: str) -> None:
    assert said(text).drafts == ()


def test_pasted_mail_is_nobodys_statement() -> None:
    mail = "Please answer this mail:\nFrom: bob@example.com\nSubject: hi\n\nHi, I'm Bob. I live in Rome. I like tea."
    assert said(mail).drafts == ()
    assert said("> I live in Rome\n> I like tea\nWhat does he want?").drafts == ()
    assert said("```\nI like tea. My name is Bob.\n```\nWhat is this?").drafts == ()


def test_own_words_before_pasted_text_are_kept() -> None:
    assert memories("My name is Ann. Summarize this mail:\nHi, my name is Bob.") == ["fact: The user's name is Ann"]


@pytest.mark.parametrize("text", ["My name is Bob and I live in Rome.", "我叫李雷，我喜欢茶，以后都用中文回答"])
def test_what_the_assistant_says_is_never_the_users(text: str) -> None:
    for kind in ("assistant_message", "turn_end"):
        event = Event(kind, text, detect(text), "assistant", NOW, finish_reason="stop", user_text="谁")
        assert evaluate(shipped(), event).drafts == ()


def test_unfinished_answer_makes_no_task() -> None:
    text = "I've booked a table for 4 on Friday."
    cut = Event("turn_end", text, "en", "assistant", NOW, finish_reason=None, user_text="Book a table")
    whole = Event("turn_end", text, "en", "assistant", NOW, finish_reason="stop", user_text="Book a table")
    assert evaluate(shipped(), cut).drafts == ()
    assert [draft.kind for draft in evaluate(shipped(), whole).drafts] == ["task"]


def test_tool_results() -> None:
    data = {"hotels": [{"name": "Ryokan"}]}
    event = Event("tool_result", '{"hotels": []}', "en", "tool", NOW, tool="search", data=data, status="ok")
    result = evaluate(shipped(), event)
    assert [(slot.name, slot.value) for slot in result.slots] == [("tool.search", data)]
    assert result.drafts == ()


def test_tool_failure_is_noted_in_the_users_language_with_capped_confidence() -> None:
    event = Event(
        "tool_result", "Error: refused", "en", "tool", NOW, tool="book", status="error", user_text="帮我订机票"
    )
    [draft] = evaluate(shipped(), event).drafts
    assert draft.content == "工具 book 失败：Error: refused"
    assert draft.confidence <= shipped().guard.tool_confidence
    assert draft.link_parent


@pytest.mark.parametrize(
    ("system", "user"),
    [
        ("", "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history."),
        ("", "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history"),
        ("", "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next"),
        ("", "### Task:\nYou are an autocompletion system. Continue the text in `<text>`"),
        ("You are a title generator. You output ONLY a thread title.", "fix the build"),
        ("你是一名擅长会话的助理，你需要将用户的会话总结为 10 个字以内的标题", "用户：你好"),
        ("", "请为以下对话生成一个标题：\n用户：你好"),
        ("", "Given the following conversation, please reply with a title for the chat that is 3-4 words in length"),
        ("", "Write a 5-10 word title for the following conversation:\n\nUser: hi"),
        ("", "Generate a concise 3-7 word title for this conversation, omitting punctuation."),
    ],
)
def test_background_calls_are_dropped(system: str, user: str) -> None:
    assert evaluate(shipped(), request_event(user, system, NOW)).dropped_by is not None


@pytest.mark.parametrize(
    ("system", "user"),
    [
        ("You are a coding agent. You may generate a title for the conversation when asked.", "add a test"),
        ("You are a helpful assistant.", "Give me ten titles for my blog post"),
        ("", "帮我给论文起个标题"),
        ("", "How do I turn on autocompletion?"),
        ("", "总结一下这次会议的要点"),
        ("", ""),
    ],
)
def test_real_calls_are_not_dropped(system: str, user: str) -> None:
    assert evaluate(shipped(), request_event(user, system, NOW)).dropped_by is None


def test_schema_file_is_current() -> None:
    stored = (POLICIES / "schema.json").read_text("utf-8")
    assert stored == schema_text(), "run: python -m proxy.policy.schema > policies/schema.json"


def test_first_line_of_every_file_names_the_schema() -> None:
    for file in POLICIES.glob("*.yaml"):
        assert file.read_text("utf-8").startswith("# yaml-language-server: $schema=./schema.json\n"), file


def test_forgetting_names_what_is_meant_or_means_what_was_said_last() -> None:
    asked = (
        "忘掉我住址的事吧",
        "Please forget my old address.",
        "算了，忘掉刚才那句话",
        "Scratch that.",
        "等等，别忘了那条",
    )
    found = [said(text).forgets for text in asked]
    assert [(one.about, one.restore) for [one] in found] == [
        ("我住址", False),
        ("my old address", False),
        (None, False),
        (None, False),
        (None, True),
    ]


@pytest.mark.parametrize(
    "text", ["我又忘了带钥匙", "别忘了周五交报告", "Don't forget it!", "I forgot.", "怎么恢复误删的文件？"]
)
def test_talk_about_forgetting_forgets_nothing(text: str) -> None:
    assert said(text).forgets == ()


def test_request_to_forget_makes_no_memory_of_its_own() -> None:
    assert memories("Forget that I like coriander.") == []
    assert memories("把我过敏的记录删掉") == []


def test_session_end_makes_a_summary_and_points_that_a_later_end_replaces() -> None:
    data = {"summary": "用户搬了测试库", "points": ["端口是 5433"], "session_id": "s-1", "turns": 4, "explicit": False}
    event = Event("session_end", "我们把测试库搬了", "zh", "user", NOW, data=data, user_text="我们把测试库搬了")
    drafts = evaluate(shipped(), event).drafts
    assert [(draft.kind, draft.key, draft.on_conflict) for draft in drafts] == [
        ("summary", "session.s-1", "supersede"),
        ("summary", "points.s-1", "supersede"),
    ]


def test_known_person_is_not_introduced_again() -> None:
    class Acquainted(Classifier):
        def known(self, text: str) -> bool:
            return text == "Marta"

    event = Event("user_message", "Our team lead is Marta.", "en", "user", NOW)
    assert "entity-person" not in evaluate(shipped(), event, knowledge=Acquainted()).matched
    assert "entity-person" in evaluate(shipped(), event, knowledge=classifier()).matched


def test_own_words_need_the_classifier_and_yield_to_every_rule() -> None:
    assert said("我的工位在 12 楼 B 区").matched[-2:] == ("own-words", "user-turn")
    assert "own-words" not in said("我喜欢茶").matched
    assert "own-words" not in said("我回来了，接着聊").matched


def test_sweeps_cover_every_step() -> None:
    steps = [step for rule in shipped().schedules for step in rule.trigger.sweep or ()]
    assert sorted(steps) == sorted(get_args(SweepStep))
