"""A session's working notes: slots and the task chain, and that nothing of a turn is lost with the working layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.chain import task_of
from proxy.notes import Notes
from proxy.plugs import JournalTurn
from proxy.types import Event, Message, Outcome, SlotWrite, Source, ToolCall
from tests.store_samples import ALICE, START, memory, said, turn
from tests.write_back import Working

HAPPENED = Event("user_message", "I fly to Kyoto", "en", "user", START, message_hash="m1")


@pytest.fixture
def working() -> Working:
    """The working layer."""
    return Working()


@pytest.fixture
def notes(working: Working) -> Notes:
    """Notes that blank what looks like a secret."""
    return Notes(working, lambda value, untrusted: "[redacted]" if value == "sk-secret" and not untrusted else value)


def write(name: str, value: Any, ttl_s: float | None = None) -> tuple[SlotWrite, Event]:
    """A slot to be filled."""
    return SlotWrite("rule", name, value, ttl_s), HAPPENED


# ── slots ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_slots_are_filled_with_where_they_came_from(working: Working, notes: Notes) -> None:
    outcomes = notes.fill(ALICE, [write("place", "Kyoto"), write("count", 3)])
    assert outcomes == [Outcome("rule", "slot", name, "filled") for name in ("place", "count")]
    slot = working.filled[ALICE]["place"]
    assert (slot.value, slot.rule, slot.message_hash, slot.updated_at) == ("Kyoto", "rule", "m1", START)
    assert working.filled[ALICE]["count"].value == 3


def test_secrets_do_not_reach_the_working_layer(working: Working, notes: Notes) -> None:
    notes.fill(ALICE, [write("key", "sk-secret")])
    assert working.filled[ALICE]["key"].value == "[redacted]"


def test_the_time_to_live_is_that_of_the_first_rule_which_names_one(working: Working, notes: Notes) -> None:
    notes.fill(ALICE, [write("a", 1), write("b", 2, ttl_s=60), write("c", 3, ttl_s=90)])
    assert working.ttl_s == 60


def test_nothing_to_fill_asks_nothing_of_the_working_layer(working: Working, notes: Notes) -> None:
    working.gone = True
    assert notes.fill(ALICE, []) == []


def test_slots_that_could_not_be_filled_are_told(working: Working, notes: Notes) -> None:
    working.gone = True
    outcomes = notes.fill(ALICE, [write("place", "Kyoto"), write("count", 3)])
    assert [(one.rule_id, one.action, one.memory_id) for one in outcomes] == [
        ("rule", "failed", "place"),
        ("rule", "failed", "count"),
    ]
    assert all(one.reason for one in outcomes)


# ── the task chain ─────────────────────────────────────────────────────────────────────────────────────────────────
def result(text: str, answers: str, name: str | None = None) -> Message:
    """A tool's message."""
    return replace(said(text, role="tool"), tool_call_id=answers, name=name)


def asking(*names: str) -> Message:
    """An assistant message that calls tools."""
    calls = tuple(ToolCall(f"call-{name}", name, "{}") for name in names)
    return replace(said("", role="assistant"), tool_calls=calls)


def loop(*new: Message, context: Message | None = None) -> JournalTurn:
    """A turn of a tool loop."""
    return turn(*new, context=context, user_text="book it")


def test_each_tool_result_is_a_step_with_its_call_and_its_memory(working: Working, notes: Notes) -> None:
    ok, failed = result("2 seats left", "call-search"), result('{"error": "no seats"}', "call-book")
    made = memory("2 seats", source=Source(role="tool", message_hash=ok.hash))
    one = loop(ok, failed, said("and then?"), context=asking("search", "book"))
    notes.add_steps(one, [made])
    steps = working.chains[ALICE]
    assert [(step["tool"], step["status"], step["memory_id"]) for step in steps] == [
        ("search", "ok", made.id),
        ("book", "error", None),
    ]
    assert {step["task"] for step in steps} == {task_of("book it")}
    assert {step["request_id"] for step in steps} == {one.id}
    assert [step["message_hash"] for step in steps] == [ok.hash, failed.hash]


def test_a_result_whose_call_is_not_there_keeps_the_name_it_bears(working: Working, notes: Notes) -> None:
    notes.add_steps(loop(result("done", "call-lost", name="run")), [])
    assert [step["tool"] for step in working.chains[ALICE]] == ["run"]


def test_a_turn_without_tool_results_adds_no_step(working: Working, notes: Notes) -> None:
    notes.add_steps(loop(said("hello")), [])
    assert working.chains == {}


def test_without_the_working_layer_a_turn_goes_on_without_steps(working: Working, notes: Notes) -> None:
    working.gone = True
    notes.add_steps(loop(result("done", "call-run"), context=asking("run")), [])
    assert notes.steps(ALICE) == ()
    working.gone = False
    notes.add_steps(loop(result("done", "call-run"), context=asking("run")), [])
    assert len(notes.steps(ALICE)) == 1


# ── clearing ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_came_from_a_message_goes_and_leaves_the_disk_only_for_good(working: Working, notes: Notes) -> None:
    notes.fill(ALICE, [write("place", "Kyoto")])
    notes.clear(ALICE, ["m1"], for_good=False)
    assert working.filled[ALICE] == {}
    assert working.rewritten == 0
    notes.clear(ALICE, ["m1"], for_good=True)
    assert working.rewritten == 1


def test_clearing_without_the_working_layer_fails_nobody(working: Working, notes: Notes) -> None:
    working.gone = True
    notes.clear(ALICE, ["m1"], for_good=True)
    assert working.forgotten == []
