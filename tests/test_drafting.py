"""From turns to drafts: which words are looked at, in what wording they come out, and what a model is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from proxy.drafting import Drafted, Drafting
from proxy.ending import BACKFILL_TAG
from proxy.extractor import Extraction, Extractor
from proxy.metrics import Metrics
from proxy.plugs import JournalTurn
from proxy.policy.llm import LlmTask
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.types import Answer, Draft, Event
from tests.store_samples import ALICE, START, memory, put, said, turn
from tests.sweep_samples import EMBEDDER, opened
from tests.write_back import rules

RULES = r"""
triggers:
  - id: likes
    when: user_message
    if: {match: {zh: '我喜欢(?P<what>[^。]+)', en: 'I like (?P<what>[^.]+)'}}
    extract: {template: {zh: 用户喜欢$what, en: The user likes $what}}
    write: {memory_type: semantic, kind: preference, scope: user, confidence: 0.9}
  - id: goes
    when: user_message
    if: {match: {zh: '我要去(?P<what>[^。]+)', en: 'I go to (?P<what>[^.]+)'}}
    extract: {slots: {place: $what}}
    write: {memory_type: working}
  - id: on-trial
    mode: shadow
    when: user_message
    if: {match: {zh: 我喜欢, en: I like}}
    extract: {verbatim: {of: sentence}}
    write: {memory_type: semantic, kind: fact, confidence: 0.9}
  - id: forgets
    when: user_message
    if: {match: {zh: 忘掉吧, en: forget it}}
    forget: true
  - id: raw
    when: user_message
    if: {length: {min: 4}}
    extract: {verbatim: {of: message, max_chars: 400}}
    write: {memory_type: episodic, kind: turn, confidence: 0.4}
  - id: answered
    when: assistant_message
    extract: {verbatim: {of: message, max_chars: 400}}
    write: {memory_type: episodic, kind: task, confidence: 0.5}
"""
BY_MODEL = r"""
triggers:
  - id: plans
    when: user_message
    if: {match: 'I plan'}
    extract:
      llm: {model: extractor, prompt: "Which plans? $text", timeout: 20s, otherwise: verbatim}
      verbatim: {of: sentence}
    write: {memory_type: semantic, kind: decision, confidence: 0.7}
"""


class Asked(Extractor):
    """Stands for a model: answers what it is told to."""

    def __init__(self, *answers: str, fell_back: str | None = None) -> None:
        self.answers, self.fell_back = answers, fell_back
        self.tasks: list[tuple[LlmTask, Scope]] = []

    def extraction(self, task: LlmTask, scope: Scope) -> Extraction:
        self.tasks.append((task, scope))
        if self.fell_back is not None:
            return Extraction(task.fallback, self.fell_back)
        return Extraction(tuple(replace(task.draft, content=one) for one in self.answers))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store of this test's own."""
    with opened(tmp_path) as one:
        yield one


@pytest.fixture
def policies(tmp_path: Path) -> PolicySet:
    """The rules above."""
    return rules(tmp_path, RULES)


def drafting(store: SqliteStore, extractor: Extractor | None = None, zone: str = "UTC") -> Drafting:
    """Without a value classifier."""
    return Drafting(store, EMBEDDER, None, extractor, ZoneInfo(zone), Metrics())


def answered(*new: str, answer: Answer | None = None, **fields: Any) -> JournalTurn:
    """A turn with its answer."""
    opened_turn = turn(*map(said, new), user_text=new[-1] if new else "", **fields)
    return replace(opened_turn, answer=answer or Answer("OK", finish_reason="stop"))


def drafts(made: Drafted) -> list[tuple[str, str]]:
    """Rules and contents, those of the answer left out."""
    return [(draft.rule_id, draft.content) for draft, _ in made.drafts if draft.rule_id != "answered"]


def contents(made: Sequence[tuple[Draft, Event]], rule: str) -> list[str]:
    """What one rule's drafts say."""
    return [draft.content for draft, _ in made if draft.rule_id == rule]


