"""Whose request it is: every source and their order, and that nothing unreadable ever becomes somebody."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from proxy.identity import Caller, identify, identify_owner
from proxy.scope import Scope

UUID_1, UUID_2 = "5b9f3a52-2c3c-4b55-9d6f-0c3f6f1b2a10", "0198f3a5-7c3c-7b55-8d6f-1c3f6f1b2a11"
HEX = "0a1b2c3d" * 8


def caller(body: Any = None, default: str | None = None, /, **headers: str) -> Caller:
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return identify(CIMultiDict(pairs), body or {}, tenant="single", default_user=default)


def scope(body: Any = None, default: str | None = None, /, **headers: str) -> Scope:
    found = caller(body, default, **headers)
    assert found.refusal is None
    assert found.scope is not None
    return found.scope


# ── sources and their order ────────────────────────────────────────────────────────────────────────────────────────
USERS: list[tuple[str, Any, dict[str, str]]] = [
    ("of-header", {}, {"X_Memory_User": "of-header"}),
    ("of-metadata", {"metadata": {"user_id": "of-metadata"}}, {}),
    ("of-identifier", {"safety_identifier": "of-identifier"}, {}),
    ("of-user", {"user": "of-user"}, {}),
]


@pytest.mark.parametrize(("better", "worse"), list(itertools.combinations(range(len(USERS)), 2)))
def test_the_first_source_that_names_a_user_wins(better: int, worse: int) -> None:
    expected, body, headers = USERS[better]
    _, other_body, other_headers = USERS[worse]
    assert scope({**other_body, **body}, "default", **other_headers, **headers).user_id == expected


@pytest.mark.parametrize(("expected", "body", "headers"), USERS)
def test_each_source_alone_names_the_user(expected: str, body: Any, headers: dict[str, str]) -> None:
    assert scope(body, **headers) == Scope("single", expected, "default", None)


def test_the_default_user_comes_last() -> None:
    assert scope({}, "local").user_id == "local"
    assert caller({}) == Caller(None, refusal="no-identity")


def test_agents_and_sessions_come_from_header_then_body() -> None:
    body = {"metadata": {"user_id": "ada", "agent_id": "body-agent", "session_id": "body-session"}}
    assert scope(body) == Scope("single", "ada", "body-agent", "body-session")
    headers = {"X_Memory_Agent": "header-agent", "X_Memory_Session": "header-session"}
    assert scope(body, **headers) == Scope("single", "ada", "header-agent", "header-session")


def test_a_clients_own_session_header_is_read_before_its_user_id() -> None:
    body = {"metadata": {"user_id": f"ada_session_{UUID_1}"}}
    assert scope(body, X_Claude_Code_Session_Id=UUID_2) == Scope("single", "ada", "default", UUID_2)
    named = {"metadata": {**body["metadata"], "session_id": "mine"}}
    assert scope(named, X_Claude_Code_Session_Id=UUID_2).session_id == "mine"
    assert scope(body, X_Memory_Session="ours", X_Claude_Code_Session_Id=UUID_2).session_id == "ours"


def test_header_names_are_read_in_any_letter_case() -> None:
    assert scope({}, x_memory_user="ada", X_MEMORY_AGENT="coder") == Scope("single", "ada", "coder")


def test_numbers_are_ids_too() -> None:
    found = scope({"metadata": {"user_id": 42, "session_id": 7}})
    assert (found.user_id, found.session_id) == ("42", "7")


def test_a_readable_source_is_not_spoilt_by_a_worse_one() -> None:
    body = {"metadata": {"user_id": ["x"], "session_id": {"a": 1}, "agent_id": False}, "user": {"a": 1}}
    headers = {"X_Memory_User": "ada", "X_Memory_Session": "s", "X_Memory_Agent": "a"}
    assert scope(body, **headers) == Scope("single", "ada", "a", "s")


# ── closed ─────────────────────────────────────────────────────────────────────────────────────────────────────────
UNREADABLE = ["", "  ", "\u3000", "x" * 257, "a\nb", "a\x00b", "a\u202eb", "\ud800", "a\u200bb"]
NO_TEXT: list[Any] = [[], ["ada"], {}, {"id": "ada"}, True, False, 1.5, float("inf"), 10**300]


@pytest.mark.parametrize("value", [*UNREADABLE, *NO_TEXT])
@pytest.mark.parametrize("field", ["metadata", "safety_identifier", "user"])
def test_a_user_that_cannot_be_read_is_nobody_and_no_other_source_is_asked(field: str, value: Any) -> None:
    body = {"user": "fallback", field: {"user_id": value} if field == "metadata" else value}
    assert caller(body, "local") == Caller(None, caller(body, "local").mode, refusal="no-identity")


@pytest.mark.parametrize("value", UNREADABLE)
def test_a_header_that_cannot_be_read_is_nobody(value: str) -> None:
    assert caller({"user": "fallback"}, "local", X_Memory_User=value).refusal == "no-identity"
    assert caller({"user": "ada"}, X_Memory_Session=value).refusal == "invalid-session"
    assert caller({"user": "ada"}, X_Memory_Agent=value).refusal == "invalid-agent"
    assert caller({"user": "ada"}, X_Claude_Code_Session_Id=value).refusal == "invalid-session"


@pytest.mark.parametrize("value", [*UNREADABLE, *NO_TEXT])
def test_a_session_or_agent_that_cannot_be_read_keeps_memory_out(value: Any) -> None:
    for part in ("session", "agent"):
        found = caller({"user": "ada", "metadata": {f"{part}_id": value}})
        assert (found.scope, found.refusal, found.reads, found.writes) == (None, f"invalid-{part}", False, False)


@pytest.mark.parametrize("name", ["X-Memory-User", "X-Memory-Agent", "X-Memory-Session", "X-Memory-Mode"])
def test_a_header_sent_twice_with_different_values_keeps_memory_out(name: str) -> None:
    headers = CIMultiDict([(name, "on"), (name.lower(), "off")])
    found = identify(headers, {"user": "ada"}, tenant="single", default_user="local")
    assert (found.scope, found.refusal) == (None, "ambiguous-header")


def test_a_header_sent_twice_with_the_same_value_is_one() -> None:
    headers = CIMultiDict([("X-Memory-User", "ada"), ("x-memory-user", "ada")])
    found = identify(headers, {}, tenant="single", default_user=None)
    assert found.scope == Scope("single", "ada")


@pytest.mark.parametrize("metadata", [None, [], "x", 5, [{"user_id": "ada"}]])
def test_metadata_that_is_no_object_names_nobody(metadata: Any) -> None:
    assert scope({"metadata": metadata, "user": "bob"}).user_id == "bob"


def test_a_null_field_names_nobody() -> None:
    assert scope({"metadata": {"user_id": None}, "safety_identifier": None, "user": "bob"}).user_id == "bob"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=5), inner, max_size=2)),
    max_leaves=4,
)
METADATA = st.one_of(JSON, st.dictionaries(st.sampled_from(["user_id", "session_id", "agent_id"]), JSON))


@given(
    st.dictionaries(st.sampled_from(["user", "safety_identifier"]), JSON),
    METADATA,
    st.lists(st.tuples(st.sampled_from(["X-Memory-User", "X-Memory-Mode", "X-Memory-Budget"]), st.text(max_size=5))),
)
def test_bodies_and_headers_of_any_shape_never_raise(body: Any, metadata: Any, headers: list[tuple[str, str]]) -> None:
    found = identify(CIMultiDict(headers), {**body, "metadata": metadata}, tenant="single", default_user=None)
    assert found.scope is not None or found.refusal is not None or found.mode == "off"
    assert found.scope is None or found.refusal is None


# ── sessions inside user ids ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("named", "user", "session"),
    [
        (f"user_{HEX}_account_{UUID_1}_session_{UUID_2}", f"user_{HEX}_account_{UUID_1}", UUID_2),
        (f"user_{HEX}_account__session_{UUID_2}", f"user_{HEX}_account_", UUID_2),
        (f"ada_session_{HEX}", "ada", HEX),
        (f"my_session_notes_session_{UUID_1}", "my_session_notes", UUID_1),
        (json.dumps({"device_id": HEX, "account_uuid": UUID_1, "session_id": UUID_2}), UUID_1, UUID_2),
        (json.dumps({"device_id": HEX, "account_uuid": "", "session_id": UUID_2}), HEX, UUID_2),
        (json.dumps({"user_id": "ada", "device_id": HEX, "session_id": ""}), "ada", None),
        (json.dumps({"user_id": 42}), "42", None),
    ],
)
def test_a_session_inside_a_user_id_is_split_off(named: str, user: str, session: str | None) -> None:
    for body in ({"metadata": {"user_id": named}}, {"user": named}, {"safety_identifier": named}):
        assert scope(body) == Scope("single", user, "default", session)


@pytest.mark.parametrize(
    "named",
    [
        "ada",
        "team_session_planner",
        "ada_session_",
        "_session_12345678",
        "ada_session_1",
        "ada_session_long-notes",
        f"ada_session_{UUID_1}/x",
        "{ada}",
        '{"name": "ada"}',
        "[1]",
    ],
)
def test_other_user_ids_stay_whole(named: str) -> None:
    assert scope({"user": named}) == Scope("single", named)


def test_a_users_sessions_belong_to_one_user() -> None:
    one, other = (scope({"metadata": {"user_id": f"ada_session_{uuid}"}}) for uuid in (UUID_1, UUID_2))
    assert one.owner == other.owner
    assert one.session_id != other.session_id


@pytest.mark.parametrize(
    "parts",
    [
        {"session_id": UUID_1},
        {"account_uuid": "", "session_id": UUID_1},
        {"account_uuid": ["x"]},
        {"device_id": "a\x00"},
        {"device_id": " "},
    ],
)
def test_an_id_in_json_that_names_no_one_is_nobody(parts: Any) -> None:
    assert caller({"metadata": {"user_id": json.dumps(parts)}}, "local").refusal == "no-identity"


def test_our_own_header_is_taken_word_for_word() -> None:
    assert scope({}, X_Memory_User=f"ada_session_{UUID_1}") == Scope("single", f"ada_session_{UUID_1}")


# ── mode and budget ────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("value", "reads", "writes"),
    [("on", True, True), ("READ", True, False), (" write ", False, True), ("off", False, False)],
)
def test_the_mode_says_what_memory_may_do(value: str, reads: bool, writes: bool) -> None:
    found = caller({"user": "ada"}, X_Memory_Mode=value)
    assert (found.reads, found.writes, found.mode, found.refusal) == (reads, writes, value.strip().lower(), None)


def test_without_a_mode_memory_is_on() -> None:
    assert caller({"user": "ada"}).mode == "on"


@pytest.mark.parametrize("value", ["", "true", "none", "on,off", "on off", "öff"])
def test_a_mode_that_makes_no_sense_keeps_memory_out(value: str) -> None:
    found = caller({"user": "ada"}, X_Memory_Mode=value)
    assert (found.refusal, found.reads, found.writes) == ("invalid-mode", False, False)


def test_off_needs_no_identity() -> None:
    assert caller({"user": ["x"]}, X_Memory_Mode="off") == Caller(None, mode="off")


@pytest.mark.parametrize(("value", "budget"), [("0", 0), ("800", 800), (" 12 ", 12), ("999999999", 999_999_999)])
def test_a_budget_is_a_number_of_tokens(value: str, budget: int) -> None:
    assert caller({"user": "ada"}, X_Memory_Budget=value).budget_tokens == budget


@pytest.mark.parametrize("value", ["", "-1", "1.5", "1e3", "1_000", "٣", "many", "9" * 10])
def test_a_budget_that_makes_no_sense_keeps_memory_out(value: str) -> None:
    found = caller({"user": "ada"}, X_Memory_Budget=value)
    assert (found.refusal, found.reads, found.writes) == ("invalid-budget", False, False)


def test_a_caller_with_a_refusal_neither_reads_nor_writes() -> None:
    found = Caller(Scope("single", "ada"), refusal="foreign-origin")
    assert not found.reads
    assert not found.writes


# ── our own endpoints ──────────────────────────────────────────────────────────────────────────────────────────────
def owner(fields: Any, default: str | None = None, **headers: str) -> Scope | None:
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return identify_owner(CIMultiDict(pairs), fields, tenant="single", default_user=default)


def test_an_owner_comes_from_headers_then_fields_then_the_default() -> None:
    fields = {"user_id": "ada", "agent_id": "coder", "session_id": "s"}
    assert owner(fields, "local") == Scope("single", "ada", "coder", "s")
    assert owner(fields, X_Memory_User="bob", X_Memory_Session="t") == Scope("single", "bob", "coder", "t")
    assert owner({}, "local") == Scope("single", "local")
    assert owner({}) is None


@pytest.mark.parametrize("part", ["user_id", "agent_id", "session_id"])
@pytest.mark.parametrize("value", [*UNREADABLE, *NO_TEXT])
def test_an_owner_that_cannot_be_read_is_nobody(part: str, value: Any) -> None:
    assert owner({"user_id": "ada", part: value}, "local") is None
