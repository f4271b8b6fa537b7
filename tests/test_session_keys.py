"""Keys of the working layer: one scope, one key, whatever its parts hold."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from redis.crc import key_slot

from proxy.scope import Scope
from proxy.store.session_keys import cache_key, cache_name, chain_key, scope_of, session_key, user_pattern

parts = st.text(
    st.one_of(st.sampled_from("/{}%*?[]\\.~:a2F 北é"), st.characters(codec="utf-8", categories=["L", "N", "P", "S"])),
    min_size=1,
    max_size=12,
).filter(lambda text: bool(text.strip()) and text.isprintable())
scopes = st.builds(Scope, parts, parts, parts, parts)


@given(scopes)
def test_key_reads_back_as_its_scope_and_lies_with_its_chain(scope: Scope) -> None:
    key, chain = session_key(scope), chain_key(scope)
    assert scope_of(key) == scope
    assert (key.count("{"), key.count("}"), key.count("/")) == (1, 1, 3)
    assert key_slot(key.encode()) == key_slot(chain.encode())


@given(parts, parts, parts, st.data())
def test_no_two_scopes_share_a_key(first: str, second: str, third: str, data: st.DataObject) -> None:
    # The same characters, cut elsewhere: what naive joining would confuse.
    text = f"{first}/{second}/{third}/x"
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), min_size=3, max_size=3)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assume(all(piece.strip() for piece in pieces))
    one, other = Scope(first, second, "x", third), Scope(pieces[0], pieces[1], pieces[3], pieces[2])
    assert (session_key(one) == session_key(other)) == (one == other)


@given(scopes, scopes)
def test_pattern_of_a_user_matches_that_user_only(mine: Scope, other: Scope) -> None:
    pattern = user_pattern(mine)
    for key in (session_key(mine), chain_key(mine), cache_key(cache_name(mine, "q"))):
        assert fnmatch.fnmatchcase(key, pattern)
    same = (mine.tenant, mine.user_id) == (other.tenant, other.user_id)
    assert fnmatch.fnmatchcase(session_key(other), pattern) == same


@pytest.mark.parametrize(
    "key",
    [
        "",
        "session:{}",
        "session:{a/b/c}",
        "session:{a/b/c/d/e}",
        "chain:{a/b/c/d}",
        "session:{a/b//d}",
        "session:{a/b/%63/d}",
    ],
)
def test_text_that_is_no_session_key_has_no_scope(key: str) -> None:
    assert scope_of(key) is None


def test_cached_recall_without_session_has_a_name_of_its_own() -> None:
    assert cache_name(Scope("default", "alice"), "a/b") == "default/alice//default/a%2Fb"