def test_new_words_become_drafts_slots_and_requests_each_with_its_event(
    store: SqliteStore, policies: PolicySet
) -> None:
    made = drafting(store).turn(answered("I like tea", "I go to Rome, forget it"), policies, fresh=True)
    assert contents(made.drafts, "likes") == ["The user likes tea"]
    [(slot, of_slot)] = made.slots
    assert (slot.name, slot.value, of_slot.text) == ("place", "Rome, forget it", "I go to Rome, forget it")
    [(request, of_request)] = made.forgets
    assert (request.rule_id, of_request.message_hash) == ("forgets", said("I go to Rome, forget it").hash)
    assert made.notes == []


def test_words_that_were_seen_before_are_left_out_and_only_the_answer_is_looked_at(
    store: SqliteStore, policies: PolicySet
) -> None:
    one = answered("I like tea", backfill=(said("I like jazz"),), answer=Answer("Noted, tea.", finish_reason="stop"))
    made = drafting(store).turn(one, policies, fresh=False)
    assert [draft.rule_id for draft, _ in made.drafts] == ["answered"]
    assert (made.slots, made.forgets) == ([], [])


def test_of_what_was_said_before_the_thread_came_only_raw_turns_stay_at_low_confidence(
    store: SqliteStore, policies: PolicySet
) -> None:
    earlier = (said("I like jazz"), said("Of course.", role="assistant"), said("I like opera, forget it"))
    made = drafting(store).turn(answered("And now?", backfill=earlier), policies, fresh=True)
    backfilled = [draft for draft, _ in made.drafts if BACKFILL_TAG in draft.tags]
    assert [(draft.content, draft.kind, draft.confidence) for draft in backfilled] == [("I like jazz", "turn", 0.3)]
    assert made.forgets == []


@pytest.mark.parametrize(
    ("zone", "text", "content"),
    [
        # 17:30 UTC on the 2nd is the 3rd in Shanghai.
        ("UTC", "我喜欢明天的安排。", "用户喜欢 2026-11-03 的安排"),
        ("Asia/Shanghai", "我喜欢明天的安排。", "用户喜欢 2026-11-04 的安排"),
        ("UTC", "I like the plan for tomorrow.", "The user likes the plan for 2026-11-03"),
        ("Asia/Shanghai", "I like the plan for tomorrow.", "The user likes the plan for 2026-11-04"),
    ],
)
def test_dates_are_resolved_by_the_users_clock(
    store: SqliteStore, policies: PolicySet, zone: str, text: str, content: str
) -> None:
    evening = datetime(2026, 11, 2, 17, 30, tzinfo=START.tzinfo)
    made = drafting(store, zone=zone).turn(answered(text, at=evening), policies, fresh=True)
    assert contents(made.drafts, "likes") == [content]


def test_pronouns_are_looked_up_in_the_exchange_before(store: SqliteStore, policies: PolicySet) -> None:
    before = said("Our database is PostgreSQL")
    one = answered("I like it", previous=before, context=said("A fine choice.", role="assistant"))
    [content] = contents(drafting(store).turn(one, policies, fresh=True).drafts, "likes")
    assert "PostgreSQL" in content


def test_what_a_user_said_stays_as_said_in_the_raw_turn(store: SqliteStore, policies: PolicySet) -> None:
    made = drafting(store).turn(answered("I like it tomorrow."), policies, fresh=True)
    assert contents(made.drafts, "raw") == ["I like it tomorrow."]


def test_an_answer_that_only_says_again_what_was_injected_makes_no_draft_but_the_users_words_do(
    store: SqliteStore, policies: PolicySet
) -> None:
    known = memory("The user likes tea")
    put(store, known)
    echo = Answer("You told me before: the user likes tea.", finish_reason="stop")
    one = answered("I like tea", injected=(known.id,), answer=echo)
    made = drafting(store).turn(one, policies, fresh=True)
    assert contents(made.drafts, "answered") == []
    assert contents(made.drafts, "likes") == ["The user likes tea"]
    made = drafting(store).turn(replace(one, injected=()), policies, fresh=True)
    assert contents(made.drafts, "answered") != []


