"""A scope cannot be made without an owner, and no two owners share a partition."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.scope import MAX_PART_CHARS, Scope, check_part

PARTS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=4)
SCOPES = st.builds(Scope, PARTS, PARTS, PARTS, st.one_of(st.none(), PARTS))
BAD = [
    "",
    " ",
    "\u3000\t",
    "x" * (MAX_PART_CHARS + 1),
    "a\0b",
    "a\nb",
    "\x7f",
    "\x85",
    "\u2028",
    "\u200b",
    "\ud800",
    "\ufeff",
]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("part", ["tenant", "user_id", "agent_id", "session_id"])
def test_a_part_that_identifies_nobody_is_refused_by_name(part: str, value: str) -> None:
    parts: dict[str, Any] = {"tenant": "t", "user_id": "u", part: value}
    with pytest.raises(ValueError, match=part):
        Scope(**parts)


@pytest.mark.parametrize("value", ["a", "x" * MAX_PART_CHARS, "李四", "a b", "{}/*%:", "🙂", "user@example.com"])
def test_any_printable_text_is_a_part(value: str) -> None:
    assert check_part("user_id", value) == value


@given(SCOPES, SCOPES)
def test_two_owners_share_a_partition_only_where_they_are_one(one: Scope, other: Scope) -> None:
    same_tenant = one.tenant == other.tenant
    same_user = same_tenant and one.user_id == other.user_id
    same_agent = same_user and one.agent_id == other.agent_id
    assert (one.partition("shared") == other.partition("shared")) == same_tenant
    assert (one.partition("user") == other.partition("user")) == same_user
    assert (one.partition("agent") == other.partition("agent")) == same_agent
    assert (one.owner == other.owner) == same_agent


@given(SCOPES)
def test_partitions_of_different_visibility_never_meet(scope: Scope) -> None:
    assert len(set(scope.readable)) == 3
    assert all(re.fullmatch(r"p[0-9a-f]{24}", partition) for partition in scope.readable)


@given(SCOPES, PARTS)
def test_the_session_does_not_change_what_is_read(scope: Scope, session: str) -> None:
    inside = scope.in_session(session)
    assert inside.session_id == session
    assert inside.readable == scope.readable
    assert inside.in_session(None) == scope.in_session(None)


def test_parts_that_join_to_the_same_text_stay_apart() -> None:
    assert Scope("t", "ab", "c").owner != Scope("t", "a", "bc").owner
    assert Scope("user", "t", "u").partition("shared") != Scope("t", "u").partition("user")


def test_working_memory_has_no_partition() -> None:
    with pytest.raises(ValueError, match="working memory"):
        Scope("t", "u").partition("session")
