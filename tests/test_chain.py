"""The chain of tool calls: what a result follows, and the way back from a memory to what led there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.chain import Step, parent_of, task_of, walk
from proxy.observe import answer_hash
from proxy.store.sqlite import SqliteStore
from proxy.types import Draft, Event, EventType, Source
from tests.store_samples import ALICE, BOB, DIMENSION, START, Clock, memory, put

ASKED = "Find me a flight to Lisbon"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store of this test's own."""
    opened = SqliteStore(
        tmp_path / "m.db", fingerprint="f", dimension=DIMENSION, answer_hash=answer_hash, clock=Clock()
    )
    yield opened
    opened.close()


def draft(*, link: bool = True) -> Draft:
    """What a rule proposes."""
    return Draft("rule", "hash", "2 seats left", "episodic", "tool_result", "agent", 0.5, "en", link_parent=link)


def event(type_: EventType = "tool_result", asked: str = ASKED) -> Event:
    """What it was made from."""
    return Event(type_, "2 seats left", "en", "tool", START, user_text=asked)


def step(memory_id: str | None, tool: str = "search", asked: str = ASKED, **more: Any) -> dict[str, Any]:
    """A step as the working layer holds it."""
    return {"tool": tool, "status": "ok", "memory_id": memory_id, "task": task_of(asked), "at": "then", **more}


def test_a_result_follows_the_memory_of_the_call_before() -> None:
    assert parent_of(draft(), event(), [step("first"), step("second")]) == "second"


def test_the_first_result_of_a_chain_follows_nothing() -> None:
    assert parent_of(draft(), event(), []) is None


def test_only_rules_that_link_have_parents() -> None:
    assert parent_of(draft(link=False), event(), [step("first")]) is None


def test_calls_that_made_no_memory_are_stepped_over() -> None:
    assert parent_of(draft(), event(), [step("first"), step(None), step(None)]) == "first"


def test_another_task_of_the_session_is_no_parent() -> None:
    steps = [step("flights"), step("restaurants", asked="And where do we eat?")]
    assert parent_of(draft(), event(), steps) == "flights"
    assert parent_of(draft(), event(asked="Good night"), steps) is None


def test_steps_that_name_no_task_belong_to_any() -> None:
    assert parent_of(draft(), event(), [{"memory_id": "old", "tool": "search"}]) == "old"


def test_calls_made_side_by_side_do_not_follow_one_another() -> None:
    beside = [(event(), "beside")]
    assert parent_of(draft(), event(), [step("before")], beside) == "before"


def test_what_the_answer_leads_to_follows_the_results_of_its_own_turn() -> None:
    made = [(event(), "one"), (event(), "two")]
    assert parent_of(draft(), event("turn_end"), [step("before")], made) == "two"
    assert parent_of(draft(), event("turn_end"), [step("before")]) == "before"


def chained(store: SqliteStore) -> None:
    """a ← b (a failure) ← c, an answer's."""
    put(
        store,
        memory("3 flights", id="a"),
        memory("no seats left", id="b", parent_id="a", kind="tool_failure"),
        memory("Booked TP 1361", id="c", parent_id="b", kind="task"),
    )


def test_the_way_back_is_told_oldest_first(store: SqliteStore) -> None:
    chained(store)
    way = walk(store, ALICE, "c")
    assert [(one.memory_id, one.status, one.content) for one in way] == [
        ("a", "ok", "3 flights"),
        ("b", "error", "no seats left"),
        ("c", "ok", "Booked TP 1361"),
    ]


def test_calls_that_made_no_memory_are_shown_while_they_are_remembered(store: SqliteStore) -> None:
    chained(store)
    other = step(None, "weather", asked="Will it rain?")
    steps = [other, step(None, "plan"), step("a"), step(None, "filter"), step("b", "book")]
    shown = [one.memory_id or one.tool for one in walk(store, ALICE, "c", steps)]
    assert shown == ["plan", "a", "filter", "b", "c"]


def test_an_answer_comes_after_the_results_that_its_request_brought(store: SqliteStore) -> None:
    put(store, memory("Booked", id="done", source=Source(role="assistant", request="r2")))
    steps = [
        step(None, "search", request_id="r1"),
        step(None, "book", request_id="r2"),
        step(None, "pay", request_id="r3"),
    ]
    way = walk(store, ALICE, "done", steps)
    assert way[:-1] == [Step("search", "ok", None, None, "then"), Step("book", "ok", None, None, "then")]


def test_the_way_ends_where_a_memory_was_forgotten(store: SqliteStore) -> None:
    chained(store)
    store.transact(lambda tx: tx.forget(ALICE, ["a"])).result()
    assert [one.memory_id for one in walk(store, ALICE, "c")] == ["b", "c"]


def test_nobody_walks_through_anothers_memories(store: SqliteStore) -> None:
    chained(store)
    assert walk(store, BOB, "c") == []


def test_a_circle_is_walked_once(store: SqliteStore) -> None:
    put(store, memory("one", id="x", parent_id="y"), memory("two", id="y", parent_id="x"))
    assert [one.memory_id for one in walk(store, ALICE, "x")] == ["y", "x"]
