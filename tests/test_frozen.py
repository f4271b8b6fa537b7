"""What a session's requests hold: which piece a request may add, what is new to it, and where each one stands."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import frozen
from proxy.frozen import additions, corrections, missing, placed, present, slot_items, standing
from proxy.inject import Item
from proxy.observe import Conversation, chained, content_hash, conversation
from proxy.plugs import FROZEN, Piece
from proxy.recall import Hit, Recalled
from proxy.store.sqlite import SqliteStore
from proxy.types import Memory, Message, Slot
from tests.store_samples import ALICE, START, Clock, memory, put
from tests.test_store import open_sqlite

SAID = st.lists(
    st.tuples(st.sampled_from(["system", "user", "user", "assistant", "tool"]), st.sampled_from("abc")),
    min_size=1,
    max_size=8,
)


def talk(*said: tuple[str, str]) -> Conversation:
    messages = [Message(role, text, content_hash(role, text), "") for role, text in said]
    return conversation(chained(messages))


def hit(content: str, **parts: float) -> Hit:
    return Hit(memory(content), 1.0, {"dense": None, "lexical": 0.0, **parts})


# ── which piece a request may add ──────────────────────────────────────────────────────────────────────────────────
def test_the_first_turn_adds_the_block_and_nothing_behind_its_message() -> None:
    first = talk(("system", "be brief"), ("user", "hi"))
    assert missing({}, first) == (FROZEN, first.messages[1].chain)


def test_a_later_turn_adds_a_piece_behind_its_own_message_once() -> None:
    later = talk(("user", "hi"), ("assistant", "hello"), ("user", "more"))
    chain = later.messages[2].chain
    assert missing({FROZEN: Piece()}, later) == (chain,)
    assert missing({FROZEN: Piece(), chain: Piece()}, later) == ()


def test_a_tool_loop_adds_nothing_and_one_that_comes_first_freezes_an_empty_block() -> None:
    loop = talk(("user", "hi"), ("assistant", "calling"), ("tool", "42"))
    assert missing({FROZEN: Piece()}, loop) == ()
    assert missing({}, loop) == (FROZEN,)


@given(SAID)
def test_what_is_wanted_is_kept_and_then_wanted_no_more(said: list[tuple[str, str]]) -> None:
    request = talk(*said)
    kept = dict.fromkeys(missing({}, request), Piece())
    assert missing(kept, request) == ()
    assert FROZEN in kept


def test_an_edited_branch_shares_the_pieces_before_the_edit_alone() -> None:
    was = talk(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "b"), ("user", "a"))
    edited = talk(("user", "a"), ("assistant", "b"), ("user", "b"), ("assistant", "b"), ("user", "a"))
    pieces = {message.chain: Piece(text=f"{index}") for index, message in enumerate(was.messages)}
    assert [piece.text for piece in standing(pieces, edited)] == ["0"]


# ── what is new ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_only_what_bears_on_the_question_is_added_later_and_stays() -> None:
    hits = [hit("by words", lexical=0.1), hit("by meaning", dense=0.3), hit("by habit", dense=0.2), hit("newest")]
    found = Recalled(hits=hits)
    assert additions(found, frozenset(), frozenset(), first=True) == hits
    assert additions(found, frozenset(), frozenset(), first=False) == hits[:2]


def test_nothing_is_added_that_stands_in_the_session_or_was_said_in_the_request() -> None:
    told, said, new = hit("told", lexical=1.0), hit("said", lexical=1.0), hit("new", lexical=1.0)
    said = said._replace(memory=replace(said.memory, source=replace(said.memory.source, message_hash="h")))
    out = hit("left out", lexical=1.0)._replace(left_out="quota")
    found = Recalled(hits=[told, said, out, new])
    assert additions(found, frozenset({told.memory.id}), frozenset({"h"}), first=False) == [new]


def slot(value: str, source: str | None = None) -> dict[str, Slot]:
    return {"place": Slot("place", value, START, message_hash=source)}


def told_of(value: str, held: list[Piece], source: str | None = None) -> list[str]:
    """Marks of the slot, as the next piece mentions them; empty when it is not told again."""
    shown = [Item("slot:place", "working", f"place: {value}")]
    return [mark for _, mark in slot_items(slot(value, source), held, frozenset({"in the request"}), shown)]


def test_a_slot_is_told_once_for_each_value_and_again_when_it_goes_back() -> None:
    held: list[Piece] = []
    for value in ("Lisbon", "Porto", "Lisbon"):
        marks = told_of(value, held)
        assert len(marks) == 1
        held.append(Piece("x", items=("slot:place",), mentions=tuple(marks)))
        assert told_of(value, held) == []


def test_a_slot_is_not_told_while_its_source_is_in_the_request() -> None:
    assert told_of("Lisbon", [], source="in the request") == []
    assert told_of("Lisbon", [], source="no longer there") != []


# ── corrections ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    opened = open_sqlite(tmp_path, Clock())
    assert isinstance(opened, SqliteStore)
    return opened


def line(store: SqliteStore, *contents: str) -> list[Memory]:
    """Records, each of which has replaced the one before it."""
    made: list[Memory] = []
    for number, content in enumerate(contents):
        at = START + timedelta(seconds=number)
        made.append(memory(content, at=at))
        if number:
            old = store.get(ALICE, made[-2].id)
            assert old is not None
            store.transact(lambda tx, old=old: tx.supersede(old, made[-1], None)).result()  # type: ignore[misc]
        else:
            put(store, made[0])
    return made


def told(store: SqliteStore, *held: Piece) -> list[tuple[str, str]]:
    return [(old.content, new.content) for old, new in corrections(store, ALICE, held)]


def test_what_was_superseded_is_corrected_until_it_was_told(store: SqliteStore) -> None:
    old, new = line(store, "lives in Bern", "lives in Rome")
    assert told(store, Piece("x", items=(old.id,))) == [("lives in Bern", "lives in Rome")]
    assert told(store, Piece("x", items=(old.id,)), Piece("y", items=(new.id,), mentions=(old.id,))) == []
    assert told(store, Piece("x", items=(new.id,))) == []
    store.close()


def test_a_line_of_successors_is_told_once_and_names_what_was_told_last(store: SqliteStore) -> None:
    first, second, _ = line(store, "lives in Bern", "lives in Rome", "lives in Oslo")
    assert told(store, Piece("x", items=(first.id,))) == [("lives in Bern", "lives in Oslo")]
    held = Piece("x", items=(first.id,)), Piece("y", items=(second.id,), mentions=(first.id,))
    assert told(store, *held) == [("lives in Rome", "lives in Oslo")]
    store.close()


def test_nothing_is_corrected_by_what_holds_no_more_itself(store: SqliteStore) -> None:
    old, new = line(store, "lives in Bern", "lives in Rome")
    stored = store.get(ALICE, new.id)
    assert stored is not None
    store.transact(lambda tx: tx.update(replace(stored, state="archived"), None, change="archived")).result()
    assert told(store, Piece("x", items=(old.id, "slot:place", "unknown"))) == []
    store.close()


# ── where they stand ───────────────────────────────────────────────────────────────────────────────────────────────
@given(SAID, st.integers(-5, 60), st.lists(st.integers(0, 20), min_size=9, max_size=9))
def test_pieces_stand_behind_their_messages_within_the_budget(
    said: list[tuple[str, str]], budget: int, costs: list[int]
) -> None:
    request = talk(*said)
    chains = [FROZEN, *(message.chain for message in request.messages if message.role == "user")]
    pieces = {
        chain: Piece(f"piece {number}", cost, (f"m{number}",))
        for number, (chain, cost) in enumerate(zip(dict.fromkeys(chains), costs, strict=False))
    }
    found = placed(pieces, request, budget, ("x",))
    texts = {piece.text: piece for piece in pieces.values()}
    stand = [*([found.system] if found.system else []), *found.tails.values()]
    assert found.block.tokens == sum(texts[text].tokens for text in stand) <= max(budget, 0)
    assert found.block.items == tuple(item for text in stand for item in texts[text].items)
    assert found.block.left_out == ("x",)
    assert list(found.tails) == sorted(found.tails)
    for index, text in found.tails.items():
        assert request.messages[index].role == "user"
        assert pieces[request.messages[index].chain].text == text
    if budget >= sum(costs):
        assert len(stand) == len(pieces)


@given(SAID, st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), max_size=4))
def test_what_was_placed_stays_where_it_was_as_the_conversation_goes_on(
    said: list[tuple[str, str]], more: list[tuple[str, str]]
) -> None:
    """Each request adds what it wants; no later one of the branch has other bytes before its own message."""
    requests, pieces, sent = [*said], dict[str, Piece](), list[frozen.Placed]()
    for answer, question in [("", ""), *more]:
        requests += [("assistant", answer), ("user", question)] if answer else []
        request = talk(*requests)
        for number, chain in enumerate(missing(pieces, request)):
            pieces[chain] = Piece("" if number else f"added at {len(requests)}", 0 if number else 1)
        sent.append(placed(pieces, request, 100, ()))
        assert sent[-1] == placed(pieces, request, 100, ())
    for before, after in pairwise(sent):
        assert after.system == before.system
        assert dict(list(after.tails.items())[: len(before.tails)]) == dict(before.tails)


def test_what_stands_is_all_that_was_told_or_named() -> None:
    assert present([Piece("x", items=("a",), mentions=("b",)), Piece("y", items=("c",))]) == {"a", "b", "c"}