def test_rules_on_trial_are_counted_and_draft_nothing(store: SqliteStore, policies: PolicySet) -> None:
    metrics = Metrics()
    Drafting(store, EMBEDDER, None, None, ZoneInfo("UTC"), metrics).turn(answered("I like tea"), policies, fresh=True)
    assert b'sidemirror_policy_shadow_matches_total{rule="on-trial"} 1.0' in metrics.render()
    made = drafting(store).turn(answered("I like tea"), policies, fresh=True)
    assert [rule for rule, _ in drafts(made)] == ["likes", "raw"]


def test_a_model_is_asked_and_its_answer_is_drafted(store: SqliteStore, tmp_path: Path) -> None:
    model = Asked("I move to Rome tomorrow")
    made = drafting(store, model).turn(answered("I plan to move tomorrow"), rules(tmp_path, BY_MODEL), fresh=True)
    assert drafts(made) == [("plans", "The user moves to Rome on 2026-11-03")]
    assert made.notes == []
    [(task, scope)] = model.tasks
    assert (task.rule_id, scope) == ("plans", ALICE)
    assert "I plan to move tomorrow" in task.prompt


def test_what_a_model_did_not_answer_is_noted_and_the_fallback_drafted(store: SqliteStore, tmp_path: Path) -> None:
    model = Asked(fell_back="timeout")
    made = drafting(store, model).turn(answered("I plan to move"), rules(tmp_path, BY_MODEL), fresh=True)
    assert drafts(made) == [("plans", "I plan to move")]
    [note] = made.notes
    assert (note.rule_id, note.action, note.memory_id) == ("plans", "fallback", None)
    assert "timeout" in note.reason


@pytest.mark.usefixtures("slow_patterns")
def test_a_rule_that_took_too_long_is_noted(store: SqliteStore, tmp_path: Path) -> None:
    slow = """
triggers:
  - {id: slow, when: user_message, if: {match: '(?:x|xx)+$'}, extract: {verbatim: {}}, write: {memory_type: semantic}}
  - id: on-trial
    mode: shadow
    when: user_message
    if: {match: '(?:x|xxx)+$'}
    extract: {verbatim: {}}
    write: {memory_type: semantic}
"""
    metrics = Metrics()
    by_rule = Drafting(store, EMBEDDER, None, None, ZoneInfo("UTC"), metrics)
    made = by_rule.turn(answered("x" * 60 + "z"), rules(tmp_path, slow), fresh=True)
    [note] = made.notes
    assert (note.rule_id, note.action, note.memory_id) == ("slow", "failed", None)
    assert "(?:x|xx)+$" in note.reason
    for pattern in (b"(?:x|xx)+$", b"(?:x|xxx)+$"):
        assert b'sidemirror_policy_timeouts_total{pattern="%s"} 1.0' % pattern in metrics.render()


@pytest.mark.usefixtures("slow_patterns")
def test_a_rule_that_took_too_long_for_earlier_messages_is_counted(store: SqliteStore, tmp_path: Path) -> None:
    slow = """
triggers:
  - {id: slow, when: user_message, if: {match: '(?:x|xx)+$'}, extract: {verbatim: {}}, write: {memory_type: semantic}}
"""
    metrics = Metrics()
    by_rule = Drafting(store, EMBEDDER, None, None, ZoneInfo("UTC"), metrics)
    by_rule.turn(answered("And now?", backfill=(said("x" * 60 + "z"),)), rules(tmp_path, slow), fresh=True)
    assert b'sidemirror_policy_timeouts_total{pattern="(?:x|xx)+$"} 1.0' in metrics.render()


def test_without_any_model_the_fallback_is_drafted_and_there_is_nothing_to_note(
    store: SqliteStore, tmp_path: Path
) -> None:
    made = drafting(store).turn(answered("I plan to move"), rules(tmp_path, BY_MODEL), fresh=True)
    assert [rule for rule, _ in drafts(made)] == ["plans"]
    assert made.notes == []
